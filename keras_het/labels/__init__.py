"""Label tools: errors, annotators, verified labels and synthetic noise. NumPy in, arrays and frozen dataclasses out."""

from keras_het.labels.corrections import apply_corrections
from keras_het.labels.errors_left import errors_left
from keras_het.labels.verified import verified_mean, verify_accuracy

__all__ = ["apply_corrections", "errors_left", "verified_mean", "verify_accuracy"]
