"""The end of a converted model: what stands behind its head, and with what it is compiled."""

import warnings
from typing import Any

import keras

from keras_het.compilation import ROLES, compiled_with, explain, leaves
from keras_het.fitting import counterpart
from keras_het.outputs import Output


def free_name(name: str, body: keras.Model) -> str:
    """A name, or, where a layer of the model has it, that name with a number."""
    taken = {layer.name for layer in body.layers}
    names = [name, *(f"{name}_{number}" for number in range(1, len(taken) + 1))]
    return next(free for free in names if free not in taken)


def reshaped(tensor: Any, head: Any, link: str, body: keras.Model) -> Any:
    """A tensor `(..., K)` through new layers like those that reshape behind the old head; their shapes follow a new K.

    Raises: ValueError if the classes of a softmax do not stay on the last axis.
    """
    units = tensor.shape[-1]
    for layer in head.behind:
        config = layer.get_config()
        shape = config.get("target_shape", (None,))
        if shape[-1] == head.units:
            config["target_shape"] = (*shape[:-1], units)
        tensor = type(layer).from_config({**config, "name": free_name(layer.name, body)})(tensor)
        if link == "softmax" and tensor.shape[-1] != units:
            raise ValueError(
                f"The layers behind the head must keep its {units} classes on the last axis. "
                f"Received: {layer.name!r}, whose output has the shape {tuple(tensor.shape)}"
            )
    return tensor


def activated(tensor: Any, head: Any, link: str, body: keras.Model) -> Any:
    """Log-probabilities or logits, through a new layer with the activation of the old head, of the link of the new one."""
    if head.activation in (None, "log_softmax"):
        return tensor
    name = free_name("probabilities", body)
    if link == "softmax":
        return keras.layers.Softmax(name=name, dtype=tensor.dtype)(tensor)
    return keras.layers.Activation(head.activation.replace("softmax", "sigmoid"), name=name, dtype=tensor.dtype)(tensor)


def compile_like(new: keras.Model, old: keras.Model, output: Output | None) -> None:
    """Compiles a model as another was, with losses and metrics for what it returns, an optimizer of its own, and fresh metrics.

    Warns, and does not compile, if one of them has no counterpart. Does nothing if the other model is not compiled.
    """
    arguments = compiled_with(old)
    if not old.compiled or not arguments or output is None:
        return
    for argument, module in ROLES.items():
        for identifier in leaves(arguments.get(argument)):
            if counterpart(identifier, output, module) is None:
                warnings.warn(
                    "The new model is not compiled, for a loss or metric of the old one has no counterpart; keep_activation=True keeps it. "
                    + explain(argument, identifier, None, output),
                    stacklevel=3,
                )
                return
        arguments[argument] = _mapped(arguments.get(argument), output, module)
    if isinstance(arguments["loss"], dict) and "class_name" not in arguments["loss"]:  # by the name of the old output
        arguments["loss"] = dict(zip(new.output_names, arguments["loss"].values(), strict=True))
        if isinstance(arguments["loss_weights"], dict):
            arguments["loss_weights"] = dict(zip(new.output_names, arguments["loss_weights"].values(), strict=True))
    if arguments["optimizer"] is not None:
        arguments["optimizer"] = _copy(arguments["optimizer"])
    new.compile(**{**arguments, "jit_compile": old.jit_compile})


def _mapped(given: Any, output: Output, module: Any) -> Any:
    """The same structure of losses or metrics, each one that fits, and metrics without the old ones' state."""
    if isinstance(given, dict) and "class_name" not in given:
        return {name: _mapped(part, output, module) for name, part in given.items()}
    if isinstance(given, list | tuple):
        return [_mapped(part, output, module) for part in given]
    if given is None:
        return None
    fitting = counterpart(given, output, module)
    return _fresh(fitting) if fitting is given and isinstance(given, keras.metrics.Metric) else fitting


def _fresh(metric: Any) -> Any:
    """A metric of equal configuration, without the state; or itself, if it is the caller's own and cannot be made of its configuration."""
    try:
        return _copy(metric)
    except (NotImplementedError, TypeError, ValueError):
        return metric


def _copy(instance: Any) -> Any:
    """An optimizer or metric of equal configuration, its state fresh."""
    return type(instance).from_config(instance.get_config())
