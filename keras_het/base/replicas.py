"""Replicas of a model on several devices, as a strategy of TensorFlow (`tf.distribute`) trains them side by side."""

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
