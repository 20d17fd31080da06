"""Joint likelihoods under one Gaussian of logits: of a label vector, and of the labels of all pixels of an image.

Given the factor noise, the labels or pixels are independent, and the diagonal noise has a closed form. So only the
factors are averaged over nodes, and each node contributes one number, the log-likelihood of the whole vector or image.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops import blocking
from keras_het.ops.labels import integer_labels
from keras_het.ops.nodes import Nodes
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
    rows = _label_rows(normal, labels, flips)
    return log_mean_over_nodes(_vector_likelihoods, nodes, rows, rows[2].shape[-2], chunk_size)


def _label_rows(normal: Any, labels: Tensor, flips: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
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


def _vector_likelihoods(
    noise: Tensor, loc: Tensor, scale_diag: Tensor, factor: Tensor, floor: Tensor, slope: Tensor
) -> Tensor:
    u = loc[..., None] + ops.matmul(factor, noise)
    log_p = log_expected_sigmoid(u, ops.square(scale_diag)[..., None])[0]
    floor, slope = floor[..., None], slope[..., None]
    has_floor = floor > 0
    log_label = ops.log(ops.where(has_floor, floor, 1.0) + slope * ops.exp(log_p))  # cannot underflow below the floor
    log_label = ops.where(has_floor, log_label, log_p + ops.log(ops.where(has_floor, 1.0, slope)))
    return ops.sum(log_label, axis=-2)


# Diagonal variances saturate here: without a limit, the second order has no bound, and training would make d grow.
# Among 2 to 8, 4 has the least error for ten classes, and 2 for two classes.
MAX_VARIANCE = 4.0


def log_joint_pixels(
    normal: Any, labels: Tensor, nodes: Nodes, valid: Tensor | None = None, chunk_size: int | None = None
) -> Tensor:
    """Computes the log-probability of the labels of all pixels of an image, `(B,)`, averaged over nodes of the factors.

        log p(y) = log E_{e_R}[ prod_i p(y_i | e_R) ],     p(k | e_R) = softmax_k(c + w (1/2 - s)),
        c = mu + V e_R,   s = softmax(c),   w = 4 d^2 / (4 + d^2)

    Here i runs over the pixels, which share e_R. The second formula is E_{e_i}[softmax(mu + V e_R + d e_i)] to second
    order in d, with saturating variances, and normalised. The mean error of log p is below 0.003 for d = 0.5, 0.03 for
    d = 1, and 0.15 for d = 2. The probabilities of all label maps sum to one for any d. The paper draws diagonal noise
    with each factor node. That estimate is far too low, because one draw would have to fit all pixels at once.

    Labels are integers `(B, ...)`; a label outside [0, C) gives nan. Only `valid` pixels, booleans `(B, ...)`, count
    and get a gradient. The result is 0 for an image without valid pixels. The e_K of the nodes are not used.

    Source: Monteiro et al. 2020, Eq. 5, with another estimate.

    Example:
        >>> from keras_het.ops.low_rank import LowRankNormal
        >>> from keras_het.ops.nodes import quasi_random
        >>> signs = ops.array([[[[5.0], [-5.0]], [[5.0], [-5.0]]]])
        >>> normal = LowRankNormal(ops.zeros((1, 2, 2)), ops.zeros((1, 2, 2)), signs)
        >>> nodes = quasi_random((0, 0), num_samples=256, units=0, num_factors=1)
        >>> maps = ([[0, 0]], [[0, 1]])
        >>> [round(float(ops.exp(log_joint_pixels(normal, ops.array(y), nodes))[0]), 2) for y in maps]
        [0.46, 0.04]
    """
    rows = _pixel_rows(normal, labels, valid)
    return log_mean_over_nodes(_image_likelihoods, nodes, rows, rows[0].shape[-1], chunk_size)


def _pixel_rows(normal: Any, labels: Tensor, valid: Tensor | None) -> tuple[Tensor, ...]:
    """Returns means `(B, P, C)`, saturated variances, factors, and one-hot labels, 0 for ignored pixels."""
    loc, factor = normal.loc, normal.scaled_factor()
    image_shape, classes = loc.shape[1:-1], loc.shape[-1]
    pixels = math.prod(image_shape) if all(isinstance(size, int) for size in image_shape) else -1
    is_class = ops.equal(integer_labels(labels)[..., None], ops.arange(classes, dtype="int32"))
    targets = ops.where(ops.any(is_class, axis=-1, keepdims=True), ops.cast(is_class, loc.dtype), float("nan"))
    rows = [loc, normal.scale_diag, factor, targets]
    if valid is not None:  # first, because 0 times the slope at an infinite logit or variance would be nan
        rows = [ops.where(valid[..., None, None] if x is factor else valid[..., None], x, 0.0) for x in rows]
    rows[1] = MAX_VARIANCE * ops.square(rows[1]) / (MAX_VARIANCE + ops.square(rows[1]))
    shape = (ops.shape(loc)[0], pixels, classes)
    return tuple(ops.reshape(x, (*shape, normal.size[1]) if x is rows[2] else shape) for x in rows)


def _image_likelihoods(noise: Tensor, loc: Tensor, variance: Tensor, factor: Tensor, targets: Tensor) -> Tensor:
    """Returns log-likelihoods of label maps, `(B, nodes)`, at a chunk of noise, `(R, nodes)`."""
    u = loc[..., None] + ops.matmul(factor, noise)
    corrected = u + variance[..., None] * (0.5 - ops.softmax(u, axis=-2))
    return ops.sum(targets[..., None] * ops.log_softmax(corrected, axis=-2), axis=(1, 2))


def log_mean_over_nodes(
    log_likelihoods: Callable[..., Tensor],
    nodes: Nodes,
    rows: tuple[Tensor, ...],
    units: int,
    chunk_size: int | None = None,
) -> Tensor:
    """Returns log mean_s exp(l_s) over the nodes of the factors, `(...)`, with the memory of one chunk of nodes.

    `log_likelihoods` computes l, `(..., nodes)`, from a chunk of noise, `(R, nodes)`, and the rows, which have leading
    axes `(...)`, and get gradients of any order. `units` is the number of array elements per node and entry of `(...)`.
    """
    noise, count = ops.cast(nodes.eps_factor, rows[0].dtype), nodes.num_samples
    units *= math.prod(axis for axis in rows[0].shape[1:-1] if isinstance(axis, int))
    _, size = blocking.block_sizes(rows[0], count, units, chunk_size, whole_batch=True)
    # The rows are arguments, because TensorFlow gives no gradient to tensors in the closure of a recomputed function.
    recomputed = keras.remat(log_likelihoods)
    stop = count - count % size
    chunks = ops.transpose(ops.reshape(noise[:stop], (stop // size, size, noise.shape[1])), (0, 2, 1))
    # Not unrolled, because XLA would hold all chunks at once.
    total = ops.logsumexp(ops.map(lambda chunk: recomputed(chunk, *rows), chunks), axis=(0, -1))
    if stop < count:
        rest = recomputed(ops.transpose(noise[stop:]), *rows)
        total = ops.logaddexp(total, ops.logsumexp(rest, axis=-1))
    return total - math.log(count)
