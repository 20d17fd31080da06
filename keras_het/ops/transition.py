"""Label transitions T[i, j] = p(noisy label j | true class i): how to apply, project and measure them."""

from typing import Any

import numpy as np
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_fraction, check_integer, check_square

MIN_PROBABILITY = float(np.finfo("float32").tiny)  # in place of 0, whose log is infinite
MAX_EXPONENT = 87.0  # its exp is finite in float32
MAX_ROW_SUM_ERROR = 1e-6


def apply_transition(log_probs: Tensor, transition: Tensor) -> Tensor:
    """Computes log-probabilities of the noisy labels from log-probabilities of the true classes.

        log p(noisy j) = log sum_i p(true i) T[i, j]                                    (Sukhbaatar et al. 2014, Eq. 2)

    In log space, T = I changes no bit of any probability, and zeros in T have a finite gradient. A true class whose
    probability is below 1e-38 of the largest counts only for its own label. A label that no class turns into has 1e-38
    of the largest probability, and no gradient.

    Args:
        log_probs: shape `(..., K)`.
        transition: T, shape `(K, K)`, or one for each of M annotators, `(M, K, K)`.
    Returns:
        shape `(..., K)`, or `(..., M, K)`.

    Example:
        >>> log_p = ops.log(ops.array([[0.5, 0.25, 0.25]]))
        >>> pair_flip = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]
        >>> ops.convert_to_numpy(ops.exp(apply_transition(log_p, pair_flip))).tolist()
        [[0.375, 0.375, 0.25]]
    """
    log_probs = ops.convert_to_tensor(log_probs)
    transition = ops.convert_to_tensor(transition, log_probs.dtype)
    kept = ops.diagonal(transition, axis1=-2, axis2=-1)
    largest = ops.stop_gradient(ops.top_k(log_probs, 1)[0])  # a maximum that works for an empty batch
    relative = log_probs - largest
    p = ops.exp(relative)
    from_others = ops.tensordot(
        p, transition * (1.0 - ops.eye(kept.shape[-1], dtype=log_probs.dtype)), axes=[[-1], [-2]]
    )
    for _ in transition.shape[:-2]:
        log_probs, largest, relative, p = (ops.expand_dims(x, -2) for x in (log_probs, largest, relative, p))
    is_mostly_kept = p * kept >= from_others
    # Both branches are computed: an infinite gradient in the branch that is not used would make the other nan. So each
    # branch divides and takes logarithms of safe numbers. The derivative of 1 / p overflows; the derivative of
    # exp(-log p) is finite down to the smallest p above zero.
    inverse = ops.exp(ops.minimum(ops.where(is_mostly_kept, -relative, 0.0), MAX_EXPONENT))
    factor = kept + ops.where(is_mostly_kept, from_others, 0.0) * inverse
    log_kept = ops.where(factor > 0, log_probs + _safe_log(factor), largest + np.log(MIN_PROBABILITY))
    log_flipped = largest + _safe_log(ops.where(is_mostly_kept, 1.0, from_others + p * kept))
    return ops.where(is_mostly_kept, log_kept, log_flipped)


def _safe_log(x: Tensor) -> Tensor:
    return ops.log(ops.where(x > MIN_PROBABILITY, x, MIN_PROBABILITY))


def project_to_simplex(rows: Any) -> Tensor:
    """Returns the nearest probability vectors, in Euclidean distance, along the last axis.

    x_k = max(v_k - theta, 0) with theta such that they sum to one, found by sorting (Held, Wolfe and Crowder 1974).

    Example:
        >>> ops.convert_to_numpy(project_to_simplex(ops.array([[0.75, 0.75, -1.0]]))).tolist()
        [[0.5, 0.5, 0.0]]
    """
    rows = ops.convert_to_tensor(rows)
    # A common shift changes nothing. After it, the entries that stay positive are in [-1, 0], where rounding is small.
    rows, size = rows - ops.max(rows, axis=-1, keepdims=True), rows.shape[-1]
    descending = ops.flip(ops.sort(rows, axis=-1), axis=-1)
    excess = ops.cumsum(descending, axis=-1) - 1.0
    counts = ops.arange(1, size + 1, dtype=rows.dtype)
    positive = ops.sum(ops.cast(descending * counts > excess, "int32"), axis=-1, keepdims=True)
    theta = ops.take_along_axis(excess, positive - 1, axis=-1) / ops.cast(positive, rows.dtype)
    return ops.maximum(rows - theta, 0.0)


def project_rows(rows: Tensor, lower: float) -> Tensor:
    """Returns the nearest probability vectors with entries of at least `lower`, below 1 / K for rows of K entries.

    A row that already fits, with a sum within 1e-6 of one, keeps its bits. The bound limits the gradient
    1 / p(noisy label) of labels that were never observed to 1 / lower.

    Source: Sukhbaatar et al. 2014, section 3: "we project Q back to the subspace of probability matrices".

    Example:
        >>> ops.convert_to_numpy(project_rows(ops.array([[1.5, 0.5], [0.25, 0.75]]), lower=0.125)).tolist()
        [[0.875, 0.125], [0.25, 0.75]]
    """
    remainder = 1.0 - lower * rows.shape[-1]  # rows = lower + y, and y / remainder is a probability vector
    fits = ops.logical_and(
        ops.min(rows, axis=-1, keepdims=True) >= lower,
        ops.abs(ops.sum(rows, axis=-1, keepdims=True) - 1.0) <= MAX_ROW_SUM_ERROR,
    )
    return ops.where(fits, rows, lower + remainder * project_to_simplex((rows - lower) / remainder))


def outlier_class(num_classes: int, alpha: float = 0.0) -> np.ndarray:
    """Returns T of K classes and a last class of outliers, examples of no class, whose labels are uniform.

    The K classes keep their labels. A fraction alpha of the outliers is labelled as outliers.

    Args:
        num_classes: K >= 1, without the outliers.
        alpha: number in [0, 1].
    Returns:
        shape `(K + 1, K + 1)`.
    Raises:
        ValueError: for values outside these ranges.
    Source: Sukhbaatar et al. 2014, Eq. 8.

    Example:
        >>> outlier_class(2, 0.5).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    """
    check_integer("num_classes", num_classes, 1)
    check_fraction("alpha", alpha)
    transition = np.eye(num_classes + 1)
    transition[-1] = [(1.0 - alpha) / num_classes] * num_classes + [alpha]
    return transition


def total_variation(transition: Any, reference: Any) -> float:
    """Computes the mean over the rows of half the sum of |T[i] - reference[i]|: 0 for equal, 1 for disjoint rows.

    Raises:
        ValueError: for matrices that are not square, or of different shapes.

    Example:
        >>> total_variation([[0.75, 0.25], [0.25, 0.75]], [[1, 0], [0, 1]])
        0.25
    """
    transition, reference = check_square("transition", transition), check_square("reference", reference)
    if transition.shape != reference.shape:
        raise refusal("reference", f"have the shape of `transition`, {transition.shape}", shape=reference)
    return float(np.mean(0.5 * np.sum(np.abs(transition - reference), axis=1)))
