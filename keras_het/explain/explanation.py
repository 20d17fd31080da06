"""Explanation of one prediction of a head: classes, confused pairs and uncertainty."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import count_examples
from keras_het.base.graph import predictor
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import as_float64, check_class_names, check_integer
from keras_het.explain.entropy import Uncertainty, uncertainty
from keras_het.explain.head_covariance import NEGATIVE_MEANING, POSITIVE_MEANING, ConfusedPair
from keras_het.reading.head_noise import noisy_ending


@dataclasses.dataclass(frozen=True)
class PredictedClass:
    """Class that a head predicts for one example.

    Attributes:
        name: name of the class.
        probability: probability of the class, in [0, 1].
        noise_sd: standard deviation of the noise of its logit, in temperatures.
    """

    name: Any
    probability: float
    noise_sd: float


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Explanation of one prediction of a head; it prints as text.

    Attributes:
        classes: the most probable classes, in order.
        pairs: pairs with one of these classes, the largest absolute covariance first.
        uncertainty: `Uncertainty` of the example, as numbers.
    """

    classes: list[PredictedClass]
    pairs: list[ConfusedPair]
    uncertainty: Any

    def __str__(self) -> str:
        lines = [
            f"{each.name}: probability {each.probability:.3f} (noise of the logit {each.noise_sd:.2f} temperatures)"
            for each in self.classes
        ]
        for pair in self.pairs:
            meaning = POSITIVE_MEANING if pair.covariance > 0 else NEGATIVE_MEANING
            numbers = f"correlation {pair.correlation:.2f}, covariance {pair.covariance:.3g}"
            lines.append(f"{pair.first} and {pair.second}: {meaning} ({numbers})")
        total, noise, rest = (vars(self.uncertainty)[name] for name in ("entropy", "difference", "expected_entropy"))
        lines.append(f"uncertainty {total:.3f} nats (entropy): {noise:.3f} from the noise, {rest:.3f} without it")
        return "\n".join(lines)


def explain(
    model: keras.Model,
    x: Any,
    class_names: Sequence | Mapping | None = None,
    count: int = 3,
    *,
    layer: str | None = None,
) -> Explanation:
    """Explains one prediction: its most probable classes, the pairs of classes that it confuses, and its uncertainty.

    The covariances hold for this example. Positive: both classes are plausible, or neither. Negative: one or the other.

    Args:
        model: functional or Sequential model with a `HeteroscedasticDense`.
        x: one example with a batch axis, such as x[:1].
        class_names: K names, a sequence or a dict {class: name}; None for numbers.
        count: number of classes and of pairs; at least 1.
        layer: name of the head, if there are several.
    Returns:
        `Explanation`.
    Raises:
        ValueError: for a model without a head, another number of examples, or arguments out of range.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((4,)), HeteroscedasticDense(3, num_factors=1)])
        >>> _ = model.layers[0].loc_layer.bias.assign([0.0, 9.0, 3.0])
        >>> [each.name for each in explain(model, np.zeros((1, 4)), ["cat", "dog", "owl"], count=2).classes]
        ['dog', 'owl']
    """
    if count_examples(x) != 1:
        raise refusal("x", "be one example with a batch axis, such as x[:1]", f"{count_examples(x)} examples")
    ending = noisy_ending(model, layer)
    head = ending.head
    names = check_class_names(class_names, head.units)
    features = ops.convert_to_numpy(predictor(model, ending.features)(x))
    rule = "make one prediction for each example, from features of shape (N, D)"
    refuse_if(features.ndim != 2, "The model", rule, f"features of shape {features.shape}")
    p = ops.convert_to_numpy(head.probabilities(features))[0]
    top = np.argsort(-p, kind="stable")[: check_integer("count", count, 1)]
    matrix = ops.convert_to_numpy(head.logit_covariance(features)[0])
    deviations = np.sqrt(as_float64(matrix.diagonal())) / head.temperature
    rows = as_float64(matrix[top]) / head.temperature**2
    classes = [PredictedClass(names[i], float(p[i]), float(deviations[i])) for i in top]
    pairs = [
        ConfusedPair(names[i], names[j], float(value), float(value / (deviations[i] * deviations[j])))
        for i, j, value in _largest_pairs(rows, top, len(top))
        if value
    ]
    parts = {name: values[0] for name, values in vars(uncertainty(model, x, layer=layer)).items()}
    return Explanation(classes, pairs, Uncertainty(**parts))


def _largest_pairs(rows: np.ndarray, classes: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    sizes = np.abs(rows)
    for index in range(len(classes)):
        sizes[index, classes[: index + 1]] = -1.0  # else a class would pair with itself, and a pair would come twice
    order = np.argsort(-sizes, axis=None, kind="stable")[:count]
    entries = zip(*np.unravel_index(order, sizes.shape), strict=True)
    return [(int(classes[i]), int(j), float(rows[i, j])) for i, j in entries if sizes[i, j] >= 0]
