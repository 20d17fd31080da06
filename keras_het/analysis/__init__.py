"""What models and labels say of the noise: NumPy in, arrays and NamedTuples out."""

from keras_het.analysis import plots
from keras_het.analysis.annotators import Annotator, Annotators, Confusion, annotators
from keras_het.analysis.calibration import Calibration, calibration, expected_calibration_error
from keras_het.analysis.confusion import ConfusionMatrices, confusion_matrices
from keras_het.analysis.covariance import ConfusedPair, confused_pairs, correlation, covariance
from keras_het.analysis.disagreement import Disagreement, RankHistogram, disagreements, rank_histogram
from keras_het.analysis.explanation import Explanation, PredictedClass, explain
from keras_het.analysis.label_quality import LabelIssues, find_label_issues
from keras_het.analysis.members import EnsembleUncertainty, ensemble_uncertainty
from keras_het.analysis.pairs import top_pairs
from keras_het.analysis.risk import RiskCoverage, risk_coverage
from keras_het.analysis.uncertainty import Uncertainty, uncertainty
from keras_het.inspection.features import features
from keras_het.inspection.probabilities import predict_probabilities

__all__ = [
    "Annotator",
    "Annotators",
    "Calibration",
    "ConfusedPair",
    "Confusion",
    "ConfusionMatrices",
    "Disagreement",
    "EnsembleUncertainty",
    "Explanation",
    "LabelIssues",
    "PredictedClass",
    "RankHistogram",
    "RiskCoverage",
    "Uncertainty",
    "annotators",
    "calibration",
    "confused_pairs",
    "confusion_matrices",
    "correlation",
    "covariance",
    "disagreements",
    "ensemble_uncertainty",
    "expected_calibration_error",
    "explain",
    "features",
    "find_label_issues",
    "plots",
    "predict_probabilities",
    "rank_histogram",
    "risk_coverage",
    "top_pairs",
    "uncertainty",
]
