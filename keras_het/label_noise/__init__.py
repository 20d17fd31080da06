"""Label noise: estimates of transition matrices and true classes, and noisy labels for experiments. NumPy in and out.

A transition matrix T is row-stochastic, T[i, j] = p(noisy label j | true class i): the transpose of the Q of Sukhbaatar
et al. 2014.
"""

from keras_het.label_noise.corruption import corrupt_labels, look_alike_transitions
from keras_het.label_noise.dawid_skene import dawid_skene, majority_vote
from keras_het.label_noise.estimation import estimate_by_confident_joint
from keras_het.label_noise.matrices import pair_flip, symmetric
from keras_het.label_noise.votes import votes_from_table
from keras_het.ops.transition import outlier_class, total_variation

__all__ = [
    "corrupt_labels",
    "dawid_skene",
    "estimate_by_confident_joint",
    "look_alike_transitions",
    "majority_vote",
    "outlier_class",
    "pair_flip",
    "symmetric",
    "total_variation",
    "votes_from_table",
]
