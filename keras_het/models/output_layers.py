"""End of a converted model: the layers after its head, and its loss, metrics and optimizer."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras

from keras_het.base.graph import model_inputs, own_methods
from keras_het.base.internals import compile_arguments, weight_decay_exclusions
from keras_het.base.rebuild import copy_optimizer, rebuild
from keras_het.base.refusal import refusal
from keras_het.criteria.criterion import find_criteria
from keras_het.reading.check import ROLES, misfit_error, spell
from keras_het.reading.ending import Ending, read_layers, units_of

METRICS = ("metrics", "weighted_metrics")


def unused_name(name: str, body: keras.Model) -> str:
    """Returns the name, with a number if a layer of the model has the same name."""
    used_names = {layer.name for layer in body.layers}
    candidates = [name, *(f"{name}_{number}" for number in range(1, len(used_names) + 1))]
    return next(candidate for candidate in candidates if candidate not in used_names)


def add_end(body: keras.Model, new: Any, ending: Ending, link: str, keep: bool) -> tuple[keras.Model, Ending]:
    """Adds a new head and rebuilt layers after it to a body; returns the model and its `Ending`."""
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
    config = layer.get_config()
    shape = config.get("target_shape", (None,))
    if shape[-1] == old_units:
        config["target_shape"] = (*shape[:-1], units)
    return type(layer).from_config({**config, "name": unused_name(layer.name, body)})


def compile_like(
    new: keras.Model,
    old: keras.Model,
    ending: Ending | None = None,
    old_ending: Ending | None = None,
    *,
    loss: keras.losses.Loss | None = None,
    hint: str = "",
    successors: Sequence[tuple[Any, Any]] = (),
) -> None:
    """Compiles a model like another model, with fresh metrics and a fresh optimizer.

    Warns and leaves the model uncompiled if a metric or the optimizer cannot be rebuilt, if the outputs are of another
    kind and a loss or metric is not known to have the same value, or if the other model's class has methods of training
    that the new model lacks, or that may not fit it. Does nothing if the other model is not compiled.

    Without `ending`, the outputs are of the same kind. `loss` replaces the old loss, and `hint` is a remedy for other
    outputs. `successors` are pairs (old variable, new variable) of the replaced layer, which keep their weight decay.
    """
    arguments, own = compile_arguments(old), own_methods(old)
    if not _lost_methods(new, old, own) and not (old.compiled and arguments):
        return
    if loss is not None:
        arguments |= {"loss": None, "loss_weights": None}
    try:
        is_same = ending is None or old_ending is None or _is_same_kind(ending, old_ending)
        _check_own_methods(new, old, own, is_same, hint)
        if ending is not None and not is_same:
            _check_kept(arguments, ending, hint)
        elif ending is not None:
            _check_loss(arguments["loss"], ending)
        for name in METRICS:
            arguments[name] = keras.tree.map_structure(_renew, arguments.get(name))
        arguments["optimizer"] = _copy_optimizer(old.optimizer, new, successors)
    except ValueError as error:
        warnings.warn(f"The new model is not compiled: {error}. Call its `compile`.", stacklevel=3)
        return
    keeps_keys = isinstance(getattr(new, "output", None), dict)
    for name in ("loss", "loss_weights", *METRICS):  # the keys are names of the old output
        value = arguments.get(name)
        if isinstance(value, dict) and value and "class_name" not in value and not keeps_keys:
            arguments[name] = dict(zip(new.output_names, value.values(), strict=True))
    # The copied optimizer scales the loss if the old optimizer did, and Keras would scale it twice.
    arguments |= {"loss": loss or arguments["loss"], "jit_compile": old.jit_compile, "auto_scale_loss": False}
    new.compile(**arguments)


def _lost_methods(new: keras.Model, old: keras.Model, own: list[str]) -> list[str]:
    return [name for name in own if type(new) is not type(old) or name in vars(old)]


def _check_own_methods(new: keras.Model, old: keras.Model, own: list[str], is_same: bool, hint: str) -> None:
    """Raises an error if the new model lacks training methods of the old model, or they can be wrong for it."""
    kind = type(old).__name__
    reason = f"{kind} has its own {', '.join(own)}"
    if _lost_methods(new, old, own):
        is_distribution = not isinstance(old, type(new)) and type(new) is not keras.Model
        place = f"a subclass of {type(new).__name__}" if is_distribution else "a class without its own constructor"
        remedy = f"Define the methods in {place}, and call it with the inputs and outputs of the new model"
        raise ValueError(f"{reason}, which the new model lacks. {remedy}")
    kinds = [each for each in type(old).__mro__ if own and not each.__module__.startswith("keras.")]
    if missing := sorted({name for each in kinds for name in vars(each)} & (vars(old).keys() - vars(new).keys())):
        raise ValueError(f"{reason}, and the new model has the defaults of {', '.join(missing)}. Set them")
    if "compile" in own:
        raise ValueError(reason)
    if own and not is_same:
        remedy = "Adapt the class to log-probabilities or logits"
        raise ValueError(f"{reason}, and the outputs are of another kind{hint}. {remedy}")


def _is_same_kind(new: Ending, old: Ending) -> bool:
    """True if losses and metrics keep their meaning: outputs of one kind and link."""
    is_same = new.returns == old.returns or (new.returns, old.returns) == ("logits", "numbers")
    return is_same and old.link in ("", new.link)


def _check_kept(arguments: dict[str, Any], output: Ending, hint: str) -> None:
    """Raises an error for a loss or metric that is not known to have the same value for the new outputs.

    The logits of a Dense layer become log-probabilities, which are shifted: a margin or a user's loss can differ.
    """
    for name, module in ROLES.items():
        for criterion in find_criteria(arguments.get(name), module):
            match, is_shifted = criterion.match(output), output.returns != "probabilities"
            is_same = criterion.ignores_shift if is_shifted else criterion.is_known
            if match is criterion.identifier and is_same:
                continue
            if match is criterion.identifier and not is_shifted:  # it fits, but nothing is known of it
                text = f"`{name}` may have another value. Received: {name}={spell(match)}"
            else:
                text = misfit_error(name, criterion, None if match is criterion.identifier else match, output)
            raise ValueError(f"a loss or metric of the old model has no known match{hint}. {text}")


def _check_loss(loss: Any, output: Ending) -> None:
    """Raises an error for a loss that cannot read the new outputs; warns of one that misreads the old ones too."""
    for criterion in find_criteria(loss):
        match = criterion.match(output)
        if match is None:
            raise ValueError(misfit_error("loss", criterion, None, output))
        if match is not criterion.identifier:
            text = misfit_error("loss", criterion, match, output)
            warnings.warn(f"The new model keeps the loss of the old one, but {text}", stacklevel=4)


def _renew(metric: Any) -> Any:
    return rebuild(metric) if isinstance(metric, keras.metrics.Metric) else metric


def _copy_optimizer(optimizer: Any, model: keras.Model, successors: Sequence[tuple[Any, Any]]) -> Any:
    if optimizer is None:
        return None
    known = [*model.variables, *(old for old, _ in successors)]
    exclusions, count, _ = weight_decay_exclusions(getattr(optimizer, "inner_optimizer", optimizer), known)
    if len(exclusions) < count:
        raise ValueError(
            f"it lacks {count - len(exclusions)} of the {count} weights that the optimizer excludes from weight decay. "
            "Pass the new weights to `exclude_from_weight_decay` of a new optimizer"
        )
    return copy_optimizer(optimizer, model, successors)
