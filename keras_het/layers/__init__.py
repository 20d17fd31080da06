"""Layers: heads, and label flips."""

from keras_het.layers.heteroscedastic_dense import HeteroscedasticDense
from keras_het.layers.heteroscedastic_normal import HeteroscedasticNormal
from keras_het.layers.joint_heteroscedastic_dense import JointHeteroscedasticDense, StochasticSegmentation
from keras_het.layers.noise_transition import NoiseTransition

__all__ = [
    "HeteroscedasticDense",
    "HeteroscedasticNormal",
    "JointHeteroscedasticDense",
    "NoiseTransition",
    "StochasticSegmentation",
]
