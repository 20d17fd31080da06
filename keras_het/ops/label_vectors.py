"""Joint likelihood of a label vector under a Gaussian of logits, which depends on the correlations of labels.

Given the factor noise, the labels are independent, and the diagonal noise of each label has a closed form. So only the
factors are averaged over nodes, and each node contributes one number, the log-likelihood of the whole vector.
"""

from typing import Any

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.nodes import Nodes
from keras_het.ops.recomputed import log_mean_over_nodes
from keras_het.ops.sigmoid import log_expected_sigmoid

MISSING_LABEL = -1


def log_joint_labels(
    normal: Any, labels: Tensor, nodes: Nodes, flips: tuple[Tensor, Tensor] = (0.0, 0.0), chunk_size: int | None = None
) -> Tensor:
    """Computes the log-probability of label vectors, `(...)`, under Gaussian logits, averaged over nodes.

        log p(y) = log E_{e_R}[ prod_c p(y_c | e_R) ],     p(1 | e_R) = q_c + (1 - q_c - f_c) E_{e_c}[sigmoid(u_c)]

    Here u = mu + d e_K + V e_R, f_c = p(label 0 | true label 1) and q_c = p(label 1 | true label 0). The expectation
    over e_c has a closed form (`log_expected_sigmoid`, error of its log below 1e-4). So the nodes cover R dimensions
    for any C, and without factors the result has no sampling error. The correlations of the logits get a gradient. In
    the marginal likelihood, the sum of log E[p(y_c | u_c)], they get none.

    Labels are 0, 1, or -1 for a missing label, which is ignored, `(..., C)`; any other number gives nan. The `flips`
    (f, q) are numbers, or of shape `(C,)` or `(..., C)`. The e_K of the nodes are not used.

    Source: Collier et al. 2021, section 2, which averages the product over samples of u.

    Example:
        >>> from keras_het.ops.low_rank import LowRankNormal
        >>> from keras_het.ops.nodes import quasi_random
        >>> normal = LowRankNormal(ops.zeros((1, 2)), ops.zeros((1, 2)), 5.0 * ops.ones((1, 2, 1)))
        >>> nodes = quasi_random((0, 0), num_samples=256, units=0, num_factors=1)
        >>> [round(float(ops.exp(log_joint_labels(normal, ops.array([y]), nodes))[0]), 2) for y in ([1, 1], [1, 0])]
        [0.42, 0.08]
    """
    rows = _rows(normal, labels, flips)
    return log_mean_over_nodes(_log_likelihoods, nodes, rows, rows[2].shape[-2], chunk_size)


def _rows(normal: Any, labels: Tensor, flips: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Returns means, standard deviations and factors with the signs of the labels, and two probabilities.

    The probability of a label given the noise is floor + slope p. `floor` is its probability if the true label is the
    opposite. For a missing label, floor is 1 and slope 0.
    """
    loc = normal.loc
    labels = ops.cast(ops.convert_to_tensor(labels), loc.dtype)
    is_one, is_zero, is_missing = (ops.equal(labels, value) for value in (1.0, 0.0, MISSING_LABEL))
    sign = ops.where(is_one, 1.0, -1.0)
    f, q = (ops.convert_to_tensor(rate, loc.dtype) + ops.zeros_like(loc) for rate in flips)
    is_known = ops.logical_or(is_one, is_zero)
    slope = ops.where(is_known, 1.0 - f - q, ops.where(is_missing, 0.0, float("nan")))
    floor = ops.where(is_known, ops.where(is_one, q, f), 1.0)
    return sign * loc, normal.scale_diag, sign[..., None] * normal.scaled_factor(), floor, slope


def _log_likelihoods(
    noise: Tensor, loc: Tensor, scale_diag: Tensor, factor: Tensor, floor: Tensor, slope: Tensor
) -> Tensor:
    u = loc[..., None] + ops.matmul(factor, noise)
    log_p = log_expected_sigmoid(u, ops.square(scale_diag)[..., None])[0]
    floor, slope = floor[..., None], slope[..., None]
    has_floor = floor > 0
    log_label = ops.log(ops.where(has_floor, floor, 1.0) + slope * ops.exp(log_p))  # cannot underflow below the floor
    log_label = ops.where(has_floor, log_label, log_p + ops.log(ops.where(has_floor, 1.0, slope)))
    return ops.sum(log_label, axis=-2)
