"""The joint likelihood of a label vector under a Gaussian of logits, where correlations between labels matter.

Given the noise of the factors, the labels are independent, and the own noise of each has a closed form. So only the
factors are averaged over nodes, and a node has one number, the log-likelihood of the whole vector.
"""

from typing import Any

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.nodes import Nodes
from keras_het.ops.recomputed import log_mean_over_nodes
from keras_het.ops.sigmoid import log_expected_sigmoid

MISSING = -1  # a label that is not known


def log_joint_labels(
    normal: Any,
    labels: Tensor,
    nodes: Nodes,
    flips: tuple[Tensor, Tensor] | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """The log-probability of label vectors under Gaussian logits, averaged over nodes of the factors.

        log p(y) = log E_{e_R}[ prod_c p(y_c | e_R) ],     p(1 | e_R) = q_c + (1 - q_c - f_c) E_{e_c}[sigmoid(u_c)]

    Here u = mu + d e_K + V e_R; f_c = p(label 0 | true label 1) and q_c = p(label 1 | true label 0). The expectation
    over e_c is in closed form (`log_expected_sigmoid`, error of its log below 1e-4). So the error of the nodes is one
    of R dimensions, whatever C is, and there is none without factors. The correlations of the logits get a gradient;
    from the marginal likelihood, the sum of log E[p(y_c | u_c)], they get none.

    Args:
        normal: the Gaussian of u in temperatures, with `loc`, `scale_diag` and `scaled_factor()`.
        labels: 0, 1, or -1 for one that is not known and counts for nothing, `(..., C)`; any other number gives nan.
        nodes: `Nodes` of R factors; their e_K are not used.
        flips: (f, q), each of shape `(C,)` or `(..., C)`; None for right labels.
        chunk_size: number of nodes of a chunk, which bounds the memory; None chooses it.
    Returns:
        shape `(...,)`.
    Source: Collier et al. 2021, section 2, which averages the product over samples of u.

    Example:
        >>> from keras_het.ops.low_rank import low_rank_normal
        >>> from keras_het.ops.nodes import quasi_random
        >>> normal = low_rank_normal(ops.zeros((1, 2)), ops.zeros((1, 2)), 5.0 * ops.ones((1, 2, 1)))
        >>> nodes = quasi_random((0, 0), num_samples=256, units=0, num_factors=1)
        >>> [round(float(ops.exp(log_joint_labels(normal, ops.array([y]), nodes))[0]), 2) for y in ([1, 1], [1, 0])]
        [0.42, 0.08]
    """
    rows = _rows(normal, labels, flips)
    return log_mean_over_nodes(_log_likelihoods, nodes, rows, rows[2].shape[-2], chunk_size)


def _rows(normal: Any, labels: Tensor, flips: tuple[Tensor, Tensor] | None) -> tuple[Tensor, ...]:
    """Returns means, standard deviations and factors with the signs of the labels, and two probabilities.

    The probability of a label given the noise is floor + kept p: `floor` is its probability if the true label is the
    other one, 1 for an unknown label, whose `kept` is 0.
    """
    loc = normal.loc
    labels = ops.cast(ops.convert_to_tensor(labels), loc.dtype)
    positive, negative, missing = (ops.equal(labels, value) for value in (1.0, 0.0, MISSING))
    sign = ops.where(positive, 1.0, -1.0)
    hidden, false = (ops.zeros_like(loc), ops.zeros_like(loc)) if flips is None else (_like(x, loc) for x in flips)
    known = ops.logical_or(positive, negative)
    kept = ops.where(known, 1.0 - hidden - false, ops.where(missing, 0.0, float("nan")))
    floor = ops.where(known, ops.where(positive, false, hidden), 1.0)
    return sign * loc, normal.scale_diag, sign[..., None] * normal.scaled_factor(), floor, kept


def _like(x: Tensor, loc: Tensor) -> Tensor:
    return ops.convert_to_tensor(x, loc.dtype) + ops.zeros_like(loc)


def _log_likelihoods(
    noise: Tensor, loc: Tensor, scale_diag: Tensor, factor: Tensor, floor: Tensor, kept: Tensor
) -> Tensor:
    """sum_c log(floor_c + kept_c E[sigmoid(u_c)]) at a chunk of noise, `(R, nodes)`: `(..., nodes)`."""
    u = loc[..., None] + ops.matmul(factor, noise)
    log_p = log_expected_sigmoid(u, ops.square(scale_diag)[..., None])[0]
    floor, kept = floor[..., None], kept[..., None]
    has_floor = floor > 0
    mixed = ops.log(ops.where(has_floor, floor, 1.0) + kept * ops.exp(log_p))  # at least the floor: no underflow
    mixed = ops.where(has_floor, mixed, log_p + ops.log(ops.where(has_floor, 1.0, kept)))
    return ops.sum(mixed, axis=-2)
