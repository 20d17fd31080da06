"""Tools that show what a head has learned, as NumPy arrays and dataclasses.

They compute covariances, confused classes, uncertainty and calibration.
"""

from keras_het.explain.confusion import confusion_matrices, noisy_nll
from keras_het.explain.distributions import joint_labels, regression_scores, sample_segmentations, segmentation_scores
from keras_het.explain.explanation import explain, uncertainty
from keras_het.explain.head_covariance import confused_pairs, covariance
from keras_het.explain.reliability import calibration
from keras_het.reading.features import features
from keras_het.reading.probabilities import predict_probabilities

__all__ = [
    "calibration",
    "confused_pairs",
    "confusion_matrices",
    "covariance",
    "explain",
    "features",
    "joint_labels",
    "noisy_nll",
    "predict_probabilities",
    "regression_scores",
    "sample_segmentations",
    "segmentation_scores",
    "uncertainty",
]
