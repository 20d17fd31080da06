"""Counts of labels by class, the transition matrix T, and checks of probabilities."""

import warnings
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from scipy.optimize import linear_sum_assignment

from keras_het.base.batches import argmax_rows, row_blocks
from keras_het.base.refusal import outside_level, refusal, refuse_first, refuse_if
from keras_het.base.validation import check_numbers
from keras_het.labels.classes import order_columns

ROUNDING = 1e-6  # else rounding can put the mean of equal probabilities above all of them, so that none counts
SUM_TOLERANCE, HALF_SUM_TOLERANCE = 1e-3, 1e-2  # half precision rounds sums of probabilities
ROW_FLOOR = 1e-3  # spread over each row of T: else a single label that is impossible by T would decide the class
MAX_ROUNDS = 20
MIN_CLASS_EXAMPLES = 3  # the mean probability of one or two labels is chance
MIN_EXTRA_AGREEMENT = 0.2  # fraction of the labels; below it, a warning of mixed-up arguments could be chance
MAX_FALSE_ALARMS = 0.01  # rate of each such warning


def count_pairs(classes: np.ndarray, labels: np.ndarray, size: int) -> np.ndarray:
    """Counts examples of class i with label j, `(K, K)`."""
    return np.bincount(classes * size + labels, minlength=size**2).reshape(size, size)


def confident_counts(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Counts examples of confident class i with label j, `(K, K)`.

    The threshold of a class is its mean probability over the examples with that label, but at least 1 / K. The
    confident class of an example is the most probable class that reaches its threshold. A class with fewer than three
    labels is never confident.

    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", Eqs. 1 to 3.
    """
    size = p.shape[1]
    totals = np.bincount(labels, minlength=size)
    sums = np.bincount(labels, p[np.arange(len(p)), labels], size)
    thresholds = np.where(totals >= MIN_CLASS_EXAMPLES, np.maximum(sums / np.maximum(totals, 1), 1 / size), np.inf)
    counts = np.zeros((size, size))
    for rows in row_blocks(len(p)):
        block = p[rows]
        confident = np.where(block >= thresholds - ROUNDING, block, -1.0)
        has_class = confident.max(axis=1) >= 0
        np.add.at(counts, (confident.argmax(axis=1)[has_class], labels[rows][has_class]), 1)
    return counts


def classes_by_transition(labels: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a T, `(K, K)`, and the classes of the examples by it, `(N,)`, from out-of-sample probabilities.

    The class of an example is the k with the largest sum_j p_j log T_kj. This row of T is the nearest to p by the
    Kullback-Leibler divergence. T starts from the counts of confident examples. Then each row k becomes the mean p of
    the examples of class k, until no class changes or 20 rounds have passed.

    Source: Banerjee et al. 2005, "Clustering with Bregman divergences", Algorithm 1, from this start.
    """
    size = p.shape[1]
    counts = confident_counts(labels, p) + ROW_FLOOR * np.eye(size)
    transition, old = _bounded(counts / counts.sum(axis=1, keepdims=True)), None
    classes = _nearest(p, transition)
    for _ in range(MAX_ROUNDS):
        if old is not None and np.array_equal(classes, old):
            break
        old, totals = classes, np.bincount(classes, minlength=size)
        transition = np.where(totals[:, None] > 0, _bounded(_means(p, classes, totals)), transition)
        classes = _nearest(p, transition)
    return transition, classes


def _means(values: np.ndarray, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Returns the mean row of `values`, `(N, J)`, of each class, `(K, J)`; zeros for a class without examples."""
    count = len(classes)
    member = scipy.sparse.csc_array((np.ones(count), (classes, np.arange(count))), shape=(len(totals), count))
    sums = sum(member[:, rows] @ values[rows] for rows in row_blocks(count))  # a product makes values float64
    return sums / np.maximum(totals, 1)[:, None]


def _bounded(transition: np.ndarray) -> np.ndarray:
    return (1 - ROW_FLOOR) * transition + ROW_FLOOR / len(transition)


def _nearest(p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Returns the index of the nearest row of T for each example, `(N,)`."""
    log_rows = np.log(transition.T).astype(p.dtype)
    return np.concatenate([(p[rows] @ log_rows).argmax(axis=1) for rows in row_blocks(len(p))])


def warn_of_order(p: np.ndarray, labels: np.ndarray) -> None:
    """Warns if labels agree far better with the most probable classes in another order of the columns.

    If they agree most often in the correct order, the probability of a warning is at most `MAX_FALSE_ALARMS`.
    """
    predicted, size = argmax_rows(p), p.shape[1]
    counts, agrees = count_pairs(predicted, labels, size), predicted == labels
    if counts.max(axis=1).sum() - agrees.sum() <= MIN_EXTRA_AGREEMENT * len(labels):
        return  # no order can agree far better, and the best order takes minutes for thousands of classes
    agrees_reordered = linear_sum_assignment(-counts)[1][predicted] == labels
    gain, differ = agrees_reordered.sum() - agrees.sum(), np.sum(agrees_reordered != agrees)
    is_large = gain > MIN_EXTRA_AGREEMENT * len(labels) and np.ptp(predicted) > 0  # one class shows no order
    limit = 2 * differ * (scipy.special.gammaln(size + 1) - np.log(MAX_FALSE_ALARMS))  # Hoeffding
    if is_large and gain**2 > limit:
        warnings.warn(
            f"`probabilities` agree with {agrees.mean():.0%} of the labels, and with {agrees_reordered.mean():.0%} in "
            "another order of the classes. Number names in the order of the columns, so that label k is the class of "
            "column k.",
            stacklevel=outside_level(),
        )


def check_distributions(
    probabilities: Any,
    name: str = "probabilities",
    *,
    classes: Any = None,
    count: int | None = None,
    keep_float32: bool = False,
) -> np.ndarray:
    """Returns `probabilities` as NumPy, if they are in [0, 1], `(N, K)`, with N >= 1, and every row sums to 1.

    K is the number of `classes`, which order the columns of a frame, and N is `count`; None accepts any number. The
    result is float64, with rows in half precision scaled to sum 1, or a float32 array itself with `keep_float32`.
    """
    is_half = "float16" in str(getattr(probabilities, "dtype", ""))  # and bfloat16, of NumPy or a backend
    is_kept = keep_float32 and isinstance(probabilities, np.ndarray) and probabilities.dtype == "float32"
    p = probabilities if is_kept else check_numbers(name, order_columns(classes, probabilities, name))
    if classes is not None:
        rule = f"have shape (N, {len(classes)}), a column for each class"
        refuse_if(p.ndim != 2 or p.shape[1] != len(classes), name, rule, shape=p)
    if count is not None:
        refuse_if(not p.ndim or len(p) != count, name, f"have a row for each of the {count} examples", shape=p)
    if p.ndim != 2 or not len(p) or not all(np.all((p[rows] >= 0) & (p[rows] <= 1)) for rows in row_blocks(len(p))):
        refuse_first(np.isnan(p), name, "have no nan", p)
        values = f", from {p.min():.4g} to {p.max():.4g}" if p.size else ""
        rule = "be in [0, 1], of shape (N, K). Use np.exp for log-probabilities"
        raise refusal(name, rule, f"shape {p.shape}{values}")
    sums = p.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1.0) > (HALF_SUM_TOLERANCE if is_half else SUM_TOLERANCE))
    if len(wrong):
        raise refusal(name, "have rows of sum 1", f"row {wrong[0]} sums to {sums[wrong[0]]:.6g}")
    return p / sums[:, None] if is_half else p
