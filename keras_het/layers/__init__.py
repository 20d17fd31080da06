"""The layers; each has a file of its own."""

from keras_het.layers.heteroscedastic_dense import HeteroscedasticDense
from keras_het.layers.heteroscedastic_normal import HeteroscedasticNormal
from keras_het.layers.joint_heteroscedastic_dense import JointHeteroscedasticDense
from keras_het.layers.learned_temperature import LearnedTemperature
from keras_het.layers.noise_transition import NoiseTransition
from keras_het.layers.stochastic_segmentation import StochasticSegmentation

__all__ = [
    "HeteroscedasticDense",
    "HeteroscedasticNormal",
    "JointHeteroscedasticDense",
    "LearnedTemperature",
    "NoiseTransition",
    "StochasticSegmentation",
]
