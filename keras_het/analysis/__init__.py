"""Analysis of noisy labels: NumPy in, arrays and frozen dataclasses out."""

from keras_het.analysis.agreement import agreement
from keras_het.analysis.annotators import annotators
from keras_het.analysis.corrections import apply_corrections
from keras_het.analysis.distribution_scores import distribution_scores
from keras_het.analysis.label_quality import find_label_issues
from keras_het.analysis.multi_label_issues import find_multi_label_issues
from keras_het.analysis.next_labels import next_labels
from keras_het.analysis.verification_files import read_verified_labels
from keras_het.analysis.votes_needed import votes_needed

__all__ = [
    "agreement",
    "annotators",
    "apply_corrections",
    "distribution_scores",
    "find_label_issues",
    "find_multi_label_issues",
    "next_labels",
    "read_verified_labels",
    "votes_needed",
]
