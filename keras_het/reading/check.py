"""Checks that the loss and metrics of a compiled model accept its outputs, and recommends others if they do not.

A Dense layer without activation returns logits. A head returns log-probabilities (softmax) or logits (sigmoid). With an
activation, both return probabilities. Losses expect probabilities unless `from_logits=True`. Keras raises no error for
a wrong loss: on two backends it trains a head backwards.
"""

import inspect
import reprlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_het.base.internals import compile_arguments
from keras_het.base.refusal import refusal
from keras_het.reading.data import check_data
from keras_het.reading.ending import Ending, endings
from keras_het.reading.matching import (
    SHAPE_DEPENDENT_NAMES,
    compares_largest,
    find_activation,
    find_label_form,
    find_match,
    find_metric_label_form,
    get_loss,
    is_known,
    resolve_link,
    unwrap_annotators,
)

MODULES = ("keras.losses", "keras.metrics", "keras_het.metrics")
ROLES = {"loss": keras.losses, "metrics": keras.metrics, "weighted_metrics": keras.metrics}
# Recommended losses for the outputs of a link.
DEFAULT_LOSSES = {
    "softmax": (
        "keras.losses.SparseCategoricalCrossentropy(from_logits=True) (or CategoricalCrossentropy for label vectors)"
    ),
    "sigmoid": "keras.losses.BinaryCrossentropy(from_logits=True)",
}
# The same for a `DistributionModel`; "" is a regression.
DISTRIBUTION_LOSSES = {
    "softmax": "keras_het.losses.JointSegmentationCrossentropy({})",
    "sigmoid": "keras_het.losses.JointMultiLabelCrossentropy()",
    "": "keras_het.losses.MultivariateNormalNLL()",
}


def check(model: keras.Model, x: Any = None, y: Any = None) -> None:
    """Raises an error if a loss, a metric or the data do not fit a compiled model.

    Keras accepts a loss that does not match the model's outputs, and can then train the model backwards or not at all.
    `check` names the loss or metric that does not fit, and one that does. It reads models that end in a layer of this
    package, a Dense, a 1x1 Conv2D, a softmax or a sigmoid, with any layers after it that only reshape. It reads
    every form that `compile` accepts: strings, functions, classes and instances, alone or in lists and dicts. A warning
    names what was not checked: other last layers, and losses that are not from Keras or this package. Call or fit a
    subclassed model first. The first check runs its `call` once, with symbolic inputs.

    If you pass data, `check` also finds labels out of range, one-hot vectors instead of integers (or the reverse),
    names, nan and infinity, and wrong shapes and lengths. Labels that the loss ignores (`ignore_class`, and -1 for
    annotators) are accepted. Of a data set, the first four batches are read.

    Args:
        model: a compiled model.
        x: examples: arrays as for `fit`, or a data set of batches (x, y) that can be read more than once; None skips
            the check of examples.
        y: labels as for `fit`; None for a data set, or to skip the check of labels.
    Raises:
        ValueError: if the model is not compiled; if a loss or metric does not accept the outputs; if loss and metric
            need labels of different forms; if the model cannot learn from the data; if a trainable layer follows
            a `NoiseTransition`, or an activation that does not fit the link follows a head.
    Warns:
        UserWarning: if something was not checked; if an example is not finite; if a class has no label; if Keras
            assumes a single label for a string such as "accuracy" while a sigmoid predicts several; if a softmax over
            the same classes stands before a head, which then learns little.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3, name="last")])
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        >>> check(model)
        >>> model.compile(loss="sparse_categorical_crossentropy")
        >>> check(model)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: `loss` must accept logits, which the layer 'last' returns. Use keras.losses.SparseCategorical...
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> check(model, np.zeros((3, 8)), np.array([1, 2, 3]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: `y` must be in [0, 3), the classes of the model (use y - 1 if your labels start at 1). Receiv...
    """
    if texts := collect_warnings(model, x, y):
        warnings.warn(" ".join(texts), stacklevel=2)


def collect_warnings(model: keras.Model, x: Any = None, y: Any = None) -> list[str]:
    """Raises the errors of `check`, and returns the texts of its warnings."""
    if not getattr(model, "compiled", False):
        name = getattr(model, "name", model)
        raise refusal("model", "be compiled: call model.compile(...)", f"model={name!r}, not compiled")
    outputs, arguments = endings(model), compile_arguments(model)
    _check_layers(outputs)
    losses = _split(arguments.get("loss"), outputs)
    outputs = [resolve_link(*pair) for pair in zip(outputs, losses, strict=True)]
    pairs = [(argument, *pair) for argument in ROLES for pair in _pairs(arguments.get(argument), outputs)]
    is_checked = [_check_identifier(*pair) for pair in pairs]
    for argument in ("metrics", "weighted_metrics"):
        for row in zip(_split(arguments.get(argument), outputs), losses, outputs, strict=True):
            _check_metric_labels(argument, *row)
    texts = _explain_unchecked(model, outputs, losses, any(is_checked))
    texts += [text for pair in pairs for text in _warn_single_label(*pair)]
    return texts + check_data(model, x, y, outputs, losses)


def _check_layers(outputs: list[Ending]) -> None:
    """Raises an error for a misplaced layer, and warns of a softmax before a head."""
    if error := next((output.error for output in outputs if output.error), ""):
        raise ValueError(error)
    for output in outputs:
        if output.warning:
            warnings.warn(output.warning, stacklevel=4)


def _check_identifier(argument: str, identifier: Any, output: Ending) -> bool:
    """Raises an error for a loss or metric that does not fit; returns whether it was checked."""
    is_distribution = output.is_distribution or output.returns == "distributions"
    if is_distribution and argument == "loss":
        return check_distribution_loss(identifier, output)
    if output.returns == "distributions":
        rule = f"belong to a keras_het.models.DistributionModel, because {output.source} returns a packed distribution"
        raise refusal(argument, rule, f"{argument}={spell(identifier)}")
    is_untyped = output.returns == "numbers"
    if output.returns == "anything" or (is_untyped and argument != "loss"):
        return False
    match = find_match(identifier, output, ROLES[argument])
    if match is not identifier:
        if is_untyped:  # the number of units decides the link
            output = output._replace(returns="logits", link="sigmoid" if output.units == 1 else "softmax")
        raise ValueError(misfit_error(argument, identifier, match, output))
    if output.annotators and unwrap_annotators(identifier) is None:
        _check_missing(argument, identifier, output)
    return is_known(identifier, ROLES[argument])


def _check_metric_labels(argument: str, identifiers: list, losses: list, output: Ending) -> None:
    """Raises an error for a metric of vectors beside a loss of integers, which Keras broadcasts, or the reverse.

    Also for an accuracy of the largest output if there is one output, because it is a constant.
    """
    for identifier in identifiers if (output.units, output.link) == (1, "sigmoid") else ():
        if compares_largest(identifier):
            match = spell(find_match("binary_accuracy", output, keras.metrics))
            rule = f"accept one class, which {output.source} predicts: compare it with a threshold. Use {match}"
            raise refusal(argument, rule, f"{argument}={spell(identifier)}")
    forms = {find_label_form(loss, output.units) for loss in losses}
    if output.units < 2 or forms not in ({"integers"}, {"vectors"}):
        return
    for identifier in identifiers:
        if find_metric_label_form(identifier) not in ("", *forms):
            form, remedy = "label vectors", "'accuracy'"
            if forms == {"integers"}:
                form, remedy = "integers", "'accuracy', or to_categorical(y) and a loss of label vectors"
            rule = f"accept {form}, as loss={spell(losses[0])} does. Use {remedy}"
            raise refusal(argument, rule, f"{argument}={spell(identifier)}")


def _warn_single_label(argument: str, identifier: Any, output: Ending) -> list[str]:
    """Returns the warning about a string that Keras resolves to a single label, after a sigmoid of several classes."""
    name = identifier.lower() if isinstance(identifier, str) else ""
    if name not in SHAPE_DEPENDENT_NAMES or output.link != "sigmoid" or output.units == 1:
        return []
    binary = SHAPE_DEPENDENT_NAMES[name]
    match, single = find_match(binary, output, ROLES[argument]), binary.replace("binary", "categorical")
    text = f"For {argument}={identifier!r} Keras assumes one label per example, but {output.source} predicts several."
    return [f"{text} Use {spell(match)}, or {single!r} if each example has one label."]


def check_distribution_loss(identifier: Any, output: Ending) -> bool:
    """Raises an error for a loss that does not accept the distribution of a head; returns whether the loss is known."""
    if find_match(identifier, output._replace(returns="distributions")) is None:
        match = DISTRIBUTION_LOSSES[output.link].format(output.units)
        rule = f"accept distributions, which {output.source} passes to its loss. Use {match}"
        raise refusal("loss", rule, f"loss={spell(identifier)}")
    if not is_known(identifier):
        return False
    classes = getattr(get_loss(identifier), "num_classes", output.units)
    if classes != output.units:
        rule = f"have num_classes={output.units}, the units of {output.source}"
        raise refusal("loss", rule, f"loss={spell(identifier)}")
    return True


def _explain_unchecked(model: keras.Model, outputs: list, losses: list[list], is_any_checked: bool) -> list[str]:
    """Returns the warning about unchecked parts of a model, or []."""
    reasons = [f"the outputs of {output.source} are unknown" for output in outputs if output.returns == "anything"]
    if not outputs:
        reasons = ["its layers cannot be read (call it once if it was never called)"]
    reasons += [
        f"the loss {spell(identifier)} is not from Keras or keras_het"
        for output, output_losses in zip(outputs, losses, strict=True)
        for identifier in output_losses
        if output.returns != "anything" and not is_known(identifier)
    ]
    if not reasons and not is_any_checked:
        reasons = ["it has no loss"]
    text = f"The model {model.name!r} was {'only partly' if is_any_checked else 'not'} checked"
    return [f"{text}: {'; '.join(reasons)}."] if reasons else []


def _check_missing(argument: str, identifier: Any, output: Ending) -> None:
    """Raises an error for a plain loss or metric of several annotators, which would count missing labels as errors."""
    kind = "losses.AnnotatorsLoss()" if argument == "loss" else "metrics.AnnotatorsMetric(...)"
    rule = f"accept the labels of {output.annotators} annotators, with -1 for missing. Use keras_het.{kind}"
    raise refusal(argument, rule, f"{argument}={spell(identifier)}")


def _pairs(argument: Any, outputs: list[Ending]) -> Iterator[tuple[Any, Ending]]:
    """Yields every (loss or metric, output)."""
    for output, identifiers in zip(outputs, _split(argument, outputs), strict=True):
        for identifier in identifiers:
            yield identifier, output


def _split(argument: Any, outputs: list[Ending]) -> list[list]:
    """Splits an argument of `compile` into the losses or metrics of each output."""
    is_named = isinstance(argument, dict) and "class_name" not in argument
    rows = []
    for index, output in enumerate(outputs):
        part = argument
        if len(outputs) > 1 and is_named:
            part = [value for name, value in argument.items() if name in output.names]
        elif len(outputs) > 1 and isinstance(argument, list | tuple):
            part = argument[index] if len(argument) == len(outputs) else None
        rows.append(list(leaves(part)))
    return rows


def leaves(argument: Any) -> Iterator[Any]:
    """Yields the identifiers in nested lists and dicts; a dict with a `class_name` is one identifier."""
    if isinstance(argument, dict) and "class_name" not in argument:
        argument = list(argument.values())
    if isinstance(argument, list | tuple):
        for part in argument:
            yield from leaves(part)
    elif argument is not None:
        yield argument


def misfit_error(argument: str, identifier: Any, match: Any, output: Ending) -> str:
    """Returns the error text for a loss or metric that does not fit, with a remedy."""
    start = f"`{argument}` must accept {output.returns}, which {output.source} returns."
    if output.returns == "probabilities" and match is None:
        match = ROLES[argument].BinaryCrossentropy()
    if match is not None:
        remedies = [f"use {spell(match)}"]
        remedies += [output.activation_remedy] if _accepts_probabilities(argument, identifier, output) else []
    else:
        remedies = [f"use {DEFAULT_LOSSES[output.link]}"] if argument == "loss" else []
        if (output.link, find_activation(identifier, ROLES[argument])) == ("softmax", "sigmoid"):
            change = 'give the head link="sigmoid"' if output.is_head else "replace the softmax by a sigmoid"
            remedies.append(f"{change} if an example can have several labels")
        else:
            role = "loss" if argument == "loss" else "metric"
            remedies.append(f"{output.activation_remedy} to use a {role} of probabilities")
    remedy = ", or ".join(remedies)
    return f"{start} {remedy[0].upper()}{remedy[1:]}. Received: {argument}={spell(identifier)}"


def _accepts_probabilities(argument: str, identifier: Any, output: Ending) -> bool:
    """Returns whether a loss or metric would fit a head if the head had its activation."""
    is_log = output.is_head and output.returns in ("log-probabilities", "logits") and output.transition is None
    return is_log and find_match(identifier, output._replace(returns="probabilities"), ROLES[argument]) is identifier


def spell(identifier: Any) -> str:
    """Returns a loss or metric as Python code, without arguments at their defaults."""
    if isinstance(identifier, str):
        return repr(identifier)
    kind = identifier if inspect.isclass(identifier) or inspect.isfunction(identifier) else type(identifier)
    rooms = [room for room in (*MODULES, ".".join(kind.__module__.split(".")[:2])) if room.startswith("keras")]
    public = [room for room in rooms if getattr(sys.modules.get(room), kind.__name__, None) is kind]
    name = f"{public[0]}.{kind.__name__}" if public else kind.__name__
    if kind is identifier:
        return name
    if isinstance(identifier, dict):
        return reprlib.repr(identifier)
    # All constructors, because losses of this package pass `from_logits` to their base class.
    constructors = [vars(base)["__init__"] for base in reversed(type(identifier).__mro__) if "__init__" in vars(base)]
    parameters = {name: p for init in constructors for name, p in inspect.signature(init).parameters.items()}
    try:
        config = {
            name: value
            for name, value in identifier.get_config().items()
            if name in parameters and name not in ("name", "dtype")
        }
    except Exception:  # else an error of the caller's class would hide the error to report
        return f"{name}(...)"
    if config.get("thresholds") is not None:
        config.pop("num_thresholds", None)  # AUC refuses both arguments: the recommended code would not run
    arguments = [
        f"{name}={_spell_value(value)}"
        for name, value in config.items()
        if not np.array_equal(value, parameters[name].default)
    ]
    return f"{name}({', '.join(arguments)})"


def _spell_value(value: Any) -> str:
    """Returns a value as Python code, or "..." for a long value, such as a matrix."""
    text = repr(np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic | list | tuple) else value)
    return text if len(text) <= 60 else "..."
