"""Accuracy against the true classes, by verified labels. NumPy in, frozen dataclasses out."""

from keras_het.truth.errors_left import label_errors_left
from keras_het.truth.verified_mean import verified_mean
from keras_het.truth.verified_performance import verified_performance

__all__ = [
    "label_errors_left",
    "verified_mean",
    "verified_performance",
]
