"""Losses and metrics by any identifier: which class it stands for, and the instance that fits an output."""

import inspect
from typing import Any

import keras

from keras_het import losses, metrics
from keras_het.base.internals import arguments_of
from keras_het.losses.crossentropy import Crossentropy
from keras_het.reading.ending import Ending
from keras_het.reading.rules import RULES, distributions, rule_of

# Strings whose meaning Keras takes from the shapes of the data, and their meaning for one unit.
BY_SHAPE = {
    "accuracy": "binary_accuracy",
    "acc": "binary_accuracy",
    "crossentropy": "binary_crossentropy",
    "ce": "binary_crossentropy",
}
# Methods that a loss or metric computes with; a subclass that overrides one computes something else.
METHODS = ("__call__", "call", "update_state", "result")


def matching(identifier: Any, output: Ending, module: Any = keras.losses, trust_unknown: bool = True) -> Any:
    """Returns the loss or metric that accepts an output, and otherwise computes the same as the given one.

    Args:
        identifier: loss or metric, as `compile` takes it: string, function, class, instance.
        output: the output of the model.
        module: place where strings are looked up, `keras.losses` or `keras.metrics`.
        trust_unknown: boolean, whether a loss or metric that is neither of Keras nor of this package fits. A subclass
            of a known class is known if it overrides no method that computes.
    Returns:
        `identifier` itself if it fits, an instance that fits, or None if there is none.

    Example:
        >>> output = Ending("the head 'head'", "sigmoid", "logits", units=3)
        >>> matching("binary_accuracy", output, keras.metrics).threshold
        0.0
    """
    if (wrapped := of_annotators(identifier)) is not None:
        fitting = matching(wrapped, output, module, trust_unknown)
        return identifier if fitting is wrapped else fitting and type(identifier)(fitting)
    name = identifier.lower() if isinstance(identifier, str) else ""
    if name in BY_SHAPE and output.units != 1:
        fits = BY_SHAPE[name] == "binary_accuracy" or output.returns == "probabilities"
        return identifier if fits else None
    known = _instance(BY_SHAPE.get(name, identifier), module)
    kind = _kind_of(known)
    if kind is None:
        return identifier if trust_unknown else None
    if kind is keras.metrics.Accuracy:  # compares numbers, and probabilities equal no label
        return matching("binary_accuracy" if output.link == "sigmoid" else "accuracy", output, module, trust_unknown)
    rule: Any = rule_of(kind)
    accepts_distributions = rule.fit is distributions or getattr(known, "accepts_distributions", False)
    if not _accepts_link(rule.activation, output) or (output.returns == "distributions" and not accepts_distributions):
        return None
    config = kind.get_config(known)
    fitting = rule.fit(config, output)
    if fitting is None:
        return None
    return identifier if fitting == config else _made(known, fitting, identifier)


def _accepts_link(activation: str | None, output: Ending) -> bool:
    """Returns whether a loss for an activation accepts the link of an output; a softmax needs several classes."""
    if activation == "sigmoid" and output.returns == "probabilities":
        return True
    return activation is None or (activation == output.link and (activation, output.units) != ("softmax", 1))


def with_link(output: Ending, losses: list) -> Ending:
    """Returns the output; if it is numbers, as the logits of the link that the first loss with a link is for.

    Example:
        >>> output = Ending("the layer 'dense'", "", "numbers", units=3, is_head=False)
        >>> with_link(output, ["mse", "sparse_categorical_crossentropy"]).link
        'softmax'
    """
    if output.returns != "numbers" or output.of_distribution:
        return output
    logits = [output._replace(link=activation, returns="logits") for activation in ("softmax", "sigmoid")]
    for loss in losses:
        told = [each for each in logits if matching(loss, each) is not None]
        if len(told) == 1:
            return told[0]
    return output


def is_known(identifier: Any, module: Any = keras.losses) -> bool:
    """Returns whether a loss or metric is of Keras or of this package, or computes the same."""
    if (wrapped := of_annotators(identifier)) is not None:
        return is_known(wrapped, module)
    named = isinstance(identifier, str) and identifier.lower() in BY_SHAPE
    return named or _kind_of(_instance(identifier, module)) is not None


def of_annotators(identifier: Any) -> Any:
    """Returns the loss or metric inside an `AnnotatorsLoss` or `AnnotatorsMetric`; None for another identifier."""
    if isinstance(identifier, losses.AnnotatorsLoss):
        return identifier.loss
    return identifier.metric if isinstance(identifier, metrics.AnnotatorsMetric) else None


def leaves_out_missing(identifier: Any) -> bool:
    """Returns whether a loss or metric leaves out labels of -1; True for one that is not known."""
    arguments = arguments_of(identifier)
    known = (
        isinstance(identifier, str)
        or _kind_of(_instance(identifier, keras.metrics) or _instance(identifier, keras.losses)) is not None
    )
    return not known or getattr(identifier, "ignore_class", arguments.get("ignore_class")) == -1


def activation_for(identifier: Any, module: Any = keras.losses) -> str | None:
    """Returns the activation, "softmax" or "sigmoid", that a loss or metric is for; None for any, or unknown."""
    rule = rule_of(_kind_of(_instance(identifier, module)))
    return rule and rule.activation


# The labels that losses of classes take; those of this package take "either" integers or vectors, and others numbers.
LABELS = {
    keras.losses.SparseCategoricalCrossentropy: "integers",
    keras.losses.CategoricalCrossentropy: "vectors",
    keras.losses.CategoricalFocalCrossentropy: "vectors",
    keras.losses.KLDivergence: "vectors",
    keras.losses.BinaryCrossentropy: "each",
    keras.losses.BinaryFocalCrossentropy: "each",
    losses.JointMultiLabelCrossentropy: "each or missing",
    losses.JointSegmentationCrossentropy: "integers",
    losses.MultivariateNormalNLL: "targets",
}


def labels_for(identifier: Any, units: int) -> str:
    """Returns the form of the labels that a loss takes, for an output of `units` classes; "" if it is unknown.

    It is "integers", "vectors" or "either" of classes, "each" for a number in [0, 1] for each class, "each or missing"
    for 0, 1, or -1 for each class, "annotations" of several annotators, "targets" of a regression, or "numbers".
    """
    if of_annotators(identifier) is not None:
        return "annotations"
    if isinstance(identifier, str) and identifier.lower() in BY_SHAPE:
        return "each" if units == 1 else "either"
    kind = _kind_of(instance := _instance(identifier, keras.losses))
    if arguments_of(instance).get("axis", -1) != -1:  # the classes are not on the last axis
        return ""
    if kind is not None and issubclass(kind, Crossentropy):
        return "each" if getattr(instance, "multi_label", False) else "either"
    return LABELS.get(kind, "numbers" if kind else "")


def labels_of_metric(identifier: Any) -> str:
    """Returns the labels of exclusive classes that a metric of Keras takes, "integers" or "vectors"; "" if unknown."""
    is_by_shape = isinstance(identifier, str) and identifier.lower() in BY_SHAPE
    kind = None if is_by_shape else _kind_of(_instance(identifier, keras.metrics))
    if kind is None or not kind.__module__.startswith("keras.") or "IoU" in kind.__name__:
        return ""
    return "integers" if kind.__name__.startswith("Sparse") else "vectors"


def ignored_by(identifier: Any) -> int | None:
    """Returns the label that a loss of Keras or of this package leaves out, or None."""
    loss = _instance(identifier, keras.losses)
    return getattr(loss, "ignore_class", arguments_of(loss).get("ignore_class"))


def loss_of(identifier: Any) -> Any:
    """Returns the loss of an identifier: an instance of Keras or of this package, or the user's own function."""
    return _instance(identifier, keras.losses) or keras.losses.get(identifier)


def _kind_of(instance: Any) -> Any:
    """Returns the known class of an instance, or the class whose computing methods it inherits; else None."""
    kind: Any = next((kind for kind in type(instance).__mro__ if rule_of(kind)), None)
    inherited = all(getattr(type(instance), method, None) is getattr(kind, method, None) for method in METHODS)
    return kind if inherited else None


def _instance(identifier: Any, module: Any) -> Any:
    """Returns the loss or metric of an identifier, or None if it is neither of Keras nor of this package."""
    try:
        found = module.get(identifier)
        if not inspect.isfunction(found):
            return found
        kind = _class_of(found, module)
        return None if kind is None else kind()
    except (TypeError, ValueError):  # Keras will refuse it, and say why
        return None


def _class_of(function: Any, module: Any) -> type | None:
    """Returns the class that computes the same as a function of Keras, if possible of the given module."""
    name = function.__name__
    if not any(
        getattr(keras_module, name, None) is function for keras_module in (keras.losses, keras.metrics, keras.ops)
    ):
        return None
    kinds = [kind for kind in RULES if kind.__name__.lower() == name.replace("_", "")]
    return next(iter(sorted(kinds, key=lambda kind: getattr(module, kind.__name__, None) is not kind)), None)


def _made(known: Any, config: dict, identifier: Any) -> Any:
    """Returns `known`'s class with another config, named after a string identifier; None if this fails."""
    name = {"name": identifier} if isinstance(identifier, str) else {}
    try:
        return remade(known, **{**config, **name})
    except ValueError:  # the caller is told that there is none
        return None


def remade(instance: Any, **changed: Any) -> Any:
    """Makes a loss, metric or optimizer of equal configuration, except for `changed`, with fresh state.

    Raises:
        ValueError: if it cannot be made, or if its class takes arguments that its `get_config` does not give.
    """
    kind = type(instance)
    try:
        config = {**instance.get_config(), **changed}
        if isinstance(instance, keras.losses.Loss):
            config = {"dtype": instance.dtype, **config}  # Keras' losses leave it out, and the copy would lose it
        parameters = inspect.signature(kind.__init__).parameters.values()
        named = {
            parameter.name
            for parameter in list(parameters)[1:]
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        }
        if _inherits_config(kind) and not named <= set(config):
            raise ValueError(f"its `get_config` does not give {sorted(named - set(config))}")
        return kind.from_config(config)
    except Exception as error:  # whatever the caller's own class raises
        raise ValueError(f"{kind.__name__} cannot be made again: {error}") from error


def _inherits_config(kind: type) -> bool:
    """Returns whether a class has its own constructor, and a `get_config` of a base class without its arguments."""
    definers = [next(base for base in kind.__mro__ if method in vars(base)) for method in ("__init__", "get_config")]
    return kind.__mro__.index(definers[0]) < kind.__mro__.index(definers[1])
