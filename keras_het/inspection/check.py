"""Checks that a model was compiled with a loss and metrics that take its heads' outputs, and names ones that do.

A head returns log-probabilities (softmax) or logits (sigmoid). Keras' losses take probabilities unless they are told
otherwise. A wrong loss raises no error: on two backends it trains the model backwards.
"""

import functools
import inspect
import reprlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_het.base.internals import compile_arguments
from keras_het.inspection.outputs import Output, found_in
from keras_het.inspection.rules import MODULES, activation_for, counterpart, leaves_out_missing, of_annotators
from keras_het.losses.state import StatefulCrossentropy

ROLES = {"loss": keras.losses, "metrics": keras.metrics, "weighted_metrics": keras.metrics}
# The loss that an error recommends for an activation, if the given loss has no counterpart.
FITTING = {
    "softmax": (
        "keras.losses.SparseCategoricalCrossentropy(from_logits=True) (or CategoricalCrossentropy, for label vectors)"
    ),
    "sigmoid": "keras.losses.BinaryCrossentropy(from_logits=True)",
}


def check(model: keras.Model) -> None:
    """Raises an error if a loss or metric that a model was compiled with does not take the outputs of its heads.

    A wrong one raises no error in Keras, and may train the model backwards. All forms that `compile` takes are read:
    strings, functions, classes and instances, alone or in lists and dicts. Losses and metrics that are neither of Keras
    nor of this package are not judged. Outputs that other layers change are not judged either. A subclassed model is
    judged once it was called or fitted: the first check runs its `call` once, with symbolic inputs.

    Args:
        model: a compiled model.
    Raises:
        ValueError: if the model is not compiled, or if a loss or metric is wrong (the error names a remedy). Also if a
            layer that learns, such as a head, stands behind a `NoiseTransition`, if an activation of the other link
            stands behind a head, or if a loss that remembers something is attached to another model.
    Warns:
        UserWarning: if a softmax of as many classes stands before a head, which learns little from it.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(3, name="head")])
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        >>> check(model)
        >>> model.compile(loss="kl_divergence")
        >>> check(model)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: `loss` must take log-probabilities, as keras.losses.SparseCategoricalCrossentropy(...
    """
    if not getattr(model, "compiled", False):
        raise ValueError(
            f"`model` must be compiled: model.compile(...). Received: model={getattr(model, 'name', model)!r}, which "
            "is not"
        )
    outputs, followed, misfit = found_in(model)
    if followed is not None:
        raise ValueError(
            f"The layer {followed[0]!r} must be the last, but for activations and layers that reshape: it gives the "
            f"log-probabilities of the noisy labels, which the loss takes. Received: {followed[1]}, behind it"
        )
    if misfit is not None:
        output, activation = misfit
        rule = (
            f"The activation behind {output.source} must be {output.activation_layer}, or none, for it returns "
            f"{output.returns}"
        )
        raise ValueError(f"{rule}. Received: {activation!r}")
    for _, found in outputs:
        if found is not None and found.softmax_before:
            warnings.warn(
                f"The layer {found.softmax_before!r} before {found.source} is a softmax of as many classes. A head "
                "stands in the place of that layer: it takes features, and from a softmax it learns little. Remove the "
                "layer or its softmax.",
                stacklevel=2,
            )
    arguments = compile_arguments(model)
    for loss in leaves(arguments.get("loss")):
        if isinstance(loss, StatefulCrossentropy):
            loss.check_owner(model)
    for argument, module in ROLES.items():
        for identifier, output in _pairs(arguments.get(argument), outputs):
            fitting = counterpart(identifier, output, module)
            if fitting is not identifier:
                raise ValueError(advice(argument, identifier, fitting, output))
            if output.annotators and of_annotators(identifier) is None:
                _check_missing(argument, identifier, output)


def _check_missing(argument: str, identifier: Any, output: Output) -> None:
    """Raises an error for a plain loss or metric of several annotators' labels: it takes missing labels as wrong."""
    if output.always and leaves_out_missing(identifier):
        return
    kind = "losses.AnnotatorsLoss()" if argument == "loss" else "metrics.AnnotatorsMetric(...)"
    rule = f"take the labels of {output.annotators} annotators, with -1 where one is missing: keras_het.{kind}"
    raise ValueError(
        f"`{argument}` must {rule}, for {output.source} has an axis of them. Received: {argument}={spelled(identifier)}"
    )


def _pairs(given: Any, outputs: list[tuple[set, Output | None]]) -> Iterator[tuple[Any, Output]]:
    """Yields each loss or metric with each head's output that it is for."""
    if given is None:
        return
    by_name = isinstance(given, dict) and "class_name" not in given
    for index, (names, output) in enumerate(outputs):
        if output is None:
            continue
        if len(outputs) == 1:
            part = given
        elif by_name:
            part = [value for name, value in given.items() if name in names]
        elif isinstance(given, list | tuple):
            part = given[index] if len(given) == len(outputs) else None
        else:
            part = given
        for identifier in leaves(part):
            yield identifier, output


def leaves(given: Any) -> Iterator[Any]:
    """Yields the identifiers in nested lists and dicts; a dict with a `class_name` is one."""
    if isinstance(given, dict) and "class_name" not in given:
        given = list(given.values())
    if isinstance(given, list | tuple):
        for part in given:
            yield from leaves(part)
    elif given is not None:
        yield given


def advice(argument: str, identifier: Any, fitting: Any, output: Output) -> str:
    """The error text for a loss or metric that does not fit, with a remedy."""
    received = f"Received: {argument}={spelled(identifier)}"
    if output.returns == "probabilities":
        mend = "keras.losses.BinaryCrossentropy()" if fitting is None else spelled(fitting)
        return (
            f"`{argument}` must take probabilities: {mend}, for an activation behind {output.source} makes them. "
            f"{received}"
        )
    if fitting is not None:
        return (
            f"`{argument}` must take {output.returns}: {spelled(fitting)}, for {output.source} returns them. {received}"
        )
    like = f", as {FITTING[output.activation]}" if argument == "loss" else ""
    behind = (
        f"or put {output.activation_layer} behind it, for a {'loss' if argument == 'loss' else 'metric'} of "
        "probabilities"
    )
    if (output.activation, activation_for(identifier, ROLES[argument])) == ("softmax", "sigmoid"):
        behind = 'or, if an example may have several labels, give the head link="sigmoid"'
    return f"`{argument}` must take {output.returns}{like}, for {output.source} returns them; {behind}. {received}"


def spelled(identifier: Any) -> str:
    """A loss or metric as it is written in a program, with the arguments that are not its defaults."""
    if isinstance(identifier, str):
        return repr(identifier)
    if isinstance(identifier, functools.partial):
        arguments = [spelled(identifier.func), *(f"{name}={value!r}" for name, value in identifier.keywords.items())]
        return f"functools.partial({', '.join(arguments)})"
    kind = identifier if inspect.isclass(identifier) or inspect.isfunction(identifier) else type(identifier)
    rooms = [room for room in (*MODULES, ".".join(kind.__module__.split(".")[:2])) if room.startswith("keras")]
    public = [room for room in rooms if getattr(sys.modules.get(room), kind.__name__, None) is kind]
    name = f"{public[0]}.{kind.__name__}" if public else kind.__name__
    if kind is identifier:
        return name
    if isinstance(identifier, dict):
        return reprlib.repr(identifier)
    parameters = inspect.signature(kind.__init__).parameters
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
    """A value as it is written in a program, or three dots for a long one, such as a matrix."""
    text = repr(np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic | list | tuple) else value)
    return text if len(text) <= 60 else "..."
