"""The explanation of one example by a head: classes, confused pairs and uncertainty."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import count_examples
from keras_het.base.graph import predictor
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names, check_integer
from keras_het.explain.covariance import ConfusedPair
from keras_het.explain.uncertainty import Uncertainty, uncertainty
from keras_het.reading.head_noise import covariance_with, noisy_ending, standardized, variances


@dataclasses.dataclass(frozen=True)
class PredictedClass:
    """A class that a head gives one example.

    Attributes:
        name: name of the class.
        probability: probability of the class, in [0, 1].
        noise_sd: standard deviation of its logit's noise, in temperatures.
    """

    name: Any
    probability: float
    noise_sd: float


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The explanation of one example by a head; it prints as text.

    Attributes:
        classes: the most probable classes, in order.
        pairs: pairs of one of these classes with any class, the largest covariances in absolute value first.
        uncertainty: `Uncertainty` of the example, as numbers.
    """

    classes: list[PredictedClass]
    pairs: list[ConfusedPair]
    uncertainty: Any

    def __str__(self) -> str:
        lines = [
            f"{one.name}: probability {one.probability:.3f}, noise {one.noise_sd:.2f} temperatures"
            for one in self.classes
        ]
        for pair in self.pairs:
            how = "rise and fall together" if pair.covariance > 0 else "one rises where the other falls"
            lines.append(
                f"{pair.first} and {pair.second}: {how} (covariance {pair.covariance:.3g}, correlation "
                f"{pair.correlation:.2f})"
            )
        entropy, difference = self.uncertainty.entropy, self.uncertainty.difference
        expected = self.uncertainty.expected_entropy
        lines.append(
            f"entropy {entropy:.3f} nats: {expected:.3f} if the noise were known, {difference:.3f} by the noise"
        )
        return "\n".join(lines)


def explain(
    model: keras.Model,
    x: Any,
    class_names: Sequence | Mapping | None = None,
    count: int = 3,
    *,
    layer: str | None = None,
) -> Explanation:
    """Explains one example by a model's head: its most probable classes, the pairs it confuses, and its uncertainty.

    The covariances are at this example. Positive: an example that may be one class may be the other, too. Negative: the
    label is one or the other.

    Args:
        model: functional or Sequential, with a `HeteroscedasticDense` somewhere; it does not change.
        x: one example with a batch axis, such as x[:1].
        class_names: K names, a sequence or a dict {class: name}; None for numbers.
        count: the number of classes and of pairs; at least 1.
        layer: name of the head, if there are several.
    Returns:
        `Explanation`.
    Raises:
        ValueError: for a model without such a head, another number of examples, or arguments out of range.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((4,)), HeteroscedasticDense(3, num_factors=1)])
        >>> _ = model.layers[0].loc_layer.bias.assign([0.0, 9.0, 3.0])
        >>> [one.name for one in explain(model, np.zeros((1, 4)), ["cat", "dog", "owl"], count=2).classes]
        ['dog', 'owl']
    """
    if count_examples(x) != 1:
        raise refusal("x", "be one example, with an axis before it, as x[:1]", f"{count_examples(x)} examples")
    ending = noisy_ending(model, layer)
    head = ending.head
    names = check_class_names(class_names, head.units)
    features = ops.convert_to_numpy(predictor(model, ending.features)(x))
    rule = "end in a head on features (N, D), one prediction for each example, to be explained"
    refuse_if(features.ndim != 2, "The model", rule, f"features of shape {features.shape}")
    p = ops.convert_to_numpy(head.probabilities(features))[0]
    top = np.argsort(-p, kind="stable")[: check_integer("count", count, 1)]
    normal = standardized(head, features.repeat(len(top), axis=0))
    rows, deviations = covariance_with(head, normal, top), np.sqrt(variances(head, normal)[0])
    classes = [PredictedClass(names[i], float(p[i]), float(deviations[i])) for i in top]
    pairs = [
        ConfusedPair(names[i], names[j], float(value), float(value / (deviations[i] * deviations[j])))
        for i, j, value in _largest(rows, top, len(top))
        if value
    ]
    of_example = uncertainty(model, x, layer=layer)
    return Explanation(classes, pairs, Uncertainty(**{name: part[0] for name, part in vars(of_example).items()}))


def _largest(rows: np.ndarray, classes: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """The pairs of the largest entries in absolute value of the rows of these classes, `(C, K)`; each pair once."""
    sizes = np.abs(rows)
    for place in range(len(classes)):
        sizes[place, classes[: place + 1]] = -1.0  # else a class would pair with itself, and a pair come twice
    order = np.argsort(-sizes, axis=None, kind="stable")[:count]
    found = zip(*np.unravel_index(order, sizes.shape), strict=True)
    return [(int(classes[i]), int(j), float(rows[i, j])) for i, j in found if sizes[i, j] >= 0]
