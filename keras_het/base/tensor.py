"""Tensors, of whose type no annotation can say more without naming a backend."""

from typing import Any, TypeAlias

from keras import ops

Tensor: TypeAlias = Any  # of JAX, TensorFlow or PyTorch, or a NumPy array where a function says so


def reshape(x: Tensor, shape: tuple) -> Tensor:
    """Returns `ops.reshape(x, shape)`, by the method of the tensor where it has one.

    On PyTorch `ops.reshape` takes ten times longer, because it searches the shape for symbols.
    """
    return x.reshape(shape) if hasattr(x, "reshape") else ops.reshape(x, shape)
