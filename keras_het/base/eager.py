"""PyTorch's eager mode: constants that are made once instead of at every step.

Eager PyTorch pays for every operation, however small. On other backends, and if PyTorch traces, these functions are
plain `keras.ops`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from keras_het.base.internals import is_plain
from keras_het.base.tensor import Tensor

_MAX_CACHED_ELEMENTS = 1 << 20  # a larger constant is made again, to bound the memory
_MAX_TABLE_ELEMENTS = 1 << 24  # 64 MiB of float32; on a CPU the tensors share the memory of NumPy
_cache: dict[tuple, Any] = {}


def constant(make: Callable, *arguments: Any, beside: Tensor, xp: Any = ops) -> Tensor:
    """Returns make(*arguments, xp), a tensor; on PyTorch it is made once for each device.

    PyTorch would otherwise copy NumPy arrays to the device at every step. `make` is a function of a module, not a
    lambda, of hashable arguments. `beside` is a tensor on the device; `xp` is `keras.ops`, or `numpy` on the host.
    """
    if not is_plain(beside):
        return make(*arguments, xp)
    key = (make, arguments, beside.device)
    if key in _cache:
        return _cache[key]
    tensor = make(*arguments, xp)
    if _is_reusable(tensor) and tensor.device == beside.device and tensor.numel() <= _MAX_CACHED_ELEMENTS:
        _cache[key] = tensor
    return tensor


def numbers(*values: float, beside: Tensor) -> Any:
    """Returns numbers for arithmetic with `beside`; on PyTorch as tensors, which save four operations."""
    if not is_plain(beside):
        return values
    key = (values, beside.dtype, beside.device)
    if key in _cache:
        return _cache[key]
    tensors = beside.new_tensor(values).unbind()
    if _is_reusable(tensors[0]):
        _cache[key] = tensors
    return tensors


class TensorCache:
    """NumPy tables as PyTorch tensors on the device of their last use; a copy or a pickle of the cache is empty."""

    def __init__(self) -> None:
        self.stored: dict[Any, tuple[Tensor, ...]] = {}

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), ()

    def tensors(self, key: Any, tables: tuple[np.ndarray, ...], beside: Tensor) -> tuple[Tensor, ...]:
        """Returns the tables of a key as tensors, with the dtype and on the device of `beside`."""
        tensors = self.stored.get(key)
        if tensors is not None and all(x.dtype == beside.dtype and x.device == beside.device for x in tensors):
            return tensors
        self.stored.pop(key, None)
        # Not by Keras, which copies the memory.
        as_tensor = sys.modules["torch"].as_tensor
        tensors = tuple(as_tensor(table, dtype=beside.dtype, device=beside.device) for table in tables)
        is_small = sum(x.numel() for x in tensors) <= _MAX_TABLE_ELEMENTS
        if is_small and all(_is_reusable(x) for x in tensors):
            self.stored[key] = tensors
        return tensors


def _is_reusable(tensor: Tensor) -> bool:
    """True if a tensor can be used outside the transform or mode in which it was made."""
    return is_plain(tensor) and not tensor.is_inference()


def lookup(table: Tensor, index: Tensor, xp: Any = ops) -> Tensor:
    """Returns the entries of `table`, `(N,)`, at `index`, in [0, N), without the three passes of Keras on PyTorch."""
    if is_plain(table):
        return table.index_select(0, index.ravel()).reshape(index.shape)
    return xp.take(table, index, axis=0)
