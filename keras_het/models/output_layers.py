"""The end of a converted model: the layers behind its head, and its loss, metrics and optimizer."""

import warnings
from typing import Any

import keras

from keras_het.base.graph import model_inputs
from keras_het.base.internals import compile_arguments, weight_decay_exclusions
from keras_het.base.refusal import refusal
from keras_het.reading.check import ROLES, misfit_error, spell
from keras_het.reading.ending import Ending, read_layers, units_of
from keras_het.reading.matching import find_match, rebuild


def unused_name(name: str, body: keras.Model) -> str:
    """Returns the name, with a number added if a layer of the model has that name."""
    taken = {layer.name for layer in body.layers}
    names = [name, *(f"{name}_{number}" for number in range(1, len(taken) + 1))]
    return next(free for free in names if free not in taken)


def add_end(body: keras.Model, new: Any, ending: Ending, link: str, keep: bool) -> tuple[keras.Model, Ending]:
    """Returns the model of a body and a new head, with the layers behind the old head made again, and its `Ending`.

    Args:
        body: the layers before the head.
        new: the new head.
        ending: the old ending.
        link: "softmax" or "sigmoid", the link of the heads.
        keep: boolean, whether a log_sigmoid stands behind the new head if one does behind the old head.
    Raises:
        ValueError: if the classes of a softmax do not stay on the last axis.
    """
    tensor, behind = new(body.outputs[0]), []
    for old in ending.reshapes:
        behind.append(_for_units(old, units_of(ending.head), new.units, body))
        tensor = behind[-1](tensor)
        if link == "softmax" and tensor.shape[-1] != new.units:
            rule = f"keep its {new.units} classes on the last axis"
            received = f"{old.name!r}, whose output has the shape {tuple(tensor.shape)}"
            raise refusal("The layers behind the head", rule, received)
    if keep and ending.head_activation == "log_sigmoid" and link == "sigmoid":
        behind.append(keras.layers.Activation("log_sigmoid", dtype=tensor.dtype))
        tensor = behind[-1](tensor)
    model = keras.Model(model_inputs(body), tensor, name=body.name)
    return model, read_layers([new, *behind], tuple(tensor.shape))


def _for_units(layer: Any, old_units: int, units: int, body: keras.Model) -> Any:
    """Returns a copy of a Reshape or Flatten for another number of classes."""
    config = layer.get_config()
    shape = config.get("target_shape", (None,))
    if shape[-1] == old_units:
        config["target_shape"] = (*shape[:-1], units)
    return type(layer).from_config({**config, "name": unused_name(layer.name, body)})


def compile_like(
    new: keras.Model,
    old: keras.Model,
    ending: Ending | None,
    old_ending: Ending | None = None,
    *,
    loss: keras.losses.Loss | None = None,
    hint: str = "",
) -> None:
    """Compiles a model as another model was, with losses and metrics that accept its outputs.

    It makes a new optimizer and new metrics. It warns and leaves the model uncompiled if a loss or metric has no match
    or cannot be made again. It does nothing if the other model is not compiled.

    Args:
        new: the model to compile.
        old: the other model.
        ending: the ending of the new model; None, or one that returns "anything", keeps all losses and metrics.
        old_ending: the ending of the old model. If the new model returns outputs of another kind, an unknown loss or
            metric has no match.
        loss: loss in place of the old loss; None for the loss that matches it.
        hint: a remedy that the warning adds if only the outputs are the reason.
    """
    arguments = compile_arguments(old)
    if not old.compiled or not arguments:
        return
    if loss is not None:
        arguments.update(loss=None, loss_weights=None)
    ending = None if ending is not None and ending.returns == "anything" else ending
    same = ending is None or (old_ending is not None and _is_same_kind(ending.returns, old_ending.returns))
    try:
        for argument, module in ROLES.items():
            arguments[argument] = _mapped(arguments.get(argument), argument, module, ending, same)
        arguments["optimizer"] = _copy_of_optimizer(old.optimizer, new)
    except _LostError as lost:
        reason, remedy, is_by_output = lost.args
        warnings.warn(f"The new model is not compiled, for {reason}{hint * is_by_output}. {remedy}", stacklevel=3)
        return
    # The keys are the name of the old output, which the new model does not know.
    if isinstance(arguments["loss"], dict) and "class_name" not in arguments["loss"]:
        for name in ("loss", "loss_weights"):
            if isinstance(arguments[name], dict):
                arguments[name] = dict(zip(new.output_names, arguments[name].values(), strict=True))
    # False, for the copied optimizer scales the loss if the old one did: Keras would scale it twice.
    arguments["loss"] = loss or arguments["loss"]
    new.compile(**{**arguments, "jit_compile": old.jit_compile, "auto_scale_loss": False})


def _is_same_kind(new: str, old: str) -> bool:
    """Returns whether a loss of the old outputs accepts the new ones; a softmax makes logits of log-probabilities."""
    return new == old or (old in ("logits", "numbers") and new in ("logits", "log-probabilities"))


class _LostError(Exception):
    """A loss, metric or optimizer of the old model that the new one cannot have.

    Arguments are the reason, a remedy, and boolean, whether the new output is the only reason.
    """


def _mapped(given: Any, argument: str, module: Any, output: Ending | None, same: bool) -> Any:
    """Returns the same structure of losses or metrics that fit, without the state of the old ones."""
    if isinstance(given, dict) and "class_name" not in given:
        return {name: _mapped(part, argument, module, output, same) for name, part in given.items()}
    if isinstance(given, list | tuple):
        return [_mapped(part, argument, module, output, same) for part in given]
    if given is None:
        return None
    fitting = given if output is None else find_match(given, output, module, trust_unknown=same)
    if fitting is None and output is not None:
        reason = "a loss or metric of the old one has no match that is known"
        raise _LostError(reason, misfit_error(argument, given, None, output), True)
    return _again(given, argument) if fitting is given and isinstance(given, keras.metrics.Metric) else fitting


def _again(instance: Any, argument: str) -> Any:
    """Returns a metric or optimizer of equal configuration, without the state."""
    try:
        return rebuild(instance)
    except ValueError as error:
        remedy = refusal(
            argument, "be of a class that `from_config` makes of `get_config`", f"{argument}={spell(instance)}"
        )
        raise _LostError(str(error), str(remedy), False) from error


def _copy_of_optimizer(optimizer: Any, model: keras.Model) -> Any:
    """Returns an optimizer of equal configuration, without the state.

    It keeps the old optimizer's exclusions from weight decay, and its scale of the loss.
    """
    if optimizer is None:
        return None
    if type(optimizer) is keras.optimizers.LossScaleOptimizer:
        inner = _copy_of_optimizer(optimizer.inner_optimizer, model)
        config = {name: value for name, value in optimizer.get_config().items() if name != "inner_optimizer"}
        return type(optimizer)(inner, **config)
    copy = _again(optimizer, "optimizer")
    variables, count, pattern = weight_decay_exclusions(optimizer, model.variables)
    if not count and pattern is None:
        return copy
    if len(variables) < count:
        raise _LostError(
            "its optimizer excludes weights from weight decay that the new one does not have",
            "Compile it with `optimizer.exclude_from_weight_decay(...)` of the new weights. Received: "
            f"{count - len(variables)} of them",
            False,
        )
    copy.exclude_from_weight_decay(variables, pattern)
    return copy
