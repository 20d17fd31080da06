"""Losses, metrics and optimizers, rebuilt from their configs with fresh state."""

import inspect
from typing import Any

import keras

from keras_het.base.internals import weight_decay_exclusions


def rebuild(instance: Any, **changes: Any) -> Any:
    """Rebuilds a loss, metric or optimizer from its config, with changes and fresh state; raises ValueError."""
    kind = type(instance)
    try:
        config = {**instance.get_config(), **changes}
        if isinstance(instance, keras.losses.Loss):
            config = {"dtype": instance.dtype, **config}  # missing in the configs of Keras' losses
        parameters = inspect.signature(kind.__init__).parameters.values()
        names = {
            parameter.name
            for parameter in list(parameters)[1:]
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        }
        if _inherits_config(kind) and not names <= set(config):
            raise ValueError(f"its `get_config` lacks {sorted(names - set(config))}")
        return kind.from_config(config)
    except Exception as error:  # the caller's class can raise anything
        raise ValueError(f"{kind.__name__} cannot be rebuilt from its config: {error}") from error


def _inherits_config(kind: type) -> bool:
    """True if a class defines a constructor, but inherits `get_config` from a base class."""
    definers = [next(base for base in kind.__mro__ if method in vars(base)) for method in ("__init__", "get_config")]
    return kind.__mro__.index(definers[0]) < kind.__mro__.index(definers[1])


def copy_optimizer(optimizer: Any, model: Any, successors: Any = ()) -> Any:
    """Rebuilds an optimizer, with its loss scale and weight decay, for a model with layers of its old model.

    `successors` are pairs (old variable, new variable) of a replaced layer.
    """
    if type(optimizer) is keras.optimizers.LossScaleOptimizer:
        inner = copy_optimizer(optimizer.inner_optimizer, model, successors)
        return type(optimizer)(inner, **{k: v for k, v in optimizer.get_config().items() if k != "inner_optimizer"})
    copy = rebuild(optimizer)
    exclusions, _, pattern = weight_decay_exclusions(optimizer, model.variables)
    exclusions += [new for old, new in successors if weight_decay_exclusions(optimizer, [old])[0]]
    if exclusions or pattern:
        copy.exclude_from_weight_decay(exclusions, pattern)
    return copy
