"""Where V starts: rows of one length that point in random directions."""

import math

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable("keras_het")
class UnitRows(keras.initializers.Initializer):
    """Rows of `size` normal numbers, each divided by its norm and times `norm`; drawn by NumPy, the same on every
    backend.

    Args:
        size: entries of a row; the shape that is asked for may be flat.
        seed: of the directions.
        norm: of every row.
    """

    def __init__(self, size, seed, norm=1.0):
        self.size, self.seed, self.norm = size, seed, norm

    def __call__(self, shape, dtype=None):
        rows = np.random.default_rng(self.seed).normal(size=(math.prod(shape) // self.size, self.size))
        rows *= self.norm / np.linalg.norm(rows, axis=1, keepdims=True)
        return ops.convert_to_tensor(rows.reshape(shape), dtype=dtype or keras.config.floatx())

    def get_config(self):
        return {"size": self.size, "seed": self.seed, "norm": self.norm}
