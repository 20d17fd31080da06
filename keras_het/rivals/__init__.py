"""Rivals: methods of the literature that the arena found of little or no use, kept so that they can be compared.

Each docstring begins with what the arena found (docs/rivals.md). They take any Keras model.
"""

from keras_het.rivals.adaptive import AdaptivelyRegularizedCrossentropy, adaptive_strengths
from keras_het.rivals.data_parameters import DataParametersCrossentropy
from keras_het.rivals.density import density_subsets, stage_weights
from keras_het.rivals.jocor import JoCoR
from keras_het.rivals.mentor import MentorExamples, mentor_net
from keras_het.rivals.mentor_mix import MentorMix
from keras_het.rivals.reference import reference_weights

__all__ = [
    "AdaptivelyRegularizedCrossentropy",
    "DataParametersCrossentropy",
    "JoCoR",
    "MentorExamples",
    "MentorMix",
    "adaptive_strengths",
    "density_subsets",
    "mentor_net",
    "reference_weights",
    "stage_weights",
]
