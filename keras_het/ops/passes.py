"""Passes over a block of logits, `(B, K, C)`, for which the backends need another order of the numbers in memory.

PyTorch runs one operation after the other. There a block is a transposed view, in memory `(B, C, K)`: softmax over the
last axis is one operation, and faster than an exponential alone. XLA fuses operations, and is faster with the nodes
last. All other operations follow the order of their inputs.
"""

import math

import keras
from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.log_space import largest


def product(factor: Tensor, columns: Tensor) -> Tensor:
    """Returns the product of `(B, K, R)` and `(R, C)`, without a reshape of B K, which devices may share."""
    if _has_classes_last():
        return _turned(ops.matmul(ops.transpose(columns), _turned(factor)))
    return ops.tensordot(factor, columns, axes=1)


def outer_products(rows: Tensor, columns: tuple[Tensor, ...]) -> Tensor:
    """Returns the sum of the outer products of J rows, `(B, J, K)`, and columns, `(B, 1, C)` each, in one pass."""
    if _has_classes_last():
        return _turned(ops.matmul(_turned(ops.concatenate(columns, axis=1)), rows))
    # Not by the index [:, j, :, None]: TensorFlow's optimiser of graphs loses the new axis.
    return sum(row[..., None] * column for row, column in zip(ops.unstack(rows, axis=1), columns, strict=True))


def softmax(logits: Tensor) -> Tensor:
    """Returns the softmax over the classes."""
    if _has_classes_last():
        return _turned(ops.softmax(_turned(logits), axis=-1))
    weights = softmax_weights(logits)
    return weights / ops.sum(weights, axis=1, keepdims=True)


def softmax_weights(logits: Tensor) -> Tensor:
    """Returns the softmax over the classes times any number for each node: what is cheapest.

    The largest logit is subtracted as a constant: a shift cancels in all derivatives. (The derivative of a maximum
    divides by the number of its places, which is zero where a compiler computes the logits twice, with different
    results.)
    """
    if _has_classes_last():
        return softmax(logits)
    return ops.exp(logits - ops.stop_gradient(largest(logits, -math.inf, axis=1)))


def _has_classes_last() -> bool:
    return keras.config.backend() == "torch"


def _turned(x: Tensor) -> Tensor:
    return ops.swapaxes(x, 1, 2)
