"""Metrics of probabilities and of their calibration, as `keras.metrics`."""

from keras_het.metrics.annotators_metric import AnnotatorsMetric
from keras_het.metrics.scores import BrierScore, ExpectedCalibrationError, NegativeLogLikelihood

__all__ = [
    "AnnotatorsMetric",
    "BrierScore",
    "ExpectedCalibrationError",
    "NegativeLogLikelihood",
]
