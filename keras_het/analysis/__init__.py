"""What models and labels say of the noise: NumPy in, arrays and NamedTuples out."""

from keras_het.analysis.calibration import expected_calibration_error
from keras_het.analysis.confusion import ConfusionMatrices, confusion_matrices
from keras_het.analysis.covariance import ConfusedPair, confused_pairs, covariance
from keras_het.analysis.held_out import noisy_nll
from keras_het.analysis.members import EnsembleUncertainty, ensemble_uncertainty
from keras_het.analysis.pairs import top_pairs
from keras_het.analysis.selection import Selection, Trial, select

__all__ = [
    "ConfusedPair",
    "ConfusionMatrices",
    "EnsembleUncertainty",
    "Selection",
    "Trial",
    "confused_pairs",
    "confusion_matrices",
    "covariance",
    "ensemble_uncertainty",
    "expected_calibration_error",
    "noisy_nll",
    "select",
    "top_pairs",
]
