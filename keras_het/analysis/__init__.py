"""Analysis of the noise, from models and labels: NumPy in, arrays and frozen dataclasses out."""

from keras_het.analysis import plots
from keras_het.analysis.agreement import agreement
from keras_het.analysis.annotators import annotators, confusion_matrices
from keras_het.analysis.calibration import calibration, risk_coverage
from keras_het.analysis.corrections import apply_corrections
from keras_het.analysis.covariance import confused_pairs, covariance
from keras_het.analysis.diagnosis import diagnose_noise
from keras_het.analysis.distribution_scores import distribution_scores
from keras_het.analysis.explanation import explain
from keras_het.analysis.joint_labels import joint_labels
from keras_het.analysis.label_quality import find_label_issues
from keras_het.analysis.multi_label_issues import find_multi_label_issues
from keras_het.analysis.next_labels import next_labels
from keras_het.analysis.regression import find_target_issues, regression_scores
from keras_het.analysis.segmentation import sample_segmentations, segmentation_scores
from keras_het.analysis.uncertainty import uncertainty
from keras_het.analysis.verification_files import read_verified_labels
from keras_het.analysis.votes_needed import votes_needed
from keras_het.inspection.features import features
from keras_het.inspection.probabilities import predict_probabilities

__all__ = [
    "agreement",
    "annotators",
    "apply_corrections",
    "calibration",
    "confused_pairs",
    "confusion_matrices",
    "covariance",
    "diagnose_noise",
    "distribution_scores",
    "explain",
    "features",
    "find_label_issues",
    "find_multi_label_issues",
    "find_target_issues",
    "joint_labels",
    "next_labels",
    "plots",
    "predict_probabilities",
    "read_verified_labels",
    "regression_scores",
    "risk_coverage",
    "sample_segmentations",
    "segmentation_scores",
    "uncertainty",
    "votes_needed",
]
