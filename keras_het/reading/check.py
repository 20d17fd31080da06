"""Checks that a model was compiled with a loss and metrics that take its outputs, and names ones that do.

A Dense layer without activation returns logits, and a head log-probabilities (softmax) or logits (sigmoid). With an
activation both return probabilities. Losses take probabilities unless they are told otherwise. A wrong loss raises no
error: on two backends it trains a head backwards.
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
    BY_SHAPE,
    activation_for,
    is_known,
    labels_for,
    labels_of_metric,
    leaves_out_missing,
    loss_of,
    matching,
    of_annotators,
    with_link,
)

MODULES = ("keras.losses", "keras.metrics", "keras_het.metrics")
ROLES = {"loss": keras.losses, "metrics": keras.metrics, "weighted_metrics": keras.metrics}
# The loss that an error recommends for an activation, if none that matches the given one is known.
FITTING = {
    "softmax": (
        "keras.losses.SparseCategoricalCrossentropy(from_logits=True) (or CategoricalCrossentropy, for label vectors)"
    ),
    "sigmoid": "keras.losses.BinaryCrossentropy(from_logits=True)",
}
# The same for the losses of a `DistributionModel`; "" is a regression.
OF_DISTRIBUTIONS = {
    "softmax": "keras_het.losses.JointSegmentationCrossentropy({})",
    "sigmoid": "keras_het.losses.JointMultiLabelCrossentropy()",
    "": "keras_het.losses.MultivariateNormalNLL()",
}


def check(model: keras.Model, x: Any = None, y: Any = None) -> None:
    """Raises an error if a loss or metric does not take the outputs of its model, or if data do not fit the two.

    A wrong one raises no error in Keras, and may train the model backwards, or not at all. Models are judged whose last
    layer is one of this package, a Dense, a 1x1 Conv2D, or a softmax or sigmoid; layers that only reshape may follow.
    All forms that `compile` takes are read: strings, functions, classes and instances, alone or in lists and dicts. A
    warning says what was not checked: other last layers, and losses that are neither of Keras nor of this package. A
    subclassed model is judged once it was called or fitted: the first check runs its `call` once, with symbolic inputs.

    Data, if they are given, are judged by the model and its losses: labels outside the classes, one-hot vectors where
    the loss takes integers and the reverse, names, nan and infinity, shapes and lengths. Labels that a loss leaves out
    (`ignore_class`, and -1 of an annotator) may stand in them. Of a data set the first four batches are read.

    Args:
        model: a compiled model.
        x: examples: arrays as for `fit`, or a data set of batches (x, y) that can be read more than once; None for no
            check of examples.
        y: labels as for `fit`; None for a data set, or for no check of labels.
    Raises:
        ValueError: if the model is not compiled, if a loss or metric is wrong (the error names a remedy), if a metric
            takes labels of another form than the loss, or if the model cannot learn from the data. Also if a layer that
            learns, such as a head, stands behind a `NoiseTransition`, if an activation of the other link stands behind
            a head, or if a loss that remembers something is attached to another model.
    Warns:
        UserWarning: if something was not checked, and why; if an example is not finite; if a class has no label; if
            Keras takes a string such as "accuracy" for one label and a sigmoid can give several; and if a softmax of as
            many classes stands before a head, which learns little from it.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3, name="last")])
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        >>> check(model)
        >>> model.compile(loss="sparse_categorical_crossentropy")
        >>> check(model)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: `loss` must take logits: keras.losses.SparseCategoricalCrossentropy(from_logits=True), for the...
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> check(model, np.zeros((3, 8)), np.array([1, 2, 3]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: `y` must be in [0, 3), the classes of the model (y - 1, for labels that begin with 1). Receiv...
    """
    if open_questions := judge(model, x, y):
        warnings.warn(" ".join(open_questions), stacklevel=2)


def judge(model: keras.Model, x: Any = None, y: Any = None) -> list[str]:
    """Raises the errors of `check`, and returns what `check` warns of, in sentences; for callers that run it often.

    Args:
        model: argument of `check`.
        x: argument of `check`.
        y: argument of `check`.
    """
    if not getattr(model, "compiled", False):
        rule = "be compiled: model.compile(...)"
        raise refusal("model", rule, f"model={getattr(model, 'name', model)!r}, which is not")
    outputs, arguments = endings(model), compile_arguments(model)
    _check_layers(outputs)
    losses = _of_each(arguments.get("loss"), outputs)
    outputs = [with_link(output, own) for output, own in zip(outputs, losses, strict=True)]
    pairs = [(argument, *pair) for argument in ROLES for pair in _pairs(arguments.get(argument), outputs)]
    judged = [_judged(*pair) for pair in pairs]
    for argument in ("metrics", "weighted_metrics"):
        for own, output, given in zip(losses, outputs, _of_each(arguments.get(argument), outputs), strict=True):
            _check_labels_of_metrics(argument, given, own, output)
    doubts = [doubt for pair in pairs for doubt in _warn_single_label(*pair)]
    return _not_checked(model, outputs, losses, any(judged)) + doubts + check_data(model, x, y, outputs, losses)


def _check_layers(outputs: list[Ending]) -> None:
    """Raises an error for layers that must not stand behind others, and warns of a softmax before a head."""
    if fault := next((output.fault for output in outputs if output.fault), ""):
        raise ValueError(fault)
    for output in outputs:
        if output.doubt:
            warnings.warn(output.doubt, stacklevel=4)


def _judged(argument: str, identifier: Any, output: Ending) -> bool:
    """Raises an error for a loss or metric that does not fit; returns whether it could be judged."""
    of_distribution = output.of_distribution or output.returns == "distributions"
    if of_distribution and argument == "loss":
        return check_loss_of_distribution(identifier, output)
    if output.returns == "distributions":
        rule = (
            f"be those of a keras_het.models.DistributionModel, for {output.source} returns a distribution in a tensor"
        )
        raise refusal(argument, rule, f"{argument}={spelled(identifier)} of another model")
    numbers = output.returns == "numbers"
    if output.returns == "anything" or (numbers and argument != "loss"):
        return False
    fitting = matching(identifier, output, ROLES[argument])
    if fitting is not identifier:
        if numbers:  # no link is known: that of the classes
            output = output._replace(returns="logits", link="sigmoid" if output.units == 1 else "softmax")
        raise ValueError(advice(argument, identifier, fitting, output))
    if output.annotators and of_annotators(identifier) is None:
        _check_missing(argument, identifier, output)
    return is_known(identifier, ROLES[argument])


def _check_labels_of_metrics(argument: str, given: list, losses: list, output: Ending) -> None:
    """Raises an error for a metric of vectors beside a loss of integers, which Keras broadcasts, or the reverse."""
    forms = {labels_for(loss, output.units) for loss in losses}
    if output.units < 2 or forms not in ({"integers"}, {"vectors"}):
        return
    for identifier in given:
        if labels_of_metric(identifier) not in ("", *forms):
            form, remedy = "label vectors", "'accuracy' takes both forms"
            if forms == {"integers"}:
                form, remedy = "integers", f"{remedy}; others need to_categorical(y) and a loss of vectors"
            rule = f"take {form}, the labels of loss={spelled(losses[0])} ({remedy})"
            raise refusal(argument, rule, f"{argument}={spelled(identifier)}")


def _warn_single_label(argument: str, identifier: Any, output: Ending) -> list[str]:
    """Returns the warning about a string that Keras reads as that of one label, behind a sigmoid of several classes."""
    name = identifier.lower() if isinstance(identifier, str) else ""
    if name not in BY_SHAPE or output.link != "sigmoid" or output.units == 1:
        return []
    each, one = matching(BY_SHAPE[name], output, ROLES[argument]), BY_SHAPE[name].replace("binary", "categorical")
    text = f"Keras takes {argument}={identifier!r} for one label of each example, but {output.source} can give several."
    return [f"{text} Use {spelled(each)}, or {one!r} if each example has one label."]


def check_loss_of_distribution(identifier: Any, output: Ending) -> bool:
    """Raises an error for a loss that does not take the distribution of a head; returns whether the loss is known.

    Args:
        identifier: any identifier of a loss.
        output: output of a `DistributionModel`, or of the head itself.
    """
    if matching(identifier, output._replace(returns="distributions")) is None:
        fitting = OF_DISTRIBUTIONS[output.link].format(output.units)
        rule = f"take distributions: {fitting}, for {output.source} gives its loss the distribution of a head"
        raise refusal("loss", rule, f"loss={spelled(identifier)}")
    if not is_known(identifier):
        return False
    classes = getattr(loss_of(identifier), "num_classes", output.units)
    if classes != output.units:
        rule = f"have num_classes={output.units}, the units of {output.source}"
        raise refusal("loss", rule, f"loss={spelled(identifier)}")
    return True


def _not_checked(model: keras.Model, outputs: list, losses: list[list], any_judged: bool) -> list[str]:
    """Returns what was not checked, in sentences; nothing if all was."""
    reasons = [f"the outputs of {output.source} are not known" for output in outputs if output.returns == "anything"]
    if not outputs:
        reasons = ["its layers cannot be read (call it once, if it was not called yet)"]
    reasons += [
        f"the loss {spelled(identifier)} is neither of Keras nor of keras_het"
        for output, own in zip(outputs, losses, strict=True)
        for identifier in own
        if output.returns != "anything" and not is_known(identifier)
    ]
    if not reasons and not any_judged:
        reasons = ["it has no loss"]
    extent = "Not all" if any_judged else "Nothing"
    return [f"{extent} was checked of the model {model.name!r}: {'; '.join(reasons)}."] if reasons else []


def _check_missing(argument: str, identifier: Any, output: Ending) -> None:
    """Raises an error for a plain loss or metric of several annotators' labels: it takes missing labels as wrong."""
    if output.transition.apply_at_inference and leaves_out_missing(identifier):
        return
    kind = "losses.AnnotatorsLoss()" if argument == "loss" else "metrics.AnnotatorsMetric(...)"
    rule = f"take the labels of {output.annotators} annotators, with -1 where one is missing: keras_het.{kind}"
    raise ValueError(
        f"`{argument}` must {rule}, for {output.source} has an axis of them. Received: {argument}={spelled(identifier)}"
    )


def _pairs(given: Any, outputs: list[Ending]) -> Iterator[tuple[Any, Ending]]:
    """Yields each loss or metric with each output that it is for."""
    for output, own in zip(outputs, _of_each(given, outputs), strict=True):
        for identifier in own:
            yield identifier, output


def _of_each(given: Any, outputs: list[Ending]) -> list[list]:
    """Returns the losses or metrics of each output."""
    by_name = isinstance(given, dict) and "class_name" not in given
    in_order = isinstance(given, list | tuple)
    found = []
    for index, output in enumerate(outputs):
        part = given
        if len(outputs) > 1 and by_name:
            part = [value for name, value in given.items() if name in output.names]
        elif len(outputs) > 1 and in_order:
            part = given[index] if len(given) == len(outputs) else None
        found.append(list(leaves(part)))
    return found


def leaves(given: Any) -> Iterator[Any]:
    """Yields the identifiers in nested lists and dicts; a dict with a `class_name` is one."""
    if isinstance(given, dict) and "class_name" not in given:
        given = list(given.values())
    if isinstance(given, list | tuple):
        for part in given:
            yield from leaves(part)
    elif given is not None:
        yield given


def advice(argument: str, identifier: Any, fitting: Any, output: Ending) -> str:
    """Returns the error text for a loss or metric that does not fit, with a remedy."""
    received, role = f"Received: {argument}={spelled(identifier)}", "loss" if argument == "loss" else "metric"
    if output.returns == "probabilities" and fitting is None:
        fitting = ROLES[argument].BinaryCrossentropy()
    if fitting is not None:
        remedy = f"; or {output.activation_remedy}" if _takes_probabilities(argument, identifier, output) else ""
        rule = f"take {output.returns}: {spelled(fitting)}, for {output.source} returns them"
        return f"`{argument}` must {rule}{remedy}. {received}"
    like = f", as {FITTING[output.link]}" if argument == "loss" else ""
    behind = f" {output.activation_remedy}, for a {role} of probabilities"
    if (output.link, activation_for(identifier, ROLES[argument])) == ("softmax", "sigmoid"):
        several = 'give the head link="sigmoid"' if output.is_head else "make it a sigmoid"
        behind = f", if an example may have several labels, {several}"
    return f"`{argument}` must take {output.returns}{like}, for {output.source} returns them; or{behind}. {received}"


def _takes_probabilities(argument: str, identifier: Any, output: Ending) -> bool:
    """Returns whether a loss or metric would fit a head if the head had its activation."""
    is_log = output.is_head and output.returns in ("log-probabilities", "logits") and output.transition is None
    return is_log and matching(identifier, output._replace(returns="probabilities"), ROLES[argument]) is identifier


def spelled(identifier: Any) -> str:
    """Returns a loss or metric as it is written in a program, with the arguments that are not its defaults."""
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
    # A loss of the package passes `from_logits` on to its base class.
    constructors = [vars(base)["__init__"] for base in reversed(type(identifier).__mro__) if "__init__" in vars(base)]
    parameters = {name: p for each in constructors for name, p in inspect.signature(each).parameters.items()}
    try:
        config = {
            name: value
            for name, value in identifier.get_config().items()
            if name in parameters and name not in ("name", "dtype")
        }
    except Exception:  # else an error of the caller's own class would hide the one to report
        return f"{name}(...)"
    if config.get("thresholds") is not None:
        config.pop("num_thresholds", None)  # an AUC takes only one of them: the advice would not run
    other = [
        f"{name}={_short(value)}"
        for name, value in config.items()
        if not np.array_equal(value, parameters[name].default)
    ]
    return f"{name}({', '.join(other)})"


def _short(value: Any) -> str:
    """Returns a value as it is written in a program, or three dots for a long one, such as a matrix."""
    text = repr(np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic | list | tuple) else value)
    return text if len(text) <= 60 else "..."
