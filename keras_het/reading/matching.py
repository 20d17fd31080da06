"""Rules for the outputs that losses and metrics accept, and the loss or metric that fits an output."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_het import losses, metrics
from keras_het.base.internals import arguments_of
from keras_het.base.rebuild import rebuild
from keras_het.losses.crossentropy import Crossentropy
from keras_het.reading.ending import Ending


class Rule(NamedTuple):
    """Outputs that a loss or metric accepts.

    Attributes:
        activation: "softmax" or "sigmoid" if only outputs of links with this activation are accepted; "" if only
            numbers of a regression are; else None.
        fit: function of a config and an `Ending` that returns the config for this output, or None.
    """

    activation: str | None
    fit: Callable[[dict, Ending], dict | None]


def _from_logits(config, output):
    return {**config, "from_logits": output.returns != "probabilities"}


def _only(*returns: str) -> Callable[[dict, Ending], dict | None]:
    """Returns the `fit` of losses and metrics that accept only outputs of these kinds."""
    return lambda config, output: config if output.returns in returns else None


def _any(config, output):
    return config


_numbers = _only("probabilities", "numbers")
fit_distributions = _only("distributions", "anything")


def _per_class(fit: Callable[[dict, Ending], dict | None]) -> Callable[[dict, Ending], dict | None]:
    """Wraps `fit` for metrics of single classes, for which one logit of a softmax has no meaning."""
    return lambda config, output: (
        None if (output.link, output.returns) == ("softmax", "logits") else fit(config, output)
    )


def _score(config, output):
    """Refuses log-probabilities, because margin losses need scores of both signs."""
    return None if output.returns == "log-probabilities" else config


def _threshold(config, output):
    """Converts a threshold of probabilities, in (0, 1), to one of logits or log-probabilities by the inverse link."""
    t = config["threshold"]
    if output.returns == "probabilities" or not 0 < t < 1:
        return config
    return {**config, "threshold": math.log(t) - (math.log1p(-t) if output.link == "sigmoid" else 0.0)}


def _thresholds(config, output):
    """Converts the threshold 1/2 to the logit 0; refuses other thresholds, whose logits Keras would refuse.

    `top_k` needs no threshold.
    """
    thresholds = config["thresholds"]
    if output.returns == "probabilities" or (thresholds is None and config.get("top_k") is not None):
        return config
    values = thresholds if isinstance(thresholds, list | tuple) else [0.5 if thresholds is None else thresholds]
    if output.link == "softmax" or not set(values) <= {0.0, 0.5}:
        return None
    return config if set(values) == {0.0} else {**config, "thresholds": 0.0}


def _predicted_class(config, output):
    return None if output.link == "sigmoid" else _from_logits(config, output)


def _largest(config, output):
    """Refuses log-probabilities: without a threshold, Keras ignores a largest output of zero.

    A log-probability is zero if the probability rounds to one.
    """
    fits = output.returns == "probabilities" or (output.returns == "logits" and config["threshold"] is None)
    return config if fits else None


# Names in `keras.losses`, `keras.metrics`, and `losses` and `metrics` of this package. `find_rule` has the rule of a
# `Crossentropy` of this package.
_RULES: dict[Rule, str] = {
    Rule("softmax", _from_logits): "SparseCategoricalCrossentropy CategoricalCrossentropy CategoricalFocalCrossentropy",
    Rule("sigmoid", _from_logits): "BinaryCrossentropy BinaryFocalCrossentropy",
    Rule(None, _per_class(_from_logits)): "AUC",
    Rule(None, _predicted_class): "ExpectedCalibrationError",
    Rule(None, _per_class(_threshold)): "BinaryAccuracy BinaryIoU",
    Rule(None, _thresholds): "Precision Recall TruePositives TrueNegatives FalsePositives FalseNegatives",
    Rule(None, _largest): "F1Score FBetaScore",
    Rule(None, _per_class(_score)): "Hinge SquaredHinge",
    Rule(None, _only("probabilities")): "KLDivergence CategoricalGeneralizedCrossEntropy Dice Tversky "
    "PrecisionAtRecall RecallAtPrecision SensitivityAtSpecificity SpecificityAtSensitivity",
    Rule(None, _numbers): "Poisson MeanSquaredError RootMeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError "
    "MeanSquaredLogarithmicError Huber LogCosh LogCoshError CosineSimilarity R2Score PearsonCorrelation "
    "ConcordanceCorrelation",
    Rule("sigmoid", fit_distributions): "JointMultiLabelCrossentropy",
    Rule("softmax", fit_distributions): "JointSegmentationCrossentropy",
    Rule("", fit_distributions): "MultivariateNormalNLL",
    Rule(
        None, _any
    ): "Accuracy CategoricalAccuracy SparseCategoricalAccuracy TopKCategoricalAccuracy SparseTopKCategoricalAccuracy "
    "IoU MeanIoU OneHotIoU OneHotMeanIoU CategoricalHinge",
}
RULES = {
    getattr(module, name): rule
    for rule, names in _RULES.items()
    for name in names.split()
    for module in (keras.losses, keras.metrics, losses, metrics)
    if hasattr(module, name)
}


def find_rule(kind: Any) -> Rule | None:
    """Returns the rule of a class, or None for an unknown class and for None."""
    if kind is not None and issubclass(kind, Crossentropy) and kind.__module__.startswith("keras_het."):
        return Rule("softmax", _from_logits)
    return RULES.get(kind)


# Strings that Keras resolves by the shapes of the data, and their meaning for one unit.
SHAPE_DEPENDENT_NAMES = {
    "accuracy": "binary_accuracy",
    "acc": "binary_accuracy",
    "crossentropy": "binary_crossentropy",
    "ce": "binary_crossentropy",
}
# A subclass that overrides one of these methods computes something else.
COMPUTING_METHODS = ("__call__", "call", "update_state", "result")


def find_match(identifier: Any, output: Ending, module: Any = keras.losses, trust_unknown: bool = True) -> Any:
    """Returns the form of a loss or metric that accepts an output and otherwise computes the same.

    Args:
        identifier: loss or metric in any form that `compile` accepts: string, function, class, instance.
        output: the output of the model.
        module: `keras.losses` or `keras.metrics`, where strings are looked up.
        trust_unknown: boolean, whether a loss or metric that is not from Keras or this package fits. A subclass of a
            known class is known if it overrides no computing method.
    Returns:
        `identifier` itself if it fits; else an instance that fits, or None.

    Example:
        >>> output = Ending("the head 'head'", "sigmoid", "logits", units=3)
        >>> find_match("binary_accuracy", output, keras.metrics).threshold
        0.0
    """
    if (wrapped := unwrap_annotators(identifier)) is not None:
        match = find_match(wrapped, output, module, trust_unknown)
        return identifier if match is wrapped else match and type(identifier)(match)
    name = identifier.lower() if isinstance(identifier, str) else ""
    if name in SHAPE_DEPENDENT_NAMES and output.units != 1:
        fits = SHAPE_DEPENDENT_NAMES[name] == "binary_accuracy" or output.returns == "probabilities"
        return identifier if fits else None
    instance = _get_instance(SHAPE_DEPENDENT_NAMES.get(name, identifier), module)
    kind = _known_class(instance)
    if kind is None:
        return identifier if trust_unknown else None
    if kind is keras.metrics.Accuracy:  # compares numbers, and probabilities never equal a label
        return find_match("binary_accuracy" if output.link == "sigmoid" else "accuracy", output, module, trust_unknown)
    rule: Any = find_rule(kind)
    is_misfit = output.returns == "distributions" and rule.fit is not fit_distributions
    if is_misfit or not _accepts_link(rule.activation, output):
        return None
    config = kind.get_config(instance)
    new_config = rule.fit(config, output)
    if new_config is None:
        return None
    return identifier if new_config == config else _rebuild_or_none(instance, new_config, identifier)


def _accepts_link(activation: str | None, output: Ending) -> bool:
    """Returns whether a loss for `activation` accepts the output; a softmax needs several classes."""
    if activation == "sigmoid" and output.returns == "probabilities":
        return True
    return activation is None or (activation == output.link and (activation, output.units) != ("softmax", 1))


def resolve_link(output: Ending, losses: list) -> Ending:
    """Resolves the numbers of a Dense layer to logits of the link that the first loss implies.

    Example:
        >>> output = Ending("the layer 'dense'", "", "numbers", units=3, is_head=False)
        >>> resolve_link(output, ["mse", "sparse_categorical_crossentropy"]).link
        'softmax'
    """
    if output.returns != "numbers" or output.is_distribution:
        return output
    logits = [output._replace(link=activation, returns="logits") for activation in ("softmax", "sigmoid")]
    for loss in losses:
        matches = [candidate for candidate in logits if find_match(loss, candidate) is not None]
        if len(matches) == 1:
            return matches[0]
    return output


def is_known(identifier: Any, module: Any = keras.losses) -> bool:
    """Returns whether a loss or metric is from Keras or this package, or inherits its computation."""
    if (wrapped := unwrap_annotators(identifier)) is not None:
        return is_known(wrapped, module)
    return _is_shape_dependent(identifier) or _known_class(_get_instance(identifier, module)) is not None


def _is_shape_dependent(identifier: Any) -> bool:
    return isinstance(identifier, str) and identifier.lower() in SHAPE_DEPENDENT_NAMES


def unwrap_annotators(identifier: Any) -> Any:
    """Returns the loss or metric inside an `AnnotatorsLoss` or `AnnotatorsMetric`; None for another identifier."""
    if isinstance(identifier, losses.AnnotatorsLoss):
        return identifier.loss
    return identifier.metric if isinstance(identifier, metrics.AnnotatorsMetric) else None


def find_activation(identifier: Any, module: Any = keras.losses) -> str | None:
    """Returns the activation that a loss or metric needs, "softmax" or "sigmoid"; None if any, or unknown."""
    rule = find_rule(_known_class(_get_instance(identifier, module)))
    return rule and rule.activation


# Forms of labels of losses for classes. A `Crossentropy` accepts "either" integers or vectors, other losses numbers.
LABEL_FORMS = {
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


def find_label_form(identifier: Any, units: int) -> str:
    """Returns the form of labels that a loss needs, for an output of `units` classes; "" if unknown.

    Forms are "integers", "vectors" or "either" for exclusive classes, "each" for a number in [0, 1] for each class,
    "each or missing" for 0, 1 or -1 for each class, "annotations" of several annotators, "targets" of a regression, and
    "numbers".
    """
    if unwrap_annotators(identifier) is not None:
        return "annotations"
    if _is_shape_dependent(identifier):
        return "each" if units == 1 else "either"
    kind = _known_class(instance := _get_instance(identifier, keras.losses))
    if arguments_of(instance).get("axis", -1) != -1:  # classes on another axis
        return ""
    if kind is not None and issubclass(kind, Crossentropy):
        return "either"
    return LABEL_FORMS.get(kind, "numbers" if kind else "")


def find_metric_label_form(identifier: Any) -> str:
    """Returns the form of exclusive labels that a metric of Keras needs, "integers" or "vectors"; "" if unknown."""
    kind = None if _is_shape_dependent(identifier) else _known_class(_get_instance(identifier, keras.metrics))
    if kind is None or not kind.__module__.startswith("keras.") or "IoU" in kind.__name__:
        return ""
    return "integers" if kind.__name__.startswith("Sparse") else "vectors"


def compares_largest(identifier: Any) -> bool:
    """Returns whether a metric of Keras compares the label with the largest outputs; "accuracy" depends on shapes."""
    kind = None if _is_shape_dependent(identifier) else _known_class(_get_instance(identifier, keras.metrics))
    return kind is not None and kind.__name__.endswith("CategoricalAccuracy")


def find_ignored_label(identifier: Any) -> int | None:
    """Returns the label that a loss of Keras or of this package ignores, or None."""
    loss = _get_instance(identifier, keras.losses)
    return getattr(loss, "ignore_class", arguments_of(loss).get("ignore_class"))


def get_loss(identifier: Any) -> Any:
    """Returns the loss of an identifier: an instance of Keras or of this package, or the user's function."""
    return _get_instance(identifier, keras.losses) or keras.losses.get(identifier)


def _known_class(instance: Any) -> Any:
    """Returns the known class whose computing methods an instance has or inherits, or None."""
    kind: Any = next((kind for kind in type(instance).__mro__ if find_rule(kind)), None)
    is_inherited = all(getattr(type(instance), name, None) is getattr(kind, name, None) for name in COMPUTING_METHODS)
    return kind if is_inherited else None


def _get_instance(identifier: Any, module: Any) -> Any:
    """Returns the loss or metric of an identifier, or None if it is not from Keras or this package."""
    try:
        result = module.get(identifier)
        if not inspect.isfunction(result):
            return result
        kind = _find_class(result, module)
        return None if kind is None else kind()
    except (TypeError, ValueError):  # `compile` will raise a clear error
        return None


def _find_class(function: Any, module: Any) -> type | None:
    """Returns the class that computes the same as a function of Keras, preferably a class of the module."""
    name = function.__name__
    if not any(
        getattr(keras_module, name, None) is function for keras_module in (keras.losses, keras.metrics, keras.ops)
    ):
        return None
    kinds = [kind for kind in RULES if kind.__name__.lower() == name.replace("_", "")]
    return next(iter(sorted(kinds, key=lambda kind: getattr(module, kind.__name__, None) is not kind)), None)


def _rebuild_or_none(instance: Any, config: dict, identifier: Any) -> Any:
    """Rebuilds an instance with another config, named after a string identifier; returns None on failure."""
    name = {"name": identifier} if isinstance(identifier, str) else {}
    try:
        return rebuild(instance, **{**config, **name})
    except ValueError:
        return None
