"""Replicas of a model on several devices: by a TensorFlow strategy (`tf.distribute`) or by PyTorch processes."""

import math
import sys
from collections.abc import Iterable
from typing import Any

import keras

from keras_het.base.refusal import refuse_if


def num_replicas() -> int:
    """Returns the number of replicas of the current TensorFlow strategy; 1 without one, and on other backends."""
    if keras.config.backend() != "tensorflow":
        return 1
    return sys.modules["tensorflow"].distribute.get_strategy().num_replicas_in_sync


def weight_parts(path: str) -> int:
    """Returns the number of parts into which the active `ModelParallel` splits the weight of a path, made or not."""
    distribution = keras.distribution.distribution()
    split = isinstance(distribution, keras.distribution.ModelParallel) and distribution.get_tensor_layout(path)
    if not split:
        return 1
    sizes = dict(zip(distribution.device_mesh.axis_names, distribution.device_mesh.shape, strict=True))
    return math.prod(sizes[axis] for axis in split.axes if axis is not None)


def check_one_replica(name: str, reason: str) -> None:
    """Checks that no replicas of TensorFlow or processes of PyTorch train together; `reason` tells what would fail."""
    count, text = num_replicas(), "a strategy of {} replicas"
    if keras.config.backend() == "torch":
        processes = sys.modules["torch"].distributed
        if processes.is_available() and processes.is_initialized():  # for example by DistributedDataParallel
            count, text = processes.get_world_size(), "a group of {} processes"
    refuse_if(count > 1, name, f"have one replica: {reason}", text.format(count))


def check_in_scope(name: str, variables: Iterable[Any]) -> None:
    """Raises ValueError for variables that replicas share: each replica would overwrite the changes of the others."""
    if num_replicas() > 1 and not all(hasattr(variable.value, "distribute_strategy") for variable in variables):
        raise ValueError(
            f"{name} must be made inside `strategy.scope()`, like the model. Received: one that was made outside"
        )
