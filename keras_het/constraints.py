"""Constraints of weights, applied after every training step."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.serializable import Serializable
from keras_het.base.validation import check_number
from keras_het.ops.transition import project_to_simplex

__all__ = [
    "RowStochastic",
]

MAX_ROUNDING = 1e-6  # of the sum of a row


@keras.saving.register_keras_serializable("keras_het")
class RowStochastic(Serializable, keras.constraints.Constraint):
    """Projection of every row to the nearest probability vector with entries of at least `lower`.

    The distance is Euclidean. A row that already fits, with a sum within 1e-6 of one, keeps its bits. A lower bound
    caps the gradient 1 / p(noisy label) of labels that were never observed at 1 / lower.

    Args:
        lower: number, at least 0, and below one over the length of a row.
    Source: Sukhbaatar et al. 2014, section 3: "we project Q back to the subspace of probability matrices".

    Example:
        >>> keras.ops.convert_to_numpy(RowStochastic()(keras.ops.array([[1.5, 0.5], [0.25, 0.75]]))).tolist()
        [[1.0, 0.0], [0.25, 0.75]]
    """

    def __init__(self, lower: float = 0.0):
        self.lower = check_number("lower", lower, low=0.0)

    def __call__(self, w: Any) -> Any:
        # w = lower + y, and y / remainder is a probability vector.
        remainder = 1.0 - self.lower * w.shape[-1]
        if remainder <= 0:
            raise refusal("lower", f"be below 1 / {w.shape[-1]} for rows of that length", f"lower={self.lower}")
        w = ops.convert_to_tensor(w)
        fits = ops.logical_and(
            ops.min(w, axis=-1, keepdims=True) >= self.lower,
            ops.abs(ops.sum(w, axis=-1, keepdims=True) - 1.0) <= MAX_ROUNDING,
        )
        return ops.where(fits, w, self.lower + remainder * project_to_simplex((w - self.lower) / remainder))
