"""Several devices: replicas of a model, as a strategy of TensorFlow (`tf.distribute`) or processes train them."""

import math
import sys
from collections.abc import Iterable
from typing import Any

import keras


def num_replicas() -> int:
    """Returns the number of replicas of the current strategy of TensorFlow; 1 without a strategy.

    JAX trains one program on all devices, and PyTorch one process for each.
    """
    if keras.config.backend() != "tensorflow":
        return 1
    return sys.modules["tensorflow"].distribute.get_strategy().num_replicas_in_sync


def weight_parts(path: str) -> int:
    """Returns the number of parts into which the layout of the active `ModelParallel` splits a weight.

    The weight of this path might not be made yet.
    """
    distribution = keras.distribution.distribution()
    split = isinstance(distribution, keras.distribution.ModelParallel) and distribution.get_tensor_layout(path)
    if not split:
        return 1
    sizes = dict(zip(distribution.device_mesh.axis_names, distribution.device_mesh.shape, strict=True))
    return math.prod(sizes[axis] for axis in split.axes if axis is not None)


def check_one_process(name: str, reason: str) -> None:
    """Raises ValueError if several processes of PyTorch train together, as by DistributedDataParallel.

    `reason` says what goes wrong in several processes.
    """
    if keras.config.backend() != "torch":
        return
    processes = sys.modules["torch"].distributed
    count = processes.get_world_size() if processes.is_available() and processes.is_initialized() else 1
    if count > 1:
        raise ValueError(f"{name} must be in one process: {reason}. Received: a group of {count} processes")


def check_one_replica(name: str, reason: str) -> None:
    """Raises ValueError if there are several replicas; `reason` says what goes wrong with them."""
    if num_replicas() > 1:
        raise ValueError(f"{name} must have one replica: {reason}. Received: a strategy of {num_replicas()} replicas")


def check_in_scope(name: str, variables: Iterable[Any]) -> None:
    """Raises ValueError for variables that replicas share: each replica would overwrite the changes of the others."""
    if num_replicas() > 1 and not all(hasattr(variable.value, "distribute_strategy") for variable in variables):
        raise ValueError(
            f"{name} must be made inside `strategy.scope()`, as the model is. Received: one that was made outside"
        )
