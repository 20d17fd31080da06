"""PyTorch's eager mode: what is done once there, instead of at every step.

It runs one operation after the other, so a small step costs what its operations cost, whatever their sizes. On another
backend, and where PyTorch traces, these functions are plain `keras.ops`.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_het.base.internals import is_plain
from keras_het.base.tensor import Tensor

_MAX_KEPT = 1 << 20  # elements of a constant; a larger one is made at every use
_cache: dict[tuple, Any] = {}


def constant(make: Callable, *arguments: Any, beside: Tensor, xp: Any = ops) -> Tensor:
    """Returns make(*arguments, xp), a tensor; on PyTorch it is made once for each device.

    PyTorch would otherwise make it at every step, and copy an array of NumPy to the device.

    Args:
        make: a function of a module, not a lambda.
        arguments: its arguments, which can be keys of a dictionary.
        beside: a tensor on the device of the computation.
        xp: `keras.ops`, or `numpy` on the host.
    """
    if not is_plain(beside):
        return make(*arguments, xp)
    key = (make, arguments, beside.device)
    if key in _cache:
        return _cache[key]
    made = make(*arguments, xp)
    if _can_stay(made) and made.device == beside.device and made.numel() <= _MAX_KEPT:
        _cache[key] = made
    return made


def numbers(*values: float, beside: Tensor) -> Any:
    """Returns numbers for arithmetic with `beside`; on PyTorch they are tensors of its dtype.

    There a Python number costs four operations more, a copy to the tensor's dtype among them.
    """
    if not is_plain(beside):
        return values
    key = (values, beside.dtype, beside.device)
    if key in _cache:
        return _cache[key]
    made = beside.new_tensor(values).unbind()
    if _can_stay(made[0]):
        _cache[key] = made
    return made


def _can_stay(tensor: Tensor) -> bool:
    """Returns whether a tensor can be used again outside the transform or the mode in which it was made."""
    return is_plain(tensor) and not tensor.is_inference()


def lookup(table: Tensor, index: Tensor, xp: Any = ops) -> Tensor:
    """Returns the entries of a table, `(N,)`, at `index`, of any shape, in [0, N).

    (Keras on PyTorch first checks for negative entries, in three passes over them.)
    """
    if is_plain(table):
        return table.index_select(0, index.ravel()).reshape(index.shape)
    return xp.take(table, index, axis=0)
