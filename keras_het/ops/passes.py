"""Passes over a block of logits, `(B, K, C)`, in the memory order that is fastest on each backend.

Eager PyTorch runs softmax over the last axis as one operation, faster than an exponential. So a block is a transposed
view there, `(B, C, K)` in memory. XLA fuses operations, and is faster with the nodes last. All other operations keep
the order of their inputs.
"""

import math

import keras
from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.log_space import bounded_max


def product(factor: Tensor, columns: Tensor) -> Tensor:
    """Returns the product of `(B, K, R)` and `(R, C)`, without a reshape to B K, which devices could not share."""
    if _has_classes_last():
        return _transpose_block(ops.matmul(ops.transpose(columns), _transpose_block(factor)))
    return ops.tensordot(factor, columns, axes=1)


def outer_products(rows: Tensor, columns: tuple[Tensor, ...]) -> Tensor:
    """Returns the sum of the outer products of J rows, `(B, J, K)`, and columns, `(B, 1, C)` each, in one pass."""
    if _has_classes_last():
        return _transpose_block(ops.matmul(_transpose_block(ops.concatenate(columns, axis=1)), rows))
    # Not by the index [:, j, :, None], because TensorFlow's graph optimizer loses the new axis.
    return sum(row[..., None] * column for row, column in zip(ops.unstack(rows, axis=1), columns, strict=True))


def softmax(logits: Tensor) -> Tensor:
    """Returns the softmax over the classes."""
    if _has_classes_last():
        return _transpose_block(ops.softmax(_transpose_block(logits), axis=-1))
    weights = softmax_weights(logits)
    return weights / ops.sum(weights, axis=1, keepdims=True)


def softmax_weights(logits: Tensor) -> Tensor:
    """Returns the softmax over the classes times an arbitrary number per node, whichever is cheapest.

    The largest logit is subtracted as a constant, because a shift cancels in all derivatives. The derivative of a
    maximum divides by the number of maxima. That is zero if a compiler computes the logits twice, with different
    results.
    """
    if _has_classes_last():
        return softmax(logits)
    return ops.exp(logits - ops.stop_gradient(bounded_max(logits, -math.inf, axis=1)))


def _has_classes_last() -> bool:
    return keras.config.backend() == "torch"


def _transpose_block(x: Tensor) -> Tensor:
    return ops.swapaxes(x, 1, 2)
