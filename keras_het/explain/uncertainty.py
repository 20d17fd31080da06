"""How uncertain the prediction of each example is, and how much of this comes from the noise of the logits."""

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
from keras_het.links import Link
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.ops.normal import DiagonalNormal
from keras_het.ops.streaming import expectation
from keras_het.reading.head_noise import noisy_ending, standardized, variances

BLOCK_NUMBERS = 1 << 24  # logits that are held at once; more may not fit in memory


@dataclasses.dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of each example, `(N,)`.

    Entropies are in nats, at most log K, or K log 2 for labels that are not exclusive.

    Attributes:
        entropy: entropy of the predicted probabilities, H[E p]: how uncertain the label is, whatever the reason.
        expected_entropy: the mean over the noise of the entropy of each draw, E H[p]: the uncertainty that would be
            left if the logits were known.
        difference: difference of the two entropies, at least 0: the mutual information of the label and the noise.
        noise_sd: the root mean square over the classes of the standard deviation of the logits, in temperatures.
    """

    entropy: np.ndarray
    expected_entropy: np.ndarray
    difference: np.ndarray
    noise_sd: np.ndarray


def uncertainty(
    model: keras.Model, x: Any, *, layer: str | None = None, num_samples: int = 256, batch_size: int = 128
) -> Uncertainty:
    """The uncertainty of each example by a model's head.

        H[E p] = E H[p] + I,      p = softmax(u / temperature), u ~ N(mu(x), Sigma(x))

    For the link "normal_cdf", p is the link's output for logits without noise, and E p is near the head's prediction,
    but not equal to it.

    No part is "aleatoric" or "epistemic" alone: studies measured that the variance of logits grows with both, and so do
    the parts of the entropy. The noise of a head says that examples like this one have labels that differ; a class that
    was never seen may look the same.

    Args:
        model: functional or Sequential, with a `HeteroscedasticDense` somewhere; it does not change.
        x: inputs of the model: arrays, or a data set of batches, whose labels do not count.
        layer: name of the head, if there are several.
        num_samples: nodes over which the entropies are averaged; at least 1.
        batch_size: size of the batches of the predictions from arrays.
    Returns:
        `Uncertainty`.
    Raises:
        ValueError: for a model without a graph, with several outputs or without such a head, no example, or arguments
            out of range.
    Source: Depeweg et al. 2018, "Decomposition of uncertainty", Eq. 5, with the noise of the logits in place of the
        weights; that the parts are not pure: Mucsanyi, Kirchhof and Oh 2024, "Benchmarking uncertainty
        disentanglement".

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> head = HeteroscedasticDense(3, num_factors=1)
        >>> found = uncertainty(keras.Sequential([keras.Input((4,)), head]), np.zeros((2, 4)))
        >>> bool((found.entropy >= found.expected_entropy).all()), bool((found.entropy <= np.log(3) + 1e-6).all())
        (True, True)
    """
    ending = noisy_ending(model, layer)
    head = ending.head
    features, size = predictor(model, ending.features), head.covariance.size
    nodes = quasi_random((0, 0), check_integer("num_samples", num_samples, 1), size[0], size[1], np)
    rows = max(1, BLOCK_NUMBERS // (num_samples * head.units))
    parts = []
    for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1)):
        batch = ops.convert_to_numpy(features(inputs))
        batch = batch.reshape(-1, batch.shape[-1])
        parts += [_of_block(head, batch[start : start + rows], nodes) for start in range(0, len(batch), rows)]
    refuse_if(not parts, "x", "have at least one example", "none")
    entropy, expected, noise_sd = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Uncertainty(entropy, expected, entropy - expected, noise_sd)


def _of_block(
    head: HeteroscedasticDense, features: np.ndarray, nodes: Nodes
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two entropies and the noise of some examples."""
    normal = standardized(head, features)
    outputs = outputs_of_logits(head.link, normal.logits(Nodes(*map(ops.convert_to_tensor, nodes))))
    exclusive = head.link.activation == "softmax"
    mean = ops.convert_to_numpy(_entropy(outputs, exclusive)).astype("float64").mean(axis=1)
    whole = ops.convert_to_numpy(_entropy(head.link.average(outputs, axis=1), exclusive)).astype("float64")
    return np.maximum(whole, mean), mean, np.sqrt(variances(head, normal).mean(axis=-1))  # rounding may take it below


def outputs_of_logits(link: Link, logits: Any) -> Any:
    """The outputs of a head for known logits in temperatures, without noise; both `(..., K)`."""
    nodes = Nodes(ops.zeros((1, logits.shape[-1])))
    return link.from_mean(expectation(link.mean, DiagonalNormal(logits, ops.zeros_like(logits)), nodes, streamed=False))


def _entropy(outputs: Any, exclusive: bool) -> Any:
    """The entropy of a head's outputs, in nats, `(..., K)` to `(...,)`; if not exclusive, summed over K labels."""
    if exclusive:
        return -ops.sum(ops.exp(outputs) * ops.maximum(outputs, -1e4), axis=-1)  # 0 times -inf is nan
    yes, no = ops.log_sigmoid(outputs), ops.log_sigmoid(-outputs)
    return -ops.sum(ops.exp(yes) * yes + ops.exp(no) * no, axis=-1)
