"""Means and sums of probabilities in log space.

Nothing is clipped: a clip would zero the gradient of the hardest examples.
"""

import math

import numpy as np
from keras import ops

from keras_het.base.tensor import Tensor


def log_mean_exp(x: Tensor, axis: int = -1) -> Tensor:
    """Returns log(mean(exp(x))) over an axis of known length, without overflow."""
    return ops.logsumexp(x, axis=axis) - math.log(x.shape[axis])


def softplus_inverse(value: Tensor) -> Tensor:
    """Returns x such that log(1 + exp(x)) = value > 0, without overflow: value + log(1 - exp(-value))."""
    return value + math.log(-math.expm1(-value))


def weighted_logs(weights: Tensor, log_probs: Tensor) -> Tensor:
    """Returns sum_k w_k log p_k with 0 log 0 = 0 and a finite gradient; -inf if an impossible class has a weight.

    Example:
        >>> round(float(weighted_logs(ops.array([1.0, 0.0]), ops.array([-0.5, -np.inf]))), 4)
        -0.5
    """
    counts = ops.logical_or(ops.not_equal(weights, 0.0), is_possible(log_probs))
    return ops.sum(weights * ops.where(counts, log_probs, 0.0), axis=-1)


def is_possible(log_probs: Tensor) -> Tensor:
    """Returns a mask: whether each class is possible; nan counts as possible, so that it stays visible."""
    return ops.not_equal(log_probs, -np.inf)


def bounded_max(x: Tensor, lower: float, axis: int) -> Tensor:
    """Returns the larger of `lower` and the maximum over an axis, which keeps length one.

    `ops.max` has `initial` for that. But on PyTorch, `ops.max` puts `initial` on the CPU, returns another shape for an
    empty batch, and breaks the compiler's graph.
    """
    if 0 in x.shape:
        return ops.sum(x, axis=axis, keepdims=True) + lower  # an empty sum is 0
    return ops.maximum(ops.amax(x, axis=axis, keepdims=True), lower)
