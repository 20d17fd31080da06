"""Rules for the losses and metrics of Keras and of this package: accepted outputs, and the arguments for them."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_het import losses, metrics
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
