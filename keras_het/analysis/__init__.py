"""The kind of label noise."""

from keras_het.analysis.diagnosis import diagnose_noise

__all__ = ["diagnose_noise"]
