"""Rivals: methods of the literature that the arena recommends for none of seven noises, kept for comparisons.

The arena compares 27 methods on digits, and some more in later runs (docs/rivals.md). Each docstring begins with its
result: points of accuracy on clean test labels, compared with crossentropy that stops early, both with a Dense head,
means of five seeds. "Better" and "worse" mean by more than two standard errors.
"""

from keras_het.rivals.adaptive import AdaptivelyRegularizedCrossentropy, adaptive_strengths
from keras_het.rivals.data_parameters import DataParametersCrossentropy
from keras_het.rivals.density import density_subsets, stage_weights
from keras_het.rivals.epsilon_softmax import EpsilonSoftmaxCrossentropy
from keras_het.rivals.jocor import JoCoR
from keras_het.rivals.logistic_normal import LogisticNormal
from keras_het.rivals.mentor import MentorExamples, mentor_net
from keras_het.rivals.mentor_mix import MentorMix
from keras_het.rivals.reference import reference_weights
from keras_het.rivals.shifted_gaussian import ShiftedGaussianNLL

__all__ = [
    "AdaptivelyRegularizedCrossentropy",
    "DataParametersCrossentropy",
    "EpsilonSoftmaxCrossentropy",
    "JoCoR",
    "LogisticNormal",
    "MentorExamples",
    "MentorMix",
    "ShiftedGaussianNLL",
    "adaptive_strengths",
    "density_subsets",
    "mentor_net",
    "reference_weights",
    "stage_weights",
]
