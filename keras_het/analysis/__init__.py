"""Analysis of noisy labels: NumPy in, arrays and frozen dataclasses out."""

from keras_het.analysis.annotators import annotators
from keras_het.analysis.diagnosis import diagnose_noise
from keras_het.analysis.label_quality import find_label_issues
from keras_het.analysis.next_labels import next_labels

__all__ = [
    "annotators",
    "diagnose_noise",
    "find_label_issues",
    "next_labels",
]
