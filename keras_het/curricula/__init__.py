"""Curricula: which examples a model learns from, when, and how much, by their features or their losses.

They take any Keras model and any loss.
"""

from keras_het.curricula.density import density_subsets, stage_weights
from keras_het.curricula.features import features
from keras_het.curricula.mentor_mix import MentorMix
from keras_het.curricula.reference import reference_weights

__all__ = [
    "MentorMix",
    "density_subsets",
    "features",
    "reference_weights",
    "stage_weights",
]
