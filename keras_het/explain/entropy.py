"""Uncertainty of each prediction, and the part of it that comes from the noise of the logits."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches
from keras_het.base.graph import predictor
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_integer
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
