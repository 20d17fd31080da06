"""End of a converted model: the layers after its head, and its loss, metrics and optimizer."""

import warnings
from collections.abc import Callable
from typing import Any

import keras

from keras_het.base.graph import model_inputs, own_methods
from keras_het.base.internals import compile_arguments, weight_decay_exclusions
from keras_het.base.rebuild import copy_optimizer, rebuild
from keras_het.base.refusal import refusal
from keras_het.reading.check import ROLES, misfit_error, spell
from keras_het.reading.ending import Ending, read_layers, units_of
from keras_het.reading.matching import find_match


def unused_name(name: str, body: keras.Model) -> str:
    """Returns the name, with a number if a layer of the model has the same name."""
    used_names = {layer.name for layer in body.layers}
    candidates = [name, *(f"{name}_{number}" for number in range(1, len(used_names) + 1))]
    return next(candidate for candidate in candidates if candidate not in used_names)


def add_end(body: keras.Model, new: Any, ending: Ending, link: str, keep: bool) -> tuple[keras.Model, Ending]:
    """Adds a new head and rebuilt layers after it to a body; returns the model and its `Ending`.

    Raises:
        ValueError: if the classes of a softmax do not stay on the last axis.
    """
    tensor, tail = new(body.outputs[0]), []
    for old in ending.reshapes:
        tail.append(_resize(old, units_of(ending.head), new.units, body))
        tensor = tail[-1](tensor)
        if link == "softmax" and tensor.shape[-1] != new.units:
            rule = f"keep its {new.units} classes on the last axis"
            received = f"{old.name!r}, whose output has the shape {tuple(tensor.shape)}"
            raise refusal("The layers after the head", rule, received)
    if keep and ending.head_activation == "log_sigmoid" and link == "sigmoid":
        tail.append(keras.layers.Activation("log_sigmoid", dtype=tensor.dtype))
        tensor = tail[-1](tensor)
    model = keras.Model(model_inputs(body), tensor, name=body.name)
    return model, read_layers([new, *tail], tuple(tensor.shape))


def _resize(layer: Any, old_units: int, units: int, body: keras.Model) -> Any:
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
    successors: list[tuple[Any, Any]] | None = None,
) -> None:
    """Compiles a model like another model, with losses and metrics that accept its outputs.

    The new optimizer and metrics have fresh state. Warns and leaves the model uncompiled if a loss or metric has no
    match or cannot be rebuilt, and if the other model's class has methods of training that the new model lacks, or that
    may not fit it. Does nothing if the other model is not compiled.

    Args:
        new: the model to compile.
        old: the other model.
        ending: the ending of the new model; None, or an ending that returns "anything", keeps all losses and metrics.
        old_ending: the ending of the old model. If both endings return the same kind, unknown losses and metrics match.
        loss: replacement of the old loss; None matches the old loss.
        hint: remedy that the warning adds if only the outputs are the reason.
        successors: pairs (old variable, new variable) of the replaced layer, which keep their weight decay.
    """
    arguments, own = compile_arguments(old), own_methods(old)
    is_lost = bool(own) and type(new) is not type(old)
    if not is_lost and not (old.compiled and arguments):
        return
    if loss is not None:
        arguments.update(loss=None, loss_weights=None)
    ending = None if ending is not None and ending.returns == "anything" else ending
    is_same = ending is None or (old_ending is not None and _is_same_kind(ending.returns, old_ending.returns))
    try:
        _check_own_methods(own, type(old).__name__, is_lost, is_same)
        for argument, module in ROLES.items():
            arguments[argument] = _match_all(arguments.get(argument), argument, module, ending, is_same)
        arguments["optimizer"] = _copy_optimizer(old.optimizer, new, successors or [])
    except _NoMatchError as error:
        reason, remedy, is_by_output = error.args
        warnings.warn(f"The new model is not compiled: {reason}{hint * is_by_output}. {remedy}", stacklevel=3)
        return
    # The keys are names of the old outputs, which the new model does not have.
    if isinstance(arguments["loss"], dict) and "class_name" not in arguments["loss"]:
        for name in ("loss", "loss_weights"):
            if isinstance(arguments[name], dict):
                arguments[name] = dict(zip(new.output_names, arguments[name].values(), strict=True))
    # The copied optimizer scales the loss if the old optimizer did, and Keras would scale it twice.
    arguments["loss"] = loss or arguments["loss"]
    new.compile(**{**arguments, "jit_compile": old.jit_compile, "auto_scale_loss": False})


def _is_same_kind(new: str, old: str) -> bool:
    """Returns whether a loss of the old outputs accepts the new outputs; log-probabilities are logits of a softmax."""
    return new == old or (old in ("logits", "numbers") and new in ("logits", "log-probabilities"))


class _NoMatchError(Exception):
    """Error for a loss, metric or optimizer that the new model cannot use.

    Arguments are the reason, a remedy, and boolean, whether the new output is the only reason.
    """


def _check_own_methods(own: list[str], kind: str, is_lost: bool, is_same: bool) -> None:
    """Raises an error if the new model lacks methods of the old model's class, or they can be wrong for its outputs."""
    reason = f"{kind} has its own {', '.join(own)}"
    if is_lost:
        remedy = f"Call {kind} with its inputs and outputs, or define the methods in another class, and compile it."
        raise _NoMatchError(f"{reason}, which the new model lacks", remedy, False)
    if "compile" in own:
        raise _NoMatchError(reason, "Call `compile` as for the old model.", False)
    if own and not is_same:
        remedy = "Adapt the class to log-probabilities or logits, and compile the new model."
        raise _NoMatchError(f"{reason}, and the outputs are of another kind", remedy, True)


def _match_all(old: Any, argument: str, module: Any, output: Ending | None, is_same: bool) -> Any:
    """Returns the same structure of losses or metrics that fit the new output, with fresh state."""
    if isinstance(old, dict) and "class_name" not in old:
        return {name: _match_all(part, argument, module, output, is_same) for name, part in old.items()}
    if isinstance(old, list | tuple):
        return [_match_all(part, argument, module, output, is_same) for part in old]
    if old is None:
        return None
    match = old if output is None else find_match(old, output, module, trust_unknown=is_same)
    if match is None and output is not None:
        reason = "a loss or metric of the old model has no known match"
        raise _NoMatchError(reason, misfit_error(argument, old, None, output), True)
    return _rebuild_or_raise(old, argument) if match is old and isinstance(old, keras.metrics.Metric) else match


def _rebuild_or_raise(instance: Any, argument: str, make: Callable[[Any], Any] = rebuild) -> Any:
    """Rebuilds a metric or optimizer with fresh state."""
    try:
        return make(instance)
    except ValueError as error:
        rule = "have a class whose `from_config` accepts its `get_config`"
        remedy = refusal(argument, rule, f"{argument}={spell(instance)}")
        raise _NoMatchError(str(error), str(remedy), False) from error


def _copy_optimizer(optimizer: Any, model: keras.Model, successors: list[tuple[Any, Any]]) -> Any:
    """Returns a copy of an optimizer for a new model, or None without an optimizer."""
    if optimizer is None:
        return None
    known = [*model.variables, *(old for old, _ in successors)]
    exclusions, count, _ = weight_decay_exclusions(getattr(optimizer, "inner_optimizer", optimizer), known)
    if len(exclusions) < count:
        raise _NoMatchError(
            f"it lacks {count - len(exclusions)} of the {count} weights that the optimizer excludes from weight decay",
            "Call `optimizer.exclude_from_weight_decay(...)` with the new weights on a new optimizer, and compile with "
            "it.",
            False,
        )
    return _rebuild_or_raise(optimizer, "optimizer", lambda optimizer: copy_optimizer(optimizer, model, successors))
