"""What models and labels say of the noise: NumPy in, arrays and NamedTuples out."""

from keras_het.analysis.calibration import expected_calibration_error
from keras_het.analysis.confusion import ConfusionMatrices, confusion_matrices
from keras_het.analysis.covariance import ConfusedPair, confused_pairs, correlation, covariance
from keras_het.analysis.cross_validation import cross_val_probabilities
from keras_het.analysis.held_out import noisy_nll
from keras_het.analysis.label_quality import LabelIssues, find_label_issues
from keras_het.analysis.pairs import top_pairs
from keras_het.analysis.selection import Selection, Trial, select
from keras_het.predictions import predict_probabilities

__all__ = [
    "ConfusedPair",
    "ConfusionMatrices",
    "LabelIssues",
    "Selection",
    "Trial",
    "confused_pairs",
    "confusion_matrices",
    "correlation",
    "covariance",
    "cross_val_probabilities",
    "expected_calibration_error",
    "find_label_issues",
    "noisy_nll",
    "predict_probabilities",
    "select",
    "top_pairs",
]
