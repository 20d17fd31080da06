"""Replicas of a model on several devices: by a TensorFlow strategy (`tf.distribute`) or by PyTorch processes."""

import math
import sys
from collections.abc import Iterable
from typing import Any

import keras


def num_replicas() -> int:
    """Returns the number of replicas of the current TensorFlow strategy; 1 without a strategy.

    JAX trains one program on all devices, and PyTorch one process per device.
    """
    if keras.config.backend() != "tensorflow":
        return 1
    return sys.modules["tensorflow"].distribute.get_strategy().num_replicas_in_sync


def weight_parts(path: str) -> int:
    """Returns the number of parts into which the active `ModelParallel` splits the weight of a path.

    The weight might not exist yet.
    """
    distribution = keras.distribution.distribution()
    split = isinstance(distribution, keras.distribution.ModelParallel) and distribution.get_tensor_layout(path)
    if not split:
        return 1
    sizes = dict(zip(distribution.device_mesh.axis_names, distribution.device_mesh.shape, strict=True))
    return math.prod(sizes[axis] for axis in split.axes if axis is not None)


def check_one_process(name: str, reason: str) -> None:
    """Raises ValueError if several PyTorch processes train together, for example by DistributedDataParallel.

    `reason` is the text for what goes wrong then.
    """
    if keras.config.backend() != "torch":
        return
    processes = sys.modules["torch"].distributed
    count = processes.get_world_size() if processes.is_available() and processes.is_initialized() else 1
    if count > 1:
        raise ValueError(f"{name} must be in one process: {reason}. Received: a group of {count} processes")


def check_one_replica(name: str, reason: str) -> None:
    """Raises ValueError for several replicas; `reason` is the text for what goes wrong then."""
    if num_replicas() > 1:
        raise ValueError(f"{name} must have one replica: {reason}. Received: a strategy of {num_replicas()} replicas")


def check_in_scope(name: str, variables: Iterable[Any]) -> None:
    """Raises ValueError for variables that replicas share: each replica would overwrite the changes of the others."""
    if num_replicas() > 1 and not all(hasattr(variable.value, "distribute_strategy") for variable in variables):
        raise ValueError(
            f"{name} must be made inside `strategy.scope()`, like the model. Received: one that was made outside"
        )
