"""Pure functions of tensors, written against `keras.ops`, and Gaussians; noise is always an argument.

They are the parts of your own link, covariance or integrator, and the matrices of a `NoiseTransition`.
"""

from keras_het.ops.low_rank import LowRankNormal
from keras_het.ops.mean import Mean
from keras_het.ops.nodes import Nodes, antithetic, pseudo_random, quasi_random
from keras_het.ops.normal import DiagonalNormal
from keras_het.ops.streaming import expectation
from keras_het.ops.transition import apply_transition, outlier_class

__all__ = [
    "DiagonalNormal",
    "LowRankNormal",
    "Mean",
    "Nodes",
    "antithetic",
    "apply_transition",
    "expectation",
    "outlier_class",
    "pseudo_random",
    "quasi_random",
]
