"""Rules for the outputs that losses and metrics accept, and the loss or metric that fits an output."""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras

from keras_het import losses, metrics
from keras_het.base.internals import argument_of
from keras_het.base.rebuild import rebuild
from keras_het.losses.crossentropy import Crossentropy


class Rule(NamedTuple):
    """Outputs that a loss or metric accepts.

    Attributes:
        activation: "softmax" or "sigmoid" if only outputs of links with this activation are accepted; "" if only
            numbers of a regression are; else None.
        fit: function of a config and an `Ending` that returns the config for this output, or None.
    """

    activation: str | None
    fit: Callable[[dict, Any], dict | None]


def _from_logits(config, output):
    return {**config, "from_logits": output.returns != "probabilities"}


def _only(*returns: str) -> Callable[[dict, Any], dict | None]:
    """Returns the `fit` of losses and metrics that accept only outputs of these kinds."""
    return lambda config, output: config if output.returns in returns else None


def _any(config, output):
    return config


_numbers = _only("probabilities", "numbers")
fit_distributions = _only("distributions", "anything")


def _per_class(fit: Callable[[dict, Any], dict | None]) -> Callable[[dict, Any], dict | None]:
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
    """Converts the threshold 1/2 to the logit 0; refuses other thresholds, which Keras refuses too, without `top_k`."""
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
    """Refuses log-probabilities: Keras ignores a largest output of zero, which they can round to, without threshold."""
    fits = output.returns == "probabilities" or (output.returns == "logits" and config["threshold"] is None)
    return config if fits else None


def _overlap(config, output):
    """Compares the index of the largest output, not outputs as indices, and counts all classes of the model."""
    return {**config, "num_classes": max(config["num_classes"], output.units), "sparse_y_pred": False}


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
    Rule(None, _overlap): "IoU MeanIoU OneHotIoU OneHotMeanIoU",
    Rule(None, _any): "Accuracy CategoricalAccuracy SparseCategoricalAccuracy TopKCategoricalAccuracy "
    "SparseTopKCategoricalAccuracy",
    Rule(None, _only("probabilities", "log-probabilities", "logits", "numbers")): "CategoricalHinge",
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
SHIFT_INVARIANT_FITS = (_from_logits, _predicted_class, _overlap, _any)
# Losses and metrics that wrap another one, and their attributes.
WRAPPERS: dict[type, str] = {losses.AnnotatorsLoss: "loss", metrics.AnnotatorsMetric: "metric"}
# Forms of labels of losses for classes. A `Crossentropy` accepts "either" integers or vectors, other losses numbers.
LABEL_FORMS = {
    keras.losses.SparseCategoricalCrossentropy: "integers",
    keras.losses.CategoricalCrossentropy: "vectors",
    keras.losses.CategoricalFocalCrossentropy: "vectors",
    keras.losses.CategoricalGeneralizedCrossEntropy: "vectors",
    keras.losses.CategoricalHinge: "vectors",
    keras.losses.KLDivergence: "vectors",
    keras.losses.BinaryCrossentropy: "each",
    keras.losses.BinaryFocalCrossentropy: "each",
    losses.JointMultiLabelCrossentropy: "each or missing",
    losses.JointSegmentationCrossentropy: "integers",
    losses.MultivariateNormalNLL: "targets",
}


class Criterion:
    """A loss or metric in any form that `compile` accepts, resolved once.

    Args:
        identifier: string, function, class, instance or config.
        module: `keras.losses` or `keras.metrics`, where strings are looked up.

    Attributes:
        binary_name: meaning for one unit of a string that Keras resolves by shapes; "" for any other identifier.
        wrapper: `AnnotatorsLoss`, `AnnotatorsMetric` or None.
        inner: `Criterion` inside the wrapper, which has the next attributes; else None.
        instance: the loss or metric, unless it is a function that is not from Keras; then None.
        kind: known class whose computing methods the instance has or inherits, or None.
        rule: `Rule` of `kind`, or None.
        is_known: boolean, whether it is from Keras or this package, or inherits its computation.
        is_regression: boolean, whether it compares numbers, like the squared error.
        ignores_shift: boolean, whether the same number added to all logits of an example changes nothing.
        activation: activation that it needs, "softmax" or "sigmoid"; None if any, or unknown.
        ignored_label: label that a loss ignores, or None.

    Example:
        >>> Criterion("sparse_categorical_crossentropy").label_form(units=3)
        'integers'
    """

    def __init__(self, identifier: Any, module: Any = keras.losses) -> None:
        self.identifier, self.module = identifier, module
        self.binary_name = SHAPE_DEPENDENT_NAMES.get(identifier.lower(), "") if isinstance(identifier, str) else ""
        self.instance: Any = _get_instance(self.binary_name or identifier, module)
        self.wrapper: Any = next((kind for kind in WRAPPERS if isinstance(self.instance, kind)), None)
        self.inner = Criterion(getattr(self.instance, WRAPPERS[self.wrapper]), module) if self.wrapper else None
        self.instance = self.inner.instance if self.inner else self.instance
        self.kind = _known_class(self.instance)
        self.rule = find_rule(self.kind)
        self.is_known = self.kind is not None
        self.is_regression = self.rule is not None and self.rule.fit is _numbers
        self.ignores_shift = bool(self.rule and (self.binary_name or self.rule.fit in SHIFT_INVARIANT_FITS))
        self.activation = self.rule.activation if self.rule and not self.binary_name else None
        self.ignored_label = argument_of(self.instance, "ignore_class")

    @property
    def loss(self) -> Any:
        """Loss: an instance of Keras or of this package, or the user's function."""
        return self.instance or keras.losses.get(self.identifier)

    @property
    def name(self) -> str:
        """Name of a known metric."""
        return self.identifier if isinstance(self.identifier, str) else self.instance.name

    def remedy(self, label: Any) -> str:
        """Returns how a metric leaves out a label that the loss ignores; "" if it does so already, or is unknown."""
        if not self.is_known or label == (-1 if self.inner else self.ignored_label):
            return ""
        has_argument = argument_of(self.instance, "ignore_class", "none") != "none"
        weights = f"Move them to `weighted_metrics`, and pass sample_weight=(y != {label})"
        return f"Pass ignore_class={label} to them" if has_argument else weights

    def label_form(self, units: int) -> str:
        """Returns the form of labels that a loss needs, for an output of `units` classes; "" if unknown.

        Forms are "integers", "vectors" or "either" for exclusive classes, "each" for a number in [0, 1] for each class,
        "each or missing" for 0, 1 or -1 for each class, "annotations" of several annotators, "targets" of a regression,
        and "numbers".
        """
        if self.inner:
            return "annotations"
        if self.binary_name:
            return "each" if units == 1 else "either"
        if self.kind is None or argument_of(self.instance, "axis", -1) != -1:  # classes on another axis
            return ""
        return "either" if issubclass(self.kind, Crossentropy) else LABEL_FORMS.get(self.kind, "numbers")

    @property
    def metric_label_form(self) -> str:
        """Form of exclusive labels that a metric of Keras needs, "integers" or "vectors"; "" if unknown."""
        if not self._keras_name:
            return ""
        is_sparse = self.instance.sparse_y_true if self._is_overlap else self._keras_name.startswith("Sparse")
        return "integers" if is_sparse else "vectors"

    def with_labels(self, form: str) -> Any:
        """Returns a metric like this one for another form of exclusive labels."""
        if not self._is_overlap:
            return "accuracy"
        kind = next(kind for kind in (keras.metrics.MeanIoU, keras.metrics.IoU) if issubclass(self.kind, kind))
        return kind(**{**self.kind.get_config(self.instance), "sparse_y_true": form == "integers"})

    @property
    def compares_largest(self) -> bool:
        """True if a metric of Keras compares the label with the largest outputs; "accuracy" depends on shapes."""
        return self._keras_name.endswith("CategoricalAccuracy")

    @property
    def _keras_name(self) -> str:
        is_keras = self.kind is not None and not self.binary_name and self.kind.__module__.startswith("keras.")
        return self.kind.__name__ if is_keras else ""

    @property
    def _is_overlap(self) -> bool:
        return self.rule is not None and self.rule.fit is _overlap

    def match(self, output: Any) -> Any:
        """Returns the form of the loss or metric that accepts an output and otherwise computes the same.

        A loss or metric that is not from Keras or this package is trusted. A subclass of a known class is known if it
        overrides no computing method.

        Args:
            output: `Ending` of the output.
        Returns:
            `identifier` itself if it fits; else an instance that fits, or None.
        """
        if self.inner:
            match = self.inner.match(output)
            return self.identifier if match is self.inner.identifier else match and self.wrapper(match)
        if self.binary_name and output.units != 1:
            fits = self.binary_name == "binary_accuracy" or output.returns == "probabilities"
            return self.identifier if fits else None
        if self.rule is None:
            return self.identifier
        if self._is_overlap and output.link == "sigmoid":
            return Criterion(keras.metrics.BinaryIoU(), self.module).match(output)
        if self.kind is keras.metrics.Accuracy:  # compares numbers, and probabilities never equal a label
            return Criterion("binary_accuracy" if output.link == "sigmoid" else "accuracy", self.module).match(output)
        is_misfit = output.returns == "distributions" and self.rule.fit is not fit_distributions
        if is_misfit or not _accepts_link(self.rule.activation, output):
            return None
        config = self.kind.get_config(self.instance)
        new_config = self.rule.fit(config, output)
        if new_config is None or new_config == config:
            return self.identifier if new_config == config else None
        name = {"name": self.identifier} if isinstance(self.identifier, str) else {}
        try:
            return rebuild(self.instance, **{**new_config, **name})
        except ValueError:
            return None


def find_criteria(argument: Any, module: Any = keras.losses) -> Iterator[Criterion]:
    """Yields the losses or metrics in nested lists and dicts; a dict with a `class_name` is one of them."""
    if isinstance(argument, dict) and "class_name" not in argument:
        argument = list(argument.values())
    if isinstance(argument, list | tuple):
        for part in argument:
            yield from find_criteria(part, module)
    elif argument is not None:
        yield Criterion(argument, module)


def _accepts_link(activation: str | None, output: Any) -> bool:
    """True if a loss for `activation` accepts the output; a softmax needs several classes."""
    if activation == "sigmoid" and output.returns == "probabilities":
        return True
    return activation is None or (activation == output.link and (activation, output.units) != ("softmax", 1))


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
