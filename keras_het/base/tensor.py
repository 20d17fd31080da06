"""The type of a tensor, which no annotation can say more of without naming a backend."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # of JAX, TensorFlow or PyTorch, or a NumPy array where a function says so
