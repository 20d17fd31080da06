"""Labels as integers, and labels of several annotators.

Predictions for annotators have an axis of annotators in training, and none at inference.
"""

from typing import Any

import numpy as np
from keras import ops

from keras_het.base.internals import mask_of
from keras_het.base.masks import with_mask
from keras_het.base.refusal import refusal
from keras_het.base.tensor import Tensor

NO_CLASS = -(1 << 31)


def integer_labels(labels: Any) -> Tensor:
    """Converts labels of any shape and dtype to int32; a label that is no 32-bit integer becomes -2^31.

    A plain cast would turn nan, 1.5 or 2^32 into a class, a different one on every backend. JAX truncates tensors, and
    the batches of `fit`, to 32 bits before this function gets them.

    Example:
        >>> [int(label) for label in integer_labels([1.0, 1.5, float("nan")])]
        [1, -2147483648, -2147483648]
    """
    if not ops.is_tensor(labels):
        labels = np.asarray(labels)
        if labels.dtype.kind in "iu":
            is_short = (labels >= -(2**31)) & (labels < 2**31)
            labels = np.where(is_short, labels.astype("int32"), np.int32(NO_CLASS))
    labels = ops.convert_to_tensor(labels)
    integers = ops.cast(labels, "int32")
    return ops.where(ops.equal(ops.cast(integers, labels.dtype), labels), integers, NO_CLASS)


def broadcast_predictions(y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
    """Returns labels and predictions; predictions without an axis of annotators are repeated for every annotator."""
    if len(y_true.shape) == len(y_pred.shape):
        mask = mask_of(y_pred)
        mask = None if mask is None else ops.broadcast_to(ops.expand_dims(mask, -1), ops.shape(y_true))
        predictions = ops.broadcast_to(ops.expand_dims(y_pred, -2), (*ops.shape(y_true), y_pred.shape[-1]))
        return y_true, with_mask(predictions, mask)
    num_labels, num_annotators = y_true.shape[-1], y_pred.shape[-2]
    if len(y_pred.shape) > 2 and None not in (num_labels, num_annotators) and num_labels != num_annotators:
        raise refusal("y_true", f"have shape (N, {num_annotators}), a label of each annotator, or -1", shape=y_true)
    return y_true, y_pred


def is_label(labels: Tensor, num_classes: int) -> Tensor:
    """Returns a mask: whether each label is a class or -1, for a missing label; nan is neither."""
    return ops.logical_and(ops.logical_and(labels >= -1, labels < num_classes), ops.equal(labels, ops.floor(labels)))


def broadcast_weights(sample_weight: Tensor, labels: Tensor) -> Tensor:
    """Returns weights in the shape of `labels`, `(N, ...)`; a weight per example, `(N,)` or `(N, 1)`, is repeated."""
    weights = ops.convert_to_tensor(sample_weight)
    missing_axes = len(labels.shape) - len(weights.shape)
    if missing_axes > 0:
        weights = ops.expand_dims(weights, tuple(range(-missing_axes, 0)))
    elif missing_axes < 0:
        weights = ops.squeeze(weights, -1)
    # A new array, because Keras on PyTorch multiplies the weights by a mask in place.
    return weights * ops.ones_like(labels, dtype=weights.dtype)
