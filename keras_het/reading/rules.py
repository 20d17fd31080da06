"""Rules for losses and metrics of Keras and of this package: which outputs each takes, and with which arguments."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_het import losses, metrics
from keras_het.losses.crossentropy import Crossentropy
from keras_het.reading.ending import Ending


class Rule(NamedTuple):
    """The outputs that a loss or metric takes.

    Attributes:
        activation: "softmax" or "sigmoid", if it takes only outputs of links with this activation; "" if it takes only
            numbers of a regression; else None.
        fit: function of its config and an `Ending`; returns the config with which it takes that output, or None if
            there is none.
    """

    activation: str | None
    fit: Callable[[dict, Ending], dict | None]


def _from_logits(config, output):
    return {**config, "from_logits": output.returns != "probabilities"}


def _only(*returns: str) -> Callable[[dict, Ending], dict | None]:
    """Returns the `fit` of losses and metrics that take outputs of these kinds as they are."""
    return lambda config, output: config if output.returns in returns else None


def _any(config, output):
    return config


_numbers = _only("probabilities", "numbers")  # losses of numbers take whatever is not said to be logits
# Likelihoods of distributions take those of their own heads, and whatever else is not known here.
distributions = _only("distributions", "anything")


def _of_each(fit: Callable[[dict, Ending], dict | None]) -> Callable[[dict, Ending], dict | None]:
    """`fit` for metrics that judge each class alone: for them a single logit of a softmax means nothing."""
    return lambda config, output: (
        None if (output.link, output.returns) == ("softmax", "logits") else fit(config, output)
    )


def _score(config, output):
    """Margin losses need scores of both signs."""
    return None if output.returns == "log-probabilities" else config


def _threshold(config, output):
    """Converts a threshold of probabilities, in (0, 1), to one of logits or log-probabilities by the inverse link."""
    t = config["threshold"]
    if output.returns == "probabilities" or not 0 < t < 1:
        return config
    return {**config, "threshold": math.log(t) - (math.log1p(-t) if output.link == "sigmoid" else 0.0)}


def _thresholds(config, output):
    """Converts the threshold 1/2 to the logit 0; None for others, as Keras takes only [0, 1].

    The k largest need no threshold.
    """
    given = config["thresholds"]
    if output.returns == "probabilities" or (given is None and config.get("top_k") is not None):
        return config
    values = given if isinstance(given, list | tuple) else [0.5 if given is None else given]
    if output.link == "softmax" or not set(values) <= {0.0, 0.5}:
        return None
    return config if set(values) == {0.0} else {**config, "thresholds": 0.0}


def _of_predicted_class(config, output):
    return None if output.link == "sigmoid" else _from_logits(config, output)


def _largest(config, output):
    """Without a threshold the largest output counts, but not if it is zero.

    A log-probability is zero where the probability rounds to one.
    """
    fits = output.returns == "probabilities" or (output.returns == "logits" and config["threshold"] is None)
    return config if fits else None


# Names in `keras.losses` and `keras.metrics`, and in `losses` and `metrics` of this package. A crossentropy of this
# package carries its own rule; others are not known.
_RULES: dict[Rule, str] = {
    Rule("softmax", _from_logits): "SparseCategoricalCrossentropy CategoricalCrossentropy CategoricalFocalCrossentropy",
    Rule("sigmoid", _from_logits): "BinaryCrossentropy BinaryFocalCrossentropy",
    Rule(None, _of_each(_from_logits)): "AUC",
    Rule(None, _of_predicted_class): "ExpectedCalibrationError",
    Rule(None, _of_each(_threshold)): "BinaryAccuracy BinaryIoU",
    Rule(None, _thresholds): "Precision Recall TruePositives TrueNegatives FalsePositives FalseNegatives",
    Rule(None, _largest): "F1Score FBetaScore",
    Rule(None, _of_each(_score)): "Hinge SquaredHinge",
    Rule(None, _only("probabilities")): "KLDivergence CategoricalGeneralizedCrossEntropy Dice Tversky "
    "PrecisionAtRecall RecallAtPrecision SensitivityAtSpecificity SpecificityAtSensitivity",
    Rule(None, _numbers): "Poisson MeanSquaredError RootMeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError "
    "MeanSquaredLogarithmicError Huber LogCosh LogCoshError CosineSimilarity R2Score PearsonCorrelation "
    "ConcordanceCorrelation",
    Rule("sigmoid", distributions): "JointMultiLabelCrossentropy",
    Rule("softmax", distributions): "JointSegmentationCrossentropy",
    Rule("", distributions): "MultivariateNormalNLL",
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


def rule_of(kind: Any) -> Rule | None:
    """The rule of a class, or None for one that is not known, and for None."""
    if kind is not None and issubclass(kind, Crossentropy) and kind.__module__.startswith("keras_het."):
        return Rule(kind.activation, kind.config_for)
    return RULES.get(kind)
