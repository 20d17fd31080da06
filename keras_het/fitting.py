"""Losses and metrics that take what a head returns: for each of Keras and of this package, which outputs it takes, and as what."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_het import losses
from keras_het.outputs import Output

# Strings that Keras gives a meaning by the shapes of the data, and what they are for one unit.
BY_SHAPE = {"accuracy": "binary_accuracy", "acc": "binary_accuracy", "crossentropy": "binary_crossentropy", "ce": "binary_crossentropy"}


class Rule(NamedTuple):
    """What a loss or metric takes.

    link: the only link whose logits it takes, or None.
    fit: a function of its config and an `Output` that gives the config with which it takes that output, or None if there is none.
    """

    link: str | None
    fit: Callable[[dict, Output], dict | None]


def _from_logits(config, output):
    return {**config, "from_logits": output.returns != "probabilities"}


def _only_probabilities(config, output):
    return config if output.returns == "probabilities" else None


def _score(config, output):
    """A margin loss takes scores of any sign."""
    return None if output.returns == "log-probabilities" else config


def _threshold(config, output):
    """A threshold in (0, 1) is one of probabilities, so the same of logits or of log-probabilities is its inverse link."""
    t = config["threshold"]
    if output.returns == "probabilities" or not 0 < t < 1:
        return config
    return {**config, "threshold": math.log(t) - (math.log1p(-t) if output.link == "sigmoid" else 0.0)}


def _thresholds(config, output):
    """Keras takes those in [0, 1] alone, and of these only zero is one of logits: that of the probability 1/2. The k largest need none."""
    given = config["thresholds"]
    if output.returns == "probabilities" or (given is None and config.get("top_k") is not None):
        return config
    values = given if isinstance(given, list | tuple) else [0.5 if given is None else given]
    if output.returns == "log-probabilities" or not set(values) <= {0.0, 0.5}:
        return None
    return config if set(values) == {0.0} else {**config, "thresholds": 0.0}


def _largest(config, output):
    """Without a threshold the largest counts, unless it is zero, as the logarithm of a probability that rounds to one."""
    fits = output.returns == "probabilities" or (output.returns == "logits" and config["threshold"] is None)
    return config if fits else None


# By name, in `keras.losses`, `keras.metrics` and `keras_het.losses`. What is not here takes any outputs, or is not known.
_RULES: dict[Rule, str] = {
    Rule("softmax", _from_logits): "SparseCategoricalCrossentropy CategoricalCrossentropy CategoricalFocalCrossentropy "
    "ForwardCorrectedCrossentropy BackwardCorrectedCrossentropy BootstrappedCrossentropy",
    Rule("sigmoid", _from_logits): "BinaryCrossentropy BinaryFocalCrossentropy",
    Rule(None, _from_logits): "AUC",
    Rule(None, _threshold): "BinaryAccuracy BinaryIoU",
    Rule(None, _thresholds): "Precision Recall TruePositives TrueNegatives FalsePositives FalseNegatives",
    Rule(None, _largest): "F1Score FBetaScore",
    Rule(None, _score): "Hinge SquaredHinge",
    Rule(None, _only_probabilities): "KLDivergence Poisson CategoricalGeneralizedCrossEntropy Dice Tversky "
    "MeanSquaredError RootMeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredLogarithmicError "
    "Huber LogCosh LogCoshError CosineSimilarity R2Score PearsonCorrelation ConcordanceCorrelation "
    "PrecisionAtRecall RecallAtPrecision SensitivityAtSpecificity SpecificityAtSensitivity",
}
MODULES = (keras.losses, keras.metrics, losses)
RULES = {
    getattr(module, name): rule for rule, names in _RULES.items() for name in names.split() for module in MODULES if hasattr(module, name)
}


def counterpart(identifier: Any, output: Output, module: Any = keras.losses) -> Any:
    """What takes an output as a loss or metric does what it was made for.

    Args:
        identifier: whatever `compile` takes: string, function, class, instance.
        output: what the model returns.
        module: where strings are looked up, `keras.losses` or `keras.metrics`.
    Returns: `identifier` itself if it fits or is not known, an instance that fits, or None if there is none.

    Example:
        >>> output = Output("the head 'head'", "sigmoid", "logits", units=3)
        >>> counterpart("binary_accuracy", output, keras.metrics).threshold
        0.0
    """
    name = identifier.lower() if isinstance(identifier, str) else ""
    if name in BY_SHAPE and output.units > 1:
        fits = BY_SHAPE[name] == "binary_accuracy" or output.returns == "probabilities"
        return identifier if fits else None
    known = _instance(BY_SHAPE.get(name, identifier), module)
    rule = RULES.get(type(known))
    if rule is None:
        return identifier
    if rule.link not in (None, output.link) and not (rule.link == "sigmoid" and output.returns == "probabilities"):
        return None
    config = known.get_config()
    fitting = rule.fit(config, output)
    if fitting is None:
        return None
    return identifier if fitting == config else _made(known, fitting, identifier)


def _instance(identifier: Any, module: Any) -> Any:
    """The loss or metric that computes what an identifier does, or None for what is not of Keras or of this package."""
    arguments = identifier.keywords if isinstance(identifier, functools.partial) else {}
    try:
        found = module.get(identifier.func if arguments else identifier)
        if not inspect.isfunction(found):
            return found
        kind = _class_of(found, module)
        return None if kind is None else kind(**arguments)
    except (TypeError, ValueError):  # Keras will refuse it, and say why
        return None


def _class_of(function: Any, module: Any) -> type | None:
    """The class that computes what a function of Keras does: of the module if it has one, or of the other."""
    name = function.__name__
    if not any(getattr(keras_module, name, None) is function for keras_module in MODULES[:2]):
        return None
    kinds = [kind for kind in RULES if kind.__name__.lower() == name.replace("_", "")]
    return next(iter(sorted(kinds, key=lambda kind: getattr(module, kind.__name__, None) is not kind)), None)


def _made(known: Any, config: dict, identifier: Any) -> Any:
    """An instance of the class of `known` with another config: with the dtype, which Keras' losses leave out, and the name of a string."""
    if isinstance(known, keras.losses.Loss):
        config = {"dtype": known.dtype, **config}
    if isinstance(identifier, str):
        config = {**config, "name": identifier}
    return type(known).from_config(config)
