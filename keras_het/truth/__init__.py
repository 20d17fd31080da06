"""What is true, by held-out noisy labels and T: accuracy, sets and tests. NumPy in, frozen dataclasses out."""

from keras_het.truth.conformal import conformal_sets
from keras_het.truth.corrected_weights import CountedTransition
from keras_het.truth.errors_left import label_errors_left
from keras_het.truth.transition_check import check_transition
from keras_het.truth.true_performance import true_performance
from keras_het.truth.verified_mean import verified_mean
from keras_het.truth.verified_performance import verified_performance

__all__ = [
    "CountedTransition",
    "check_transition",
    "conformal_sets",
    "label_errors_left",
    "true_performance",
    "verified_mean",
    "verified_performance",
]
