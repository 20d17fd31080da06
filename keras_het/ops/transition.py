"""Label transitions: row-stochastic matrices T[i, j] = p(noisy label j | true class i), the transpose of the paper's Q.

Matrices that are made or estimated are NumPy float64 `(K, K)`; `apply_transition` and `project_to_simplex` work on tensors.
"""

import numpy as np
from keras import ops

from keras_het.ops.seeds import random_generator

__all__ = [
    "apply_transition",
    "check_every_class",
    "check_labels",
    "check_rows",
    "check_share",
    "check_transition",
    "condition_number",
    "estimate_by_anchors",
    "estimate_by_confident_joint",
    "from_confusion",
    "outlier",
    "pair_flip",
    "project_to_simplex",
    "random_flip",
    "symmetric",
    "total_variation",
    "trace",
]

SMALLEST = float(np.finfo("float32").tiny)  # a class that no class of positive probability turns into has this probability
LARGEST = 87.0  # exp of it is finite


def symmetric(num_classes, noise):
    """T of flips to any other class alike: 1 - noise on the diagonal, noise / (K - 1) elsewhere.

    Args: num_classes: K >= 2.    noise: share of flipped labels, in [0, 1].    Returns: `(K, K)`.
    Raises: ValueError for values outside these ranges.

    Example:
        >>> symmetric(3, 0.5).tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    _check_flips(num_classes, noise)
    return (1.0 - noise) * np.eye(num_classes) + noise / (num_classes - 1) * (1.0 - np.eye(num_classes))


def pair_flip(num_classes, noise):
    """T of flips to the next class: 1 - noise on the diagonal, noise from class i to class i + 1, and from the last to the first.

    Args: num_classes: K >= 2.    noise: share of flipped labels, in [0, 1].    Returns: `(K, K)`.
    Raises: ValueError for values outside these ranges.

    Example:
        >>> pair_flip(3, 0.25).tolist()
        [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
    """
    _check_flips(num_classes, noise)
    return (1.0 - noise) * np.eye(num_classes) + noise * np.roll(np.eye(num_classes), 1, axis=1)


def random_flip(num_classes, noise, seed=0):
    """T of flips whose targets differ from class to class: 1 - noise on the diagonal, the rest of a row uniform on the simplex.

    Args: num_classes: K >= 2.    noise: share of flipped labels, in [0, 1].    seed: of the draw.    Returns: `(K, K)`.
    Raises: ValueError for values outside these ranges.

    Example:
        >>> random_flip(3, 0.5).diagonal().tolist()
        [0.5, 0.5, 0.5]
    """
    _check_flips(num_classes, noise)
    transition = (1.0 - noise) * np.eye(num_classes)
    others = ~np.eye(num_classes, dtype=bool)
    transition[others] = noise * random_generator(seed).dirichlet(np.ones(num_classes - 1), size=num_classes).ravel()
    return transition


def from_confusion(counts):
    """T from counts[i, j], how many examples of true class i carry the label j.

    Args: counts: `(K, K)`, at least 0, with an example of every class.    Returns: `(K, K)`.
    Raises: ValueError for another shape, a negative count, or a class without examples.

    Example:
        >>> from_confusion([[3, 1], [0, 2]]).tolist()
        [[0.75, 0.25], [0.0, 1.0]]
    """
    counts = _square("counts", counts)
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(empty):
        raise ValueError(f"`counts` must have an example of every class. Received: none of class {empty[0]}")
    return counts / counts.sum(axis=1, keepdims=True)


def outlier(num_classes, alpha=0.0):
    """T of K classes and a last one, the outliers: examples of no class, which got labels of all classes alike.

    Classes keep their labels; of the outliers a share alpha is labelled as such (Sukhbaatar et al. 2014, Eq. 8).

    Args: num_classes: K >= 1, without the outliers.    alpha: in [0, 1].    Returns: `(K + 1, K + 1)`.
    Raises: ValueError for values outside these ranges.

    Example:
        >>> outlier(2, 0.5).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    """
    _check_count(num_classes, 1)
    check_share("alpha", alpha)
    transition = np.eye(num_classes + 1)
    transition[-1] = [(1.0 - alpha) / num_classes] * num_classes + [alpha]
    return transition


def check_transition(transition, name="transition"):
    """`transition` as NumPy float64, if it is square, not negative, and its rows sum to one.

    Raises: ValueError that says which row is wrong, and its sum.
    """
    return check_rows(_square(name, transition), name)


def check_rows(rows, name="transition"):
    """`rows`, `(N, K)`, as NumPy float64, if they are probability vectors.

    Raises: ValueError that says which row is wrong, and its sum or its entry.
    """
    rows = _not_negative(name, _float64(rows))
    sums = rows.sum(axis=1)
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) < 1e-4))
    if len(wrong):
        raise ValueError(f"`{name}` must have rows that sum to one. Received: row {wrong[0]} sums to {sums[wrong[0]]:.6g}")
    return rows


def apply_transition(log_probs, transition):
    """Log-probabilities of the noisy labels from those of the true classes.

        log p(noisy j) = log sum_i p(true i) T[i, j]                                    (Sukhbaatar et al. 2014, Eq. 2)

    In log space: T = I changes nothing, exactly, however small a probability is, and T = 0 entries have a finite gradient. A true class
    with less than 1e-38 of the largest probability counts for its own label only. A label without any source has the log-probability
    of 1e-38, and no gradient.

    Args: log_probs: shape `(..., K)`.    transition: T, shape `(K, K)`.    Returns: shape `(..., K)`.

    Example:
        >>> log_p = ops.log(ops.array([[0.5, 0.25, 0.25]]))
        >>> ops.convert_to_numpy(ops.exp(apply_transition(log_p, pair_flip(3, 0.5).astype("float32")))).tolist()
        [[0.375, 0.375, 0.25]]
    """
    log_probs = ops.convert_to_tensor(log_probs)
    transition = ops.convert_to_tensor(transition, log_probs.dtype)
    kept = ops.diagonal(transition)
    largest = ops.stop_gradient(ops.top_k(log_probs, 1)[0])  # the maximum, also of an empty batch
    relative = log_probs - largest
    p = ops.exp(relative)
    from_others = ops.matmul(p, transition * (1.0 - ops.eye(kept.shape[0], dtype=log_probs.dtype)))
    mostly_kept = p * kept >= from_others
    # Each branch divides and takes logarithms of numbers of its own: an infinite gradient in the branch not taken would spoil the other.
    # So would 1 / p, whose derivative overflows: exp(-log p) has none that does, and is finite to the smallest p that is not zero.
    inverse = ops.exp(ops.minimum(ops.where(mostly_kept, -relative, 0.0), LARGEST))
    ratio = ops.where(mostly_kept, from_others, 0.0) * inverse
    share = kept + ratio
    near = ops.where(share > 0, log_probs + _safe_log(share), largest + np.log(SMALLEST))
    far = largest + _safe_log(ops.where(mostly_kept, 1.0, from_others + p * kept))
    return ops.where(mostly_kept, near, far)


def _safe_log(x):
    return ops.log(ops.where(x > SMALLEST, x, SMALLEST))


def project_to_simplex(rows):
    """The nearest probability vectors, in Euclidean distance, along the last axis.

    x_k = max(v_k - theta, 0) with theta such that they sum to one, found by sorting (Held, Wolfe and Crowder 1974).

    Args: rows: v, shape `(..., K)`.    Returns: the same shape; every row is at least 0 and sums to one.

    Example:
        >>> ops.convert_to_numpy(project_to_simplex(ops.array([[0.75, 0.75, -1.0]]))).tolist()
        [[0.5, 0.5, 0.0]]
    """
    rows = ops.convert_to_tensor(rows)
    # A common shift does not matter; without the largest entry all that stay positive are in [-1, 0], where rounding is small.
    rows, size = rows - ops.max(rows, axis=-1, keepdims=True), rows.shape[-1]
    descending = ops.flip(ops.sort(rows, axis=-1), axis=-1)
    excess = ops.cumsum(descending, axis=-1) - 1.0  # of the k + 1 largest over one
    counts = ops.arange(1, size + 1, dtype=rows.dtype)
    positive = ops.sum(ops.cast(descending * counts > excess, "int32"), axis=-1, keepdims=True)
    theta = ops.take_along_axis(excess, positive - 1, axis=-1) / ops.cast(positive, rows.dtype)
    return ops.maximum(rows - theta, 0.0)


def estimate_by_anchors(probabilities, quantile=1.0):
    """T from a model of the noisy labels: row i is what the model predicts for an example that is surely of class i.

    That anchor is the example whose predicted probability of i is the given quantile of all: 1 takes the largest, and less, such as
    0.97, is safer against single examples. It needs such an example of every class, and a model that is calibrated.

    Args: probabilities: p(noisy label | x), `(N, K)`, N >= 1.    quantile: in [0, 1].    Returns: `(K, K)`.
    Source: Patrini et al. 2017, "Making deep neural networks robust to label noise", Eq. 12.

    Example:
        >>> estimate_by_anchors([[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]).tolist()
        [[0.75, 0.25], [0.125, 0.875]]
    """
    check_share("quantile", quantile)
    p = _probabilities(probabilities)
    anchors = np.argsort(p, axis=0, kind="stable")[round(quantile * (len(p) - 1))]
    return p[anchors] / p[anchors].sum(axis=1, keepdims=True)


def estimate_by_confident_joint(labels, probabilities):
    """T from counts of labels against the classes that a model is confident of.

    An example counts for the class of largest probability among those whose probability reaches the mean that the examples with
    that label have; rows of the counts are scaled to sum to one. Use out-of-sample probabilities, by cross-validation.

    Args: labels: noisy ones, integers `(N,)`.    probabilities: `(N, K)`.    Returns: `(K, K)`.
    Raises: ValueError for labels out of range, a class without a label, or one that the model is confident of for no example.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", Eqs. 1 to 3.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9]]
        >>> estimate_by_confident_joint([0, 0, 1, 1, 1], p).round(2).tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """
    p = _probabilities(probabilities)
    labels = check_labels(labels, p.shape[1], len(p))
    check_every_class(labels, p.shape[1])
    thresholds = np.array([p[labels == j, j].mean() for j in range(p.shape[1])])
    confident = np.where(p >= thresholds, p, -1.0)
    counted = confident.max(axis=1) >= 0
    counts = np.zeros((p.shape[1],) * 2)
    np.add.at(counts, (confident.argmax(axis=1)[counted], labels[counted]), 1)
    return from_confusion(counts)


def total_variation(transition, reference):
    """Mean over the rows of half the sum of |T[i] - reference[i]|: 0 where they are equal, 1 where no row has anything in common.

    Args: transition, reference: `(K, K)`.    Returns: a float.

    Example:
        >>> total_variation(pair_flip(4, 0.25), np.eye(4))
        0.25
    """
    return float(np.mean(0.5 * np.sum(np.abs(_float64(transition) - _float64(reference)), axis=1)))


def trace(transition):
    """sum_i T_ii: K for the identity; over K, the share of kept labels where classes are equally frequent.

    Args: transition: `(K, K)`.    Returns: a float.

    Example:
        >>> trace(pair_flip(4, 0.25))
        3.0
    """
    return float(np.trace(_float64(transition)))


def condition_number(transition):
    """Largest over smallest singular value: 1 for a permutation, infinite if some true classes cannot be told apart by their labels.

    Errors of the noisy posterior are amplified by up to this factor on the way to the clean one. Not a number if T is not.

    Args: transition: `(K, K)`.    Returns: a float.

    Example:
        >>> round(condition_number(symmetric(4, 0.5)), 3)
        3.0
    """
    transition = _float64(transition)
    if not np.isfinite(transition).all():
        return float("nan")
    singular = np.linalg.svd(transition, compute_uv=False)
    return float(singular[0] / singular[-1]) if singular[-1] > np.finfo("float64").eps * singular[0] else float("inf")


def _float64(x):
    """`x` as NumPy; on PyTorch also a tensor with a gradient, such as a learned T, which NumPy refuses."""
    return np.asarray(ops.convert_to_numpy(x), "float64")


def _square(name, matrix):
    matrix = _float64(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"`{name}` must be a square matrix. Received: shape {matrix.shape}")
    return _not_negative(name, matrix)


def _not_negative(name, matrix):
    wrong = np.argwhere(~(matrix >= 0))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(f"`{name}` must not be negative. Received: {matrix[row, column]:.6g} at [{row}, {column}]")
    return matrix


def _probabilities(probabilities):
    p = _float64(probabilities)
    if p.ndim != 2 or not len(p) or not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"`probabilities` must be in [0, 1] and of shape (N, K). Received: shape {p.shape}")
    empty = np.flatnonzero(p.sum(axis=1) == 0)
    if len(empty):
        raise ValueError(f"`probabilities` must have rows of a positive sum. Received: row {empty[0]} sums to 0")
    return p


def check_labels(labels, num_classes, count=None, name="labels"):
    """`labels` as an array, if they are integers in [0, num_classes), of shape `(N,)`, where N is `count` unless that is None.

    Raises: ValueError that says which one is wrong.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"`{name}` must be integers of shape (N,). Received: shape {labels.shape}, dtype {labels.dtype}")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        raise ValueError(f"`{name}` must be in [0, {num_classes}). Received: {labels[wrong[0]]} at [{wrong[0]}]")
    if count is not None and len(labels) != count:
        raise ValueError(f"`{name}` must have an entry for each of the {count} examples. Received: {len(labels)}")
    return labels


def check_every_class(labels, num_classes):
    """Raises a ValueError that names the first class of which `labels`, `(N,)`, have no example."""
    missing = np.setdiff1d(np.arange(num_classes), labels)
    if len(missing):
        raise ValueError(f"`labels` must have an example of every class. Received: none of class {missing[0]}")


def _check_flips(num_classes, noise):
    _check_count(num_classes, 2)
    check_share("noise", noise)


def _check_count(num_classes, low):
    if not isinstance(num_classes, int | np.integer) or num_classes < low:
        raise ValueError(f"`num_classes` must be an integer at least {low}. Received: num_classes={num_classes!r}")


def check_share(name, value):
    """Raises a ValueError if `value` is no number in [0, 1]."""
    if not isinstance(value, int | float | np.integer | np.floating) or not 0.0 <= value <= 1.0:
        raise ValueError(f"`{name}` must be in [0, 1]. Received: {name}={value!r}")
