"""Tensors, whose annotation cannot be more precise without a backend."""

from typing import Any, TypeAlias

import numpy as np
from keras import config, ops

Tensor: TypeAlias = Any  # JAX, TensorFlow or PyTorch; NumPy arrays only if a docstring allows them


def reshape(x: Tensor, shape: tuple) -> Tensor:
    """Returns `ops.reshape(x, shape)`, by the own method of an array of NumPy or PyTorch: there ten times as fast."""
    has_method = isinstance(x, np.ndarray) or config.backend() == "torch"
    return x.reshape(shape) if has_method else ops.reshape(x, shape)
