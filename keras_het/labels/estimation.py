"""Counts of labels by confident class, and tests of systematic flips."""

import warnings
from typing import Any

import numpy as np
import scipy.special
from scipy.optimize import linear_sum_assignment

from keras_het.base.batches import argmax_rows, row_blocks
from keras_het.base.refusal import outside_level, refusal, refuse_first, refuse_if
from keras_het.base.validation import check_numbers
from keras_het.labels.classes import order_columns

ROUNDING = 1e-6  # else rounding can put the mean of equal probabilities above all of them, so that none counts
FALSE_ALARM_RATE = 0.01  # rate of tables of uniform flips in which a flip is reported as systematic
SUM_TOLERANCE, HALF_SUM_TOLERANCE = 1e-3, 1e-2  # half precision rounds sums of probabilities
MIN_CLASS_EXAMPLES = 3  # the mean probability of one or two labels is chance
MIN_EXTRA_AGREEMENT = 0.2  # fraction of the labels; below it, a warning of mixed-up arguments could be chance
MAX_FALSE_ALARMS = 0.01  # rate of each such warning


def systematic_flips(counts: np.ndarray) -> np.ndarray:
    """Returns a mask, `(K, K)`, of the flips between classes that are more frequent than uniform flips explain.

    If class i has n_i uniform flips, class j gets Binomial(n_i, 1 / (K - 1)) of them. A flip is systematic if
    P(count or more) < 0.01 / (K (K - 1)). Fewer than one in a hundred tables of uniform flips has a systematic flip.
    """
    return flip_p_values(counts) < FALSE_ALARM_RATE / max(1, len(counts) * (len(counts) - 1))


def count_pairs(classes: np.ndarray, labels: np.ndarray, size: int) -> np.ndarray:
    """Counts examples of class i with label j, `(K, K)`."""
    return np.bincount(classes * size + labels, minlength=size**2).reshape(size, size)


def flip_p_values(counts: np.ndarray) -> np.ndarray:
    """Returns P(count or more) of each flip if all other classes were equally likely, `(K, K)`; 1 for no flip."""
    flips = np.where(np.eye(len(counts), dtype=bool), 0.0, counts)
    others, totals = max(1, len(counts) - 1), np.ceil(flips.sum(axis=1, keepdims=True)).astype(int)
    chance = scipy.special.bdtrc(np.maximum(np.floor(flips) - 1.0, 0.0), totals, 1.0 / others)
    return np.where(flips >= 1, chance, 1.0)


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


def describe_order(predicted: np.ndarray, labels: np.ndarray, size: int) -> str:
    """Returns how far predicted classes agree with labels if they agree far better in another order, else "".

    If classes agree most often in their correct order, the probability of a text is at most `MAX_FALSE_ALARMS`.
    """
    counts, agrees = count_pairs(predicted, labels, size), predicted == labels
    if counts.max(axis=1).sum() - agrees.sum() <= MIN_EXTRA_AGREEMENT * len(labels):
        return ""  # no order can agree far better, and the best order takes minutes for thousands of classes
    order = linear_sum_assignment(-counts)[1]
    agrees_reordered = order[predicted] == labels
    gain, differ = agrees_reordered.sum() - agrees.sum(), np.sum(agrees_reordered != agrees)
    is_large = gain > MIN_EXTRA_AGREEMENT * len(labels) and np.ptp(predicted) > 0  # one class shows no order
    limit = 2 * differ * (scipy.special.gammaln(size + 1) - np.log(MAX_FALSE_ALARMS))  # Hoeffding
    if not is_large or gain**2 <= limit:
        return ""
    reordered = f"{agrees_reordered.mean():.0%} in another order of the classes"
    return f"agree with {agrees.mean():.0%} of the labels, and with {reordered}"


def warn_of_order(p: np.ndarray, labels: np.ndarray) -> None:
    """Warns if the columns of probabilities seem to be in another order than the classes of the labels."""
    if text := describe_order(argmax_rows(p), labels, p.shape[1]):
        remedy = "Number names in the order of the columns, so that label k is the class of column k"
        warnings.warn(f"`probabilities` {text}. {remedy}.", stacklevel=outside_level())


def check_distributions(
    probabilities: Any,
    name: str = "probabilities",
    *,
    classes: Any = None,
    count: int | None = None,
    keep_float32: bool = False,
) -> np.ndarray:
    """Returns `probabilities` as NumPy, if they are in [0, 1], `(N, K)`, with N >= 1, and every row sums to 1.

    K is the number of `classes`, which order the columns of a frame, and N is `count`; None accepts any number. Rows in
    half precision are scaled to sum 1. The result is float64. With `keep_float32`, a float32 array, in memory or on
    disk, is returned without a copy.
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
