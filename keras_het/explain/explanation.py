"""Uncertainty of predictions with the part from the noise of the logits, and explanation of one prediction."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches, count_examples
from keras_het.base.graph import predictor
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import as_float64, check_class_names, check_integer
from keras_het.explain.head_covariance import NEGATIVE_MEANING, POSITIVE_MEANING, ConfusedPair
from keras_het.layers import HeteroscedasticDense
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.reading.head_noise import logit_normal, noisy_ending, variances

BLOCK_ELEMENTS = 1 << 24  # logits that are held at once


@dataclasses.dataclass(frozen=True)
class Uncertainty:
    """Uncertainty of each example, `(N,)`; for sequences and images of each position, padding included.

    Entropies are in nats, at most log K, or K log 2 for labels that are not exclusive.

    Attributes:
        entropy: entropy of the predicted probabilities, H[E p]: the total uncertainty of the label.
        expected_entropy: mean over the noise of the entropy, E H[p]: the uncertainty that remains without the noise.
        difference: difference of the two entropies, at least 0: the mutual information of label and noise.
        noise_sd: standard deviation of the logits, in temperatures, as a root mean square over the classes.
    """

    entropy: np.ndarray
    expected_entropy: np.ndarray
    difference: np.ndarray
    noise_sd: np.ndarray


def uncertainty(
    model: keras.Model, x: Any, *, layer: str | None = None, num_samples: int = 256, batch_size: int = 128
) -> Uncertainty:
    """Computes the uncertainty of each example with a model's head.

        H[E p] = E H[p] + I,      p = softmax(u / temperature), u ~ N(mu(x), Sigma(x))

    Neither part is purely aleatoric or purely epistemic: both parts grow with both kinds of uncertainty. The noise of a
    head means that similar examples have different labels, but an out-of-distribution example can look the same.

    Args:
        model: functional or Sequential model with a `HeteroscedasticDense`.
        x: inputs of the model: arrays, or a data set of batches in a fixed order, whose labels are ignored.
        layer: name of the head, if there are several.
        num_samples: number of nodes over which entropies are averaged; at least 1.
        batch_size: batch size of the predictions from arrays.
    Returns:
        `Uncertainty`.
    Raises:
        ValueError: for a model without a graph, with several outputs or without a head, no example, or arguments out of
            range.
    Source: Depeweg et al. 2018, "Decomposition of uncertainty", Eq. 5, with the noise of the logits in place of the
        weights; on impure parts: Mucsanyi, Kirchhof and Oh 2024, "Benchmarking uncertainty disentanglement".

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> head = HeteroscedasticDense(3, num_factors=1)
        >>> result = uncertainty(keras.Sequential([keras.Input((4,)), head]), np.zeros((2, 4)))
        >>> bool((result.entropy >= result.expected_entropy).all()), bool((result.entropy <= np.log(3) + 1e-6).all())
        (True, True)
    """
    ending = noisy_ending(model, layer)
    head = ending.head
    features, size = predictor(model, ending.features), head.covariance.size
    nodes = quasi_random((0, 0), check_integer("num_samples", num_samples, 1), size[0], size[1], np)
    rows = max(1, BLOCK_ELEMENTS // (num_samples * head.units))
    parts = []
    for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1)):
        batch = ops.convert_to_numpy(features(inputs))
        batch = batch.reshape(-1, batch.shape[-1])
        parts += [_compute_block(head, batch[start : start + rows], nodes) for start in range(0, len(batch), rows)]
    refuse_if(not parts, "x", "have at least one example", "none")
    entropy, expected, noise_sd = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Uncertainty(entropy, expected, entropy - expected, noise_sd)


def _compute_block(
    head: HeteroscedasticDense, features: np.ndarray, nodes: Nodes
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    normal = logit_normal(head, features)
    logits, mean = normal.logits(Nodes(*map(ops.convert_to_tensor, nodes))), head.link.mean
    outputs = head.link.from_mean(mean.result(list(mean.log_terms(logits, axis=-1))))  # without noise
    is_exclusive = head.link.activation == "softmax"
    expected = ops.convert_to_numpy(_entropy(outputs, is_exclusive)).astype("float64").mean(axis=1)
    entropy = ops.convert_to_numpy(_entropy(head.link.average(outputs, axis=1), is_exclusive)).astype("float64")
    # Without the maximum, rounding could give a negative difference.
    return np.maximum(entropy, expected), expected, np.sqrt(variances(head, normal).mean(axis=-1))


def _entropy(outputs: Any, is_exclusive: bool) -> Any:
    """Computes the entropy of a head's outputs, `(..., K)`, in nats, `(...,)`; a sum over labels if not exclusive."""
    if is_exclusive:
        return -ops.sum(ops.exp(outputs) * ops.maximum(outputs, -1e4), axis=-1)  # 0 times -inf is nan
    yes, no = ops.log_sigmoid(outputs), ops.log_sigmoid(-outputs)
    return -ops.sum(ops.exp(yes) * yes + ops.exp(no) * no, axis=-1)


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
