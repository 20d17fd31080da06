"""What models and labels say of the noise: NumPy in, arrays and NamedTuples out."""

from keras_het.analysis.confusion import ConfusionMatrices, confusion_matrices
from keras_het.analysis.corruption import corrupt_labels, look_alike_transitions
from keras_het.analysis.covariance import ConfusedPair, confused_pairs, covariance
from keras_het.analysis.selection import Selection, noisy_nll, select_strength

__all__ = [
    "ConfusedPair",
    "ConfusionMatrices",
    "Selection",
    "confused_pairs",
    "confusion_matrices",
    "corrupt_labels",
    "covariance",
    "look_alike_transitions",
    "noisy_nll",
    "select_strength",
]
