"""Regularisers of a transition matrix T: each grows as T gets nearer to the identity, so that T takes on the noise.

Without one a learned T may stay at the identity, while the base model learns the noise (Sukhbaatar et al. 2014, section
3). Begin with the paper's ridge, which is Keras' own `L2`; `benchmarks/results/label_flip.md` compares them. The
ridge pushes less as the rows spread. The trace pushes on until the classes change places, because a permutation can
have the trace 0. For several annotators T is `(M, K, K)`, and each regulariser is the sum over them.
"""

from typing import Any

import keras
from keras import ops

from keras_het.base.validation import check_number

__all__ = [
    "LogVolume",
    "Trace",
    "TraceNorm",
]


class _OfTransition(keras.regularizers.Regularizer):
    """Base class: `strength` times a function of T."""

    def __init__(self, strength: float = 0.1):
        self.strength = check_number("strength", strength, low=0.0)

    def get_config(self) -> dict[str, Any]:
        return {"strength": self.strength}


@keras.saving.register_keras_serializable("keras_het")
class Trace(_OfTransition):
    """strength * sum_i T_ii: how many labels are kept.

    For several annotators it is the sum over them, which Tanno et al. 2019 add to the crossentropy (section 3.2). The
    true T have the least trace of all T that explain the labels, if the mean of the true T over the annotators is
    dominated by its diagonal.

    Args:
        strength: at least 0.

    Example:
        >>> round(float(Trace(0.5)(ops.array([[0.75, 0.25], [0.5, 0.5]]))), 3)
        0.625
    """

    def __call__(self, x: Any) -> Any:
        return self.strength * ops.sum(ops.diagonal(x, axis1=-2, axis2=-1))


@keras.saving.register_keras_serializable("keras_het")
class TraceNorm(_OfTransition):
    """strength * (sum of the singular values of T), the nuclear norm, which Sukhbaatar et al. name.

    It is K for a permutation, whose trace may be 0: it sees how far T is from singular, not which labels are kept.

    Args:
        strength: at least 0.

    Example:
        >>> round(float(TraceNorm(0.5)(ops.array([[0.0, 1.0], [1.0, 0.0]]))), 3)
        1.0
    """

    def __call__(self, x: Any) -> Any:
        return self.strength * ops.sum(ops.svd(x, compute_uv=False))


@keras.saving.register_keras_serializable("keras_het")
class LogVolume(_OfTransition):
    """strength * log |det T|: the volume of the simplex that the rows of T span (Li et al. 2021, "VolMinNet").

    It is computed from the singular values s as the sum of log(s^2 + 1e-6) / 2, which is finite where T is singular.

    Args:
        strength: at least 0.

    Example:
        >>> round(float(LogVolume(1.0)(ops.array([[0.75, 0.25], [0.25, 0.75]]))), 4)
        -0.6931
    """

    def __call__(self, x: Any) -> Any:
        return self.strength * 0.5 * ops.sum(ops.log(ops.square(ops.svd(x, compute_uv=False)) + 1e-6))
