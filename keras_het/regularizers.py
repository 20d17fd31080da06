"""Regularisers of a transition matrix T: each grows as T gets nearer to the identity, so that T takes the noise on.

Without one a learned T may stay at the identity, while the base model learns the noise (Sukhbaatar et al. 2014, section
3). Keras' own `L2` is the paper's ridge. What each does on digits is in `benchmarks/README.md`: the ridge is the one to
begin with. It lets go as the rows spread, where the trace pushes on until the classes change places, a permutation
having the trace 0. Of the T of several annotators, `(M, K, K)`, each is the sum over them.
"""

from typing import Any

import keras
from keras import ops

from keras_het.validation import check_number

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

    Of several annotators it is the sum over them, which Tanno et al. 2019 add to the crossentropy (section 3.2): of all
    T that explain the labels, those of least trace are the true ones, where the true T are dominated by their diagonals
    in the mean over the annotators.

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
    """strength * (sum of the singular values of T), the nuclear norm, which the paper names.

    For a permutation it is K, where the trace may be 0: it sees how far T is from singular, not which labels are kept.

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

    Computed from the singular values s as the sum of log(s^2 + 1e-6) / 2, which is finite where T is singular.

    Args:
        strength: at least 0.

    Example:
        >>> round(float(LogVolume(1.0)(ops.array([[0.75, 0.25], [0.25, 0.75]]))), 4)
        -0.6931
    """

    def __call__(self, x: Any) -> Any:
        return self.strength * 0.5 * ops.sum(ops.log(ops.square(ops.svd(x, compute_uv=False)) + 1e-6))
