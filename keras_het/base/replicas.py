"""Several devices: replicas of a model, as a strategy of TensorFlow (`tf.distribute`) or processes train them."""

import sys
from collections.abc import Iterable
from typing import Any

import keras


def num_replicas() -> int:
    """The number of replicas of the strategy in whose scope, or on whose device, this is called; 1 without a strategy.

    JAX trains one program on all devices, and PyTorch one process for each.
    """
    if keras.config.backend() != "tensorflow":
        return 1
    return sys.modules["tensorflow"].distribute.get_strategy().num_replicas_in_sync


def weight_shares() -> int:
    """The number of devices that share the weights of a model where `keras.distribution.ModelParallel` is in force."""
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel):
        return 1
    return distribution.device_mesh.devices.size // distribution.num_model_replicas


def check_one_process(name: str, reason: str) -> None:
    """Raises a ValueError where processes of PyTorch train together, as DistributedDataParallel has them.

    Args:
        name: of the object that works in one process alone.
        reason: what goes wrong in several.
    """
    if keras.config.backend() != "torch":
        return
    processes = sys.modules["torch"].distributed
    count = processes.get_world_size() if processes.is_available() and processes.is_initialized() else 1
    if count > 1:
        raise ValueError(f"{name} must be in one process: {reason}. Received: a group of {count} processes")


def check_one_replica(name: str, reason: str) -> None:
    """Raises a ValueError where there are several replicas.

    Args:
        name: of the object that works with one replica alone.
        reason: what goes wrong with several.
    """
    if num_replicas() > 1:
        raise ValueError(f"{name} must have one replica: {reason}. Received: a strategy of {num_replicas()} replicas")


def check_in_scope(name: str, variables: Iterable[Any]) -> None:
    """Raises a ValueError for variables that replicas share: each would overwrite the changes of another.

    Args:
        name: of the object that owns the variables.
        variables: of Keras.
    """
    if num_replicas() > 1 and not all(hasattr(variable.value, "distribute_strategy") for variable in variables):
        raise ValueError(
            f"{name} must be made inside `strategy.scope()`, as the model is. Received: one that was made outside"
        )
