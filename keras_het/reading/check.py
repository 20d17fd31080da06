"""Checks that the loss and metrics of a compiled model accept its outputs, and recommends others if they do not.

A Dense layer without activation returns logits. A head returns log-probabilities (softmax) or logits (sigmoid). With an
activation, both return probabilities. Losses expect probabilities unless `from_logits=True`. Keras raises no error for
a wrong loss: on two backends it trains a head backwards.
"""

import inspect
import reprlib
import sys
import warnings
from typing import Any

import keras
import numpy as np

from keras_het.base.internals import compile_arguments
from keras_het.base.refusal import refusal, refuse_if
from keras_het.criteria.criterion import Criterion, find_criteria
from keras_het.reading.data import check_data
from keras_het.reading.ending import Ending, endings

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


def check(model: keras.Model, x: Any = None, y: Any = None, sample_weight: Any = None) -> None:
    """Raises an error if a loss, a metric or the data do not fit a compiled model.

    Keras accepts a loss that does not match the model's outputs, and can then train the model backwards or not at all.
    `check` names the loss or metric that does not fit, and one that does. It reads models that end in a layer of this
    package, a Dense, a 1x1 Conv2D, a softmax or a sigmoid, with any layers after it that only reshape. It reads
    every form that `compile` accepts: strings, functions, classes and instances, alone or in lists and dicts. A warning
    names what was not checked: other last layers, and losses that are not from Keras or this package. Call or fit a
    subclassed model first. The first check runs its `call` once, with symbolic inputs.

    If you pass data, `check` also finds labels out of range, one-hot vectors instead of integers (or the reverse),
    several labels for a softmax, names, nan and infinity, wrong shapes and lengths, impossible weights, and missing or
    unknown entries. Labels that the loss ignores (`ignore_class`, and -1 for annotators) are accepted. Of a data set,
    the first four batches are read.

    Args:
        model: a compiled model.
        x: examples: arrays as for `fit`, or a data set of batches (x, y) that can be read more than once; None skips
            the check of examples.
        y: labels as for `fit`; None for a data set.
        sample_weight: weights as for `fit`; None for a data set, and for equal ones.
    Raises:
        ValueError: if the model is not compiled; if a loss or metric does not accept the outputs; if loss and metric
            need labels of different forms; if the model cannot learn from the data; if a trainable layer follows
            a `NoiseTransition`, or an activation that does not fit the link follows a head.
    Warns:
        UserWarning: if something was not checked, such as `x` without labels; if an example is not finite; if a class
            has no label; if metrics count labels that the loss ignores, or do not use the weights; if Keras assumes a
            single label for a string such as "accuracy" while a sigmoid predicts several; if a softmax over the same
            classes stands before a head, which then learns little.

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
    if texts := collect_warnings(model, x, y, sample_weight):
        warnings.warn(" ".join(texts), stacklevel=2)


def collect_warnings(model: keras.Model, x: Any = None, y: Any = None, sample_weight: Any = None) -> list[str]:
    """Raises the errors of `check`, and returns the texts of its warnings."""
    if not getattr(model, "compiled", False):
        name = getattr(model, "name", model)
        raise refusal("model", "be compiled: call model.compile(...)", f"model={name!r}, not compiled")
    outputs, arguments = endings(model), compile_arguments(model)
    _check_layers(outputs)
    criteria = {argument: _split(argument, arguments.get(argument), outputs) for argument in ROLES}
    losses = criteria["loss"]
    outputs = [resolve_link(*pair) for pair in zip(outputs, losses, strict=True)]
    pairs = [
        (argument, criterion, output)
        for argument, rows in criteria.items()
        for row, output in zip(rows, outputs, strict=True)
        for criterion in row
    ]
    is_checked = [_check_criterion(*pair) for pair in pairs]
    for argument in ("metrics", "weighted_metrics"):
        for row in zip(criteria[argument], losses, outputs, strict=True):
            _check_metric_labels(argument, *row)
    texts = _explain_unchecked(model, outputs, losses, any(is_checked))
    texts += [text for pair in pairs for text in _warn_single_label(*pair)]
    return texts + check_data(model, (x, y, sample_weight), outputs, criteria)


def resolve_link(output: Ending, criteria: list[Criterion]) -> Ending:
    """Resolves the numbers of a Dense layer to logits of the link that the first loss implies.

    Example:
        >>> output = Ending("the layer 'dense'", "", "numbers", units=3, is_head=False)
        >>> resolve_link(output, [Criterion("mse"), Criterion("sparse_categorical_crossentropy")]).link
        'softmax'
    """
    if output.returns != "numbers" or output.is_distribution:
        return output
    logits = [output._replace(link=activation, returns="logits") for activation in ("softmax", "sigmoid")]
    for criterion in criteria:
        matches = [candidate for candidate in logits if criterion.match(candidate) is not None]
        if len(matches) == 1:
            return matches[0]
    return output


def _check_layers(outputs: list[Ending]) -> None:
    if error := next((output.error for output in outputs if output.error), ""):
        raise ValueError(error)
    for output in outputs:
        rule = "have two classes or more, because of one class it is always 1. Use a sigmoid"
        refuse_if((output.link, output.units) == ("softmax", 1), "A softmax", rule, f"one class of {output.source}")
        if output.warning:
            warnings.warn(output.warning, stacklevel=4)


def _check_criterion(argument: str, criterion: Criterion, output: Ending) -> bool:
    """Raises an error for a loss or metric that does not fit; returns whether it was checked."""
    is_distribution = output.is_distribution or output.returns == "distributions"
    if is_distribution and argument == "loss":
        return check_distribution_loss(criterion, output)
    if output.returns == "distributions":
        rule = f"belong to a keras_het.models.DistributionModel, because {output.source} returns a packed distribution"
        raise refusal(argument, rule, f"{argument}={spell(criterion.identifier)}")
    is_untyped = output.returns == "numbers"
    if output.returns == "anything" or (is_untyped and argument != "loss"):
        return False
    match = criterion.match(output)
    if match is not criterion.identifier:
        if is_untyped:  # the number of units decides the link
            output = output._replace(returns="logits", link="sigmoid" if output.units == 1 else "softmax")
        raise ValueError(misfit_error(argument, criterion, match, output))
    if output.annotators and criterion.inner is None:  # it would count missing labels as errors
        kind = "losses.AnnotatorsLoss()" if argument == "loss" else "metrics.AnnotatorsMetric(...)"
        rule = f"accept the labels of {output.annotators} annotators, with -1 for missing. Use keras_het.{kind}"
        raise refusal(argument, rule, f"{argument}={spell(criterion.identifier)}")
    return criterion.is_known


def _check_metric_labels(argument: str, criteria: list, losses: list, output: Ending) -> None:
    """Raises an error for metrics of other labels than the loss, and for an accuracy of the only output, a constant."""
    for criterion in criteria if (output.units, output.link) == (1, "sigmoid") else ():
        if criterion.compares_largest:
            match = spell(Criterion("binary_accuracy", keras.metrics).match(output))
            rule = f"accept one class, which {output.source} predicts: compare it with a threshold. Use {match}"
            raise refusal(argument, rule, f"{argument}={spell(criterion.identifier)}")
    forms = {loss.label_form(output.units) for loss in losses}
    if output.units < 2 or forms not in ({"integers"}, {"vectors"}):
        return
    for criterion in criteria:
        if criterion.metric_label_form not in ("", *forms):
            is_sparse = forms == {"integers"}
            form, remedy = "integers" if is_sparse else "label vectors", spell(criterion.with_labels(*forms))
            remedy += ", or to_categorical(y) and a loss of label vectors" * is_sparse
            rule = f"accept {form}, as loss={spell(losses[0].identifier)} does. Use {remedy}"
            raise refusal(argument, rule, f"{argument}={spell(criterion.identifier)}")


def _warn_single_label(argument: str, criterion: Criterion, output: Ending) -> list[str]:
    """Returns the warning about a string that Keras resolves to a single label, after a sigmoid of several classes."""
    binary = criterion.binary_name
    if not binary or output.link != "sigmoid" or output.units == 1:
        return []
    match, single = Criterion(binary, ROLES[argument]).match(output), binary.replace("binary", "categorical")
    text = f"For {argument}={criterion.identifier!r} Keras assumes one label per example"
    remedy = f"Use {spell(match)}, or {single!r} if each example has one label."
    return [f"{text}, but {output.source} predicts several. {remedy}"]


def check_distribution_loss(criterion: Criterion, output: Ending) -> bool:
    """Raises an error for a loss that does not accept the distribution of a head; returns whether the loss is known."""
    if criterion.match(output._replace(returns="distributions")) is None:
        match = DISTRIBUTION_LOSSES[output.link].format(output.units)
        rule = f"accept distributions, which {output.source} passes to its loss. Use {match}"
        raise refusal("loss", rule, f"loss={spell(criterion.identifier)}")
    if not criterion.is_known:
        return False
    classes = getattr(criterion.loss, "num_classes", output.units)
    if classes != output.units:
        rule = f"have num_classes={output.units}, the units of {output.source}"
        raise refusal("loss", rule, f"loss={spell(criterion.identifier)}")
    return True


def _explain_unchecked(model: keras.Model, outputs: list, losses: list[list], is_any_checked: bool) -> list[str]:
    """Returns the warning about unchecked parts of a model, or []."""
    reasons = [f"the outputs of {output.source} are unknown" for output in outputs if output.returns == "anything"]
    if not outputs:
        reasons = ["its layers cannot be read from its `call`" + " (call it once)" * (not model.built)]
    reasons += [
        f"the loss {spell(loss.identifier)} is not from Keras or keras_het"
        for output, output_losses in zip(outputs, losses, strict=True)
        for loss in output_losses
        if output.returns != "anything" and not loss.is_known
    ]
    if not reasons and not is_any_checked:
        reasons = ["it has no loss"]
    text = f"The model {model.name!r} was {'only partly' if is_any_checked else 'not'} checked"
    return [f"{text}: {'; '.join(reasons)}."] if reasons else []


def _split(argument: str, value: Any, outputs: list[Ending]) -> list[list[Criterion]]:
    """Splits an argument of `compile` into the losses or metrics of each output."""
    is_named = isinstance(value, dict) and "class_name" not in value
    rows = []
    for index, output in enumerate(outputs):
        part = value
        if len(outputs) > 1 and is_named:
            part = [each for name, each in value.items() if name in output.names]
        elif len(outputs) > 1 and isinstance(value, list | tuple):
            part = value[index] if len(value) == len(outputs) else None
        rows.append(list(find_criteria(part, ROLES[argument])))
    return rows


def misfit_error(argument: str, criterion: Criterion, match: Any, output: Ending) -> str:
    """Returns the error text for a loss or metric that does not fit, with a remedy."""
    start = f"`{argument}` must accept {output.returns}, which {output.source} returns."
    if output.returns == "probabilities" and match is None:
        start = start.replace("probabilities", f"the probabilities of a {output.link}", 1)
        match = ROLES[argument].BinaryCrossentropy()
    if match is not None:
        has_logits = output.is_head and output.returns != "probabilities" and output.transition is None
        fits = has_logits and criterion.match(output._replace(returns="probabilities")) is criterion.identifier
        remedies = [f"use {spell(match)}", *[output.activation_remedy] * fits]
    else:
        remedies = [f"use {DEFAULT_LOSSES[output.link]}"] if argument == "loss" else []
        if (output.link, criterion.activation) == ("softmax", "sigmoid"):
            change = 'give the head link="sigmoid"' if output.is_head else "replace the softmax by a sigmoid"
            remedies.append(f"{change} if an example can have several labels")
        else:
            role = "loss" if argument == "loss" else "metric"
            remedies.append(f"{output.activation_remedy} to use a {role} of probabilities")
    remedy = ", or ".join(remedies)
    return f"{start} {remedy[0].upper()}{remedy[1:]}. Received: {argument}={spell(criterion.identifier)}"


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
