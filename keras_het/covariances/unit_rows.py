"""The start of V: rows of equal norm that point in random directions."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, check_integer


@keras.saving.register_keras_serializable("keras_het")
class UnitRows(keras.initializers.Initializer):
    """Rows of `size` normal numbers, each scaled to the norm `norm`.

    NumPy draws them, so that they are the same on every backend.

    Args:
        size: number of entries of a row; the requested shape may be flat.
        seed: of the directions; an integer, or a list of them.
        norm: of every row.
    """

    def __init__(self, size: int, seed: int | list[int], norm: float = 1.0) -> None:
        self.size, self.seed, self.norm = check_integer("size", size, 1, MAX_CLASSES), seed, norm

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        rows = np.random.default_rng(self.seed).normal(size=(math.prod(shape) // self.size, self.size))
        rows *= self.norm / np.linalg.norm(rows, axis=1, keepdims=True)
        return ops.convert_to_tensor(rows.reshape(shape), dtype=dtype or keras.config.floatx())

    def get_config(self) -> dict[str, Any]:
        return {"size": self.size, "seed": self.seed, "norm": self.norm}
