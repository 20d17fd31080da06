"""Joint distributions of label vectors: their probabilities, samples, and conditional probabilities of each label."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops
from scipy.special import expit

from keras_het.base.batches import as_numpy
from keras_het.base.refusal import refusal
from keras_het.base.seeds import random_generator
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_integer, check_label_vectors
from keras_het.layers import JointHeteroscedasticDense
from keras_het.ops.label_vectors import log_joint_labels
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.ops.packed import unpack
from keras_het.ops.sigmoid import log_expected_sigmoid

BLOCK_ELEMENTS = 1 << 22  # logits that are held at once


@dataclasses.dataclass(frozen=True)
class JointLabels:
    """Joint distributions of the label vectors of N examples; see `joint_labels`.

    Attributes:
        probabilities: marginal probabilities of the labels, `(N, C)`.
        outputs: outputs of the head: the Gaussians of the logits, `(N, C (2 + R) + 1)`.
        num_samples: S, the number of nodes of an expectation over the factors.
    """

    probabilities: np.ndarray
    outputs: np.ndarray
    num_samples: int

    def log_prob(self, labels: Any) -> np.ndarray:
        """Computes the log-probability of a label vector for each example, `(N,)`.

        `labels` are `(N, C)`, or `(C,)` for all examples: 0, 1, or -1 to sum over a label.
        """
        y = self._broadcast(labels)
        return self._map_blocks(lambda normal, part: log_joint_labels(normal, part, self._nodes(normal)), y)

    def most_likely(self, candidates: Any) -> np.ndarray:
        """Returns the index of the most probable candidate for each example, `(N,)`.

        `candidates` are label vectors of zeros and ones, `(M, C)`; for example all in the data, `np.unique(y, axis=0)`.
        """
        vectors = np.asarray(as_numpy(candidates))
        has_shape = vectors.ndim == 2 and len(vectors) and vectors.shape[1] == self._units
        if not has_shape or not np.isin(vectors, (0, 1)).all():
            raise refusal("candidates", f"be 0 or 1, of shape (M, {self._units}), M > 0", shape=vectors)
        vectors = ops.convert_to_tensor(vectors, "float32")

        def best(normal: Any, _: np.ndarray) -> Tensor:
            log_p, log_q = _at_nodes(normal, self._nodes(normal))
            log_joint = ops.matmul(log_p, ops.transpose(vectors)) + ops.matmul(log_q, ops.transpose(1.0 - vectors))
            return ops.argmax(ops.logsumexp(log_joint, axis=-2), axis=-1)

        return self._map_blocks(best, self.probabilities, len(vectors))

    def conditional_probabilities(self, labels: Any) -> np.ndarray:
        """Computes the probability that each label is 1, given the other labels of the example, `(N, C)`.

            p(y_c = 1 | other labels) = E[w_c p(1 | e_R)] / E[w_c],     w_c = prod_{k != c} p(y_k | e_R)

        A label with a high marginal probability and a low conditional probability does not fit the labels beside it,
        and is probably an error. A missing label, -1, gets its probability from the known labels.
        """
        return self._map_blocks(lambda normal, y: _conditional(normal, y, self._nodes(normal)), self._broadcast(labels))

    def sample(self, num_samples: int = 1, seed: int = 0) -> np.ndarray:
        """Draws S = `num_samples` label vectors of each example from the joint distribution, `(S, N, C)`, int8."""
        rng, normal = random_generator(seed), unpack(ops.convert_to_tensor(self.outputs), self._units).normal
        draws = []
        loc, scale, factor = (ops.convert_to_numpy(x) for x in (normal.loc, normal.scale_diag, normal.scaled_factor()))
        for _ in range(check_integer("num_samples", num_samples, 1)):
            noise = rng.standard_normal((len(loc), factor.shape[-1])).astype("float32")
            u = loc + scale * rng.standard_normal(loc.shape) + np.einsum("ncr,nr->nc", factor, noise)
            draws.append(rng.random(loc.shape) < expit(u))
        return np.stack(draws).astype("int8")

    @property
    def _units(self) -> int:
        return self.probabilities.shape[1]

    def _broadcast(self, labels: Any) -> np.ndarray:
        y = check_label_vectors(labels, (self.probabilities.shape, (self._units,)))
        return np.broadcast_to(y, self.probabilities.shape)

    def _nodes(self, normal: Any) -> Nodes:
        factors = normal.size[1]
        return quasi_random((0, 0), self.num_samples if factors else 1, 0, factors, np)

    def _map_blocks(self, function: Any, labels: np.ndarray, width: int = 0) -> np.ndarray:
        """Applies a function of (Gaussian, labels) block by block; a node has max(C, `width`) numbers."""
        rows, parts = max(1, BLOCK_ELEMENTS // (self.num_samples * max(width, self._units))), []
        for start in range(0, len(labels), rows):
            part = slice(start, start + rows)
            normal = unpack(ops.convert_to_tensor(self.outputs[part]), self._units).normal
            parts.append(ops.convert_to_numpy(function(normal, labels[part])))
        return np.concatenate(parts)


def joint_labels(model: Any, x: Any, *, num_samples: int = 256, batch_size: int = 128) -> JointLabels:
    """Predicts the joint distributions of label vectors with a `layers.JointHeteroscedasticDense`.

        p(y | x) = E_{e_R}[ prod_c p(y_c | e_R, x) ]

    Marginal probabilities do not tell which labels occur together. Rounding each of them can give an improbable vector.

    Args:
        model: a `models.DistributionModel` that ends in the head, with a sigmoid link.
        x: argument of `predict`.
        num_samples: S, the number of nodes for the factors.
        batch_size: batch size of the predictions.
    Returns:
        `JointLabels`.
    Raises:
        ValueError: for another model.
    Source: Collier et al. 2021, section 2; Monteiro et al. 2020, section 3, for pixels.

    Example:
        >>> import keras
        >>> from keras_het.models import DistributionModel
        >>> inputs = keras.Input((4,))
        >>> model = DistributionModel(inputs, JointHeteroscedasticDense(3, num_factors=1)(inputs))
        >>> joint = joint_labels(model, np.zeros((5, 4)))
        >>> joint.log_prob([1, 0, 1]).shape, joint.sample(10).shape, joint.conditional_probabilities([1, 0, -1]).shape
        ((5,), (10, 5, 3), (5, 3))
    """
    head = getattr(model, "head", None)
    if not isinstance(head, JointHeteroscedasticDense) or head.link.activation != "sigmoid":
        raise refusal("model", "be a DistributionModel of a JointHeteroscedasticDense with a sigmoid link", kind=model)
    outputs = model.predict_distribution(x, batch_size=check_integer("batch_size", batch_size, 1), verbose=0)
    return JointLabels(
        ops.convert_to_numpy(head.predictions(ops.convert_to_tensor(outputs))),
        outputs,
        check_integer("num_samples", num_samples, 1, 1 << 20),
    )


def _conditional(normal: Any, labels: np.ndarray, nodes: Nodes) -> Tensor:
    log_p, log_q = _at_nodes(normal, nodes)
    y = ops.convert_to_tensor(labels)[..., None, :]
    log_label = ops.where(ops.equal(y, 1), log_p, ops.where(ops.equal(y, 0), log_q, 0.0))
    log_rest = ops.sum(log_label, axis=-1, keepdims=True) - log_label
    return ops.exp(ops.logsumexp(log_rest + log_p, axis=-2) - ops.logsumexp(log_rest, axis=-2))


def _at_nodes(normal: Any, nodes: Nodes) -> tuple[Tensor, Tensor]:
    """Computes the log-probabilities of the labels 1 and 0 at every node of the factors, `(B, S, C)`."""
    noise = ops.matmul(ops.convert_to_tensor(nodes.eps_factor), ops.swapaxes(normal.scaled_factor(), -1, -2))
    return log_expected_sigmoid(normal.loc[..., None, :] + noise, ops.square(normal.scale_diag)[..., None, :])
