"""Keras masks: booleans `(...)` of a tensor `(..., K)`, False for padding."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.graph import predictor


class MaskSetter(keras.layers.Layer):
    """Layer that returns its first input with the second as Keras mask; only a layer can set a mask."""

    def __init__(self):
        super().__init__(dtype="float32", autocast=False)
        self.supports_masking = self.built = True

    def call(self, inputs):
        return inputs[0]

    def compute_mask(self, inputs, previous_mask):
        return inputs[1]


class MaskReader(keras.layers.Layer):
    """Layer that returns the Keras mask of a tensor `(..., K)`; True without a mask, or for a mask of another rank."""

    def __init__(self):
        super().__init__(dtype="float32", autocast=False)
        self.supports_masking = self.built = True

    def call(self, inputs, mask=None):
        all_true = ops.ones_like(inputs[..., 0], dtype="bool")
        return all_true if mask is None or len(mask.shape) != len(all_true.shape) else mask

    def compute_mask(self, inputs, previous_mask):
        return None


MASK_SETTER = MaskSetter()  # it has no state, so all callers can share it


def with_mask(values: Any, mask: Any) -> Any:
    """Returns `values` with a Keras mask, by a new layer if symbolic, because a layer stores its symbolic calls."""
    if mask is None:
        return values
    return (MaskSetter() if keras.utils.is_keras_tensor(values) else MASK_SETTER)((values, mask))


def masked_predictor(model: keras.Model, tensor: Any) -> Callable[[Any], Any]:
    """Returns a function from a batch to the values of a tensor, `(..., K)`, and their mask; see `predictor`."""
    return predictor(model, [tensor, MaskReader()(tensor)])


def drop_masked(mask: np.ndarray, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns arrays `(..., K)` or `(...)` without their masked examples; unchanged if no example is masked."""
    return arrays if mask.all() else tuple(array[mask] for array in arrays)
