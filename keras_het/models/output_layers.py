"""The end of a converted model: the layers behind its head, and its loss, metrics and optimizer."""

import warnings
from typing import Any

import keras

from keras_het.base.internals import compile_arguments, not_decayed
from keras_het.base.refusal import refusal
from keras_het.reading.check import ROLES, advice, spelled
from keras_het.reading.matching import matching, remade
from keras_het.reading.outputs import Output


def free_name(name: str, body: keras.Model) -> str:
    """The given name, with a number added if a layer of the model has that name."""
    taken = {layer.name for layer in body.layers}
    names = [name, *(f"{name}_{number}" for number in range(1, len(taken) + 1))]
    return next(free for free in names if free not in taken)


def reshaped(tensor: Any, head: Any, activation: str, body: keras.Model) -> Any:
    """Passes a tensor `(..., K)` through copies of the reshaping layers behind the old head, adapted to a new K.

    Raises:
        ValueError: if the classes of a softmax do not stay on the last axis.
    """
    units = tensor.shape[-1]
    for layer in head.behind:
        config = layer.get_config()
        shape = config.get("target_shape", (None,))
        if shape[-1] == head.units:
            config["target_shape"] = (*shape[:-1], units)
        tensor = type(layer).from_config({**config, "name": free_name(layer.name, body)})(tensor)
        if activation == "softmax" and tensor.shape[-1] != units:
            rule = f"keep its {units} classes on the last axis"
            raise refusal(
                "The layers behind the head", rule, f"{layer.name!r}, whose output has the shape {tuple(tensor.shape)}"
            )
    return tensor


def activated(tensor: Any, head: Any, activation: str, body: keras.Model) -> Any:
    """Passes a tensor through a new layer with the activation of the old head, or of the new head's link."""
    if head.activation in (None, "log_softmax"):
        return tensor
    name = free_name("probabilities", body)
    if activation == "softmax":
        return keras.layers.Softmax(name=name, dtype=tensor.dtype)(tensor)
    return keras.layers.Activation(head.activation.replace("softmax", "sigmoid"), name=name, dtype=tensor.dtype)(tensor)


def compile_like(
    new: keras.Model,
    old: keras.Model,
    output: Output | None,
    activation: str | None,
    returned: str,
    loss: keras.losses.Loss | None = None,
) -> None:
    """Compiles a model as another one was, with losses and metrics that take its outputs.

    Its optimizer and metrics are its own. It warns, and does not compile, if nothing that matches one of them is known
    or it cannot be made again. It does nothing if the other model is not compiled.

    Args:
        new: the model to compile.
        old: the other model.
        output: the output of the new model; None if it is unknown.
        activation: activation of the old head, if `keep_activation` would keep it.
        returned: the kind of the old model's outputs, as `Output.returns`. If the new model's outputs are of another
            kind, an unknown loss or metric has none that matches.
        loss: loss in place of the old one; None for the one that matches it.
    """
    arguments = compile_arguments(old)
    if not old.compiled or not arguments:
        return
    if loss is not None:
        arguments.update(loss=None, loss_weights=None)
    same = output is None or output.returns in (returned, "log-probabilities" if returned == "logits" else "")
    try:
        for argument, module in ROLES.items():
            arguments[argument] = _mapped(arguments.get(argument), argument, module, output, same)
        arguments["optimizer"] = _copy_of_optimizer(old.optimizer, new)
    except _LostError as lost:
        kept = "; keep_activation=True keeps it" if lost.by_output and activation not in (None, "log_softmax") else ""
        warnings.warn(f"The new model is not compiled, for {lost.args[0]}{kept}. {lost.args[1]}", stacklevel=3)
        return
    # The keys are the name of the old output, which the new model does not know.
    if isinstance(arguments["loss"], dict) and "class_name" not in arguments["loss"]:
        arguments["loss"] = dict(zip(new.output_names, arguments["loss"].values(), strict=True))
        if isinstance(arguments["loss_weights"], dict):
            arguments["loss_weights"] = dict(zip(new.output_names, arguments["loss_weights"].values(), strict=True))
    # False, for the copied optimizer scales the loss if the old one did: Keras would scale it twice.
    arguments["loss"] = loss or arguments["loss"]
    new.compile(**{**arguments, "jit_compile": old.jit_compile, "auto_scale_loss": False})


class _LostError(Exception):
    """A loss, metric or optimizer of the old model that the new one cannot have, with the reason and a remedy.

    `by_output`: whether the new output is the only reason.
    """

    by_output = False


class _UnfitError(_LostError):
    by_output = True


def _mapped(given: Any, argument: str, module: Any, output: Output | None, same: bool) -> Any:
    """The same structure of losses or metrics that fit, without the state of the old ones."""
    if isinstance(given, dict) and "class_name" not in given:
        return {name: _mapped(part, argument, module, output, same) for name, part in given.items()}
    if isinstance(given, list | tuple):
        return [_mapped(part, argument, module, output, same) for part in given]
    if given is None:
        return None
    fitting = given if output is None else matching(given, output, module, trust_unknown=same)
    if fitting is None and output is not None:
        raise _UnfitError(
            "a loss or metric of the old one has no match that is known", advice(argument, given, None, output)
        )
    return _again(given, argument) if fitting is given and isinstance(given, keras.metrics.Metric) else fitting


def _again(instance: Any, argument: str) -> Any:
    """A metric or optimizer of equal configuration, without the state."""
    try:
        return remade(instance)
    except ValueError as error:
        raise _LostError(
            f"{error}",
            f"`{argument}` must be of a class that `from_config` makes of `get_config`. Received: "
            f"{argument}={spelled(instance)}",
        ) from error


def _copy_of_optimizer(optimizer: Any, model: keras.Model) -> Any:
    """An optimizer of equal configuration, without the state.

    It keeps the old optimizer's exclusions from weight decay, and its scale of the loss.
    """
    if optimizer is None:
        return None
    if type(optimizer) is keras.optimizers.LossScaleOptimizer:
        inner = _copy_of_optimizer(optimizer.inner_optimizer, model)
        config = {name: value for name, value in optimizer.get_config().items() if name != "inner_optimizer"}
        return type(optimizer)(inner, **config)
    copy = _again(optimizer, "optimizer")
    variables, count, pattern = not_decayed(optimizer, model.variables)
    if not count and pattern is None:
        return copy
    if len(variables) < count:
        raise _LostError(
            "its optimizer excludes weights from weight decay that the new one does not have",
            "Compile it with `optimizer.exclude_from_weight_decay(...)` of the new weights. Received: "
            f"{count - len(variables)} of them",
        )
    copy.exclude_from_weight_decay(variables, pattern)
    return copy
