"""Metrics of probabilities, of their calibration and of their order, as `keras.metrics`."""

from keras_het.metrics.annotators_metric import AnnotatorsMetric
from keras_het.metrics.calibration import EqualMassCalibrationError, ExpectedCalibrationError
from keras_het.metrics.ranking import AreaUnderRiskCoverage, GlobalAveragePrecision
from keras_het.metrics.scores import BrierScore, NegativeLogLikelihood

__all__ = [
    "AnnotatorsMetric",
    "AreaUnderRiskCoverage",
    "BrierScore",
    "EqualMassCalibrationError",
    "ExpectedCalibrationError",
    "GlobalAveragePrecision",
    "NegativeLogLikelihood",
]
