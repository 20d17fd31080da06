"""Estimates of a transition matrix from the predictions of a model of the noisy labels."""

from typing import Any

import numpy as np
import scipy.special

from keras_het.base.batches import check_same_index, row_blocks
from keras_het.base.classes import order_columns
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import (
    check_every_class,
    check_labels,
    check_not_negative,
    check_numbers,
    check_square,
)

ROUNDING = 1e-6  # else rounding can put the mean of equal probabilities above them, so that none counts
SYSTEMATIC = 0.01  # rate of tables of uniform flips with a flip that is called systematic
MIN_EXAMPLES = 3  # of a threshold: the mean of one or two is chance, and a class that a fold has not seen has 0


def estimate_by_confident_joint(labels: Any, probabilities: Any) -> np.ndarray:
    """Returns T from counts of labels against the classes that a model is confident of.

    The threshold of a class is its mean probability over the examples with that label, but at least 1 / K. An example
    counts for its most probable class among the classes that reach their threshold. A class with fewer than three
    labels has no threshold, so no example counts for it. Rows of the counts are scaled to sum to one. Use out-of-sample
    probabilities, by cross-validation.

    Args:
        labels: noisy labels, integers, shape `(N,)`.
        probabilities: shape `(N, K)`.
    Returns:
        shape `(K, K)`.
    Raises:
        ValueError: for labels out of range, a class without a label, or a class that the model is confident of for no
            example.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", Eqs. 1 to 3.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9]]
        >>> estimate_by_confident_joint([0, 0, 0, 1, 1, 1], p).round(2).tolist()
        [[0.67, 0.33], [0.0, 1.0]]
    """
    check_same_index(labels=labels, probabilities=probabilities)
    p = check_probabilities(probabilities, as_given=True)
    labels = check_labels(labels, p.shape[1], len(p))
    check_every_class(labels, p.shape[1])
    counts = confident_counts(labels, p)
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    rule = "be confident of each class for an example: at least the mean over the examples with its label"
    refuse_if(len(empty), "probabilities", rule, f"none of class {empty[:1]}")
    return from_confusion(counts)


def from_confusion(counts: Any) -> np.ndarray:
    """Returns T from counts[i, j], how many examples of true class i carry the label j.

    Args:
        counts: shape `(K, K)`, at least 0, with an example of every class.
    Returns:
        shape `(K, K)`.
    Raises:
        ValueError: for another shape, a negative count, or a class without examples.

    Example:
        >>> from_confusion([[3, 1], [0, 2]]).tolist()
        [[0.75, 0.25], [0.0, 1.0]]
    """
    counts = check_not_negative("counts", check_square("counts", counts))
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(empty):
        raise refusal("counts", "have an example of every class", f"none of class {empty[0]}")
    return counts / counts.sum(axis=1, keepdims=True)


def systematic_flips(counts: Any) -> np.ndarray:
    """Returns which classes are labelled as which others more often than uniform flips explain.

    Class i has n_i flips. If all K - 1 others were equally likely, class j would get Binomial(n_i, 1 / (K - 1)) of
    them. A count is systematic if P(count or more) < .01 / (K (K - 1)): less than one of a hundred such tables would
    have so large a count.

    Args:
        counts: examples of class i with the label j, shape `(K, K)`, not negative. For a learned T: its rows times the
            number of examples of the class.
    Returns:
        booleans, shape `(K, K)`, False on the diagonal.
    Raises:
        ValueError: for another shape, or entries that are negative.

    Example:
        >>> counts = [[90, 30, 3, 2], [2, 95, 3, 1], [4, 2, 90, 3], [1, 2, 1, 96]]
        >>> np.argwhere(systematic_flips(counts)).tolist()
        [[0, 1]]
    """
    counts = check_not_negative("counts", check_square("counts", counts))
    return flip_p_values(counts) < SYSTEMATIC / max(1, len(counts) * (len(counts) - 1))


def flip_p_values(counts: np.ndarray) -> np.ndarray:
    """Returns P(count or more) of each flip, if all other classes were equally likely, `(K, K)`; 1 if there is none.

    Args:
        counts: examples of class i with the label j, shape `(K, K)`, not negative.
    """
    flips = np.where(np.eye(len(counts), dtype=bool), 0.0, counts)
    others, totals = max(1, len(counts) - 1), np.ceil(flips.sum(axis=1, keepdims=True)).astype(int)
    chance = scipy.special.bdtrc(np.maximum(np.floor(flips) - 1.0, 0.0), totals, 1.0 / others)
    return np.where(flips >= 1, chance, 1.0)


def confident_counts(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Counts examples of class i, by a confident model, with the label j, `(K, K)`.

    A class with fewer than three labels has no examples.
    """
    size = p.shape[1]
    totals = np.bincount(labels, minlength=size)
    own = np.bincount(labels, p[np.arange(len(p)), labels], size)
    thresholds = np.where(totals >= MIN_EXAMPLES, np.maximum(own / np.maximum(totals, 1), 1 / size), np.inf)
    counts = np.zeros((size, size))
    for rows in row_blocks(len(p)):
        part = p[rows]
        confident = np.where(part >= thresholds - ROUNDING, part, -1.0)
        counted = confident.max(axis=1) >= 0
        np.add.at(counts, (confident.argmax(axis=1)[counted], labels[rows][counted]), 1)
    return counts


def check_probabilities(probabilities: Any, name: str = "probabilities", as_given: bool = False) -> np.ndarray:
    """Returns `probabilities` as NumPy, if they are in [0, 1], `(N, K)`, with N >= 1, and no row is zero.

    Args:
        probabilities: argument of a public function.
        name: name of that argument.
        as_given: boolean, whether float32, in memory or on disk, stays as it is, without a copy; else all is float64.
    """
    stays = as_given and isinstance(probabilities, np.ndarray) and probabilities.dtype == "float32"
    p = probabilities if stays else check_numbers(name, order_columns(None, probabilities, name))
    if p.ndim != 2 or not len(p) or not all(np.all((p[rows] >= 0) & (p[rows] <= 1)) for rows in row_blocks(len(p))):
        values = f", from {p.min():.4g} to {p.max():.4g}" if p.size else ""
        rule = "be in [0, 1], such as the exp of log-probabilities, and of shape (N, K)"
        raise refusal(name, rule, f"shape {p.shape}{values}")
    empty = np.flatnonzero(p.sum(axis=1) == 0)
    if len(empty):
        raise refusal(name, "have rows of a positive sum", f"row {empty[0]} sums to 0")
    return p


def check_distributions(probabilities: Any, name: str = "probabilities", as_given: bool = False) -> np.ndarray:
    """Returns probabilities as NumPy, if every row sums to 1; arguments are those of `check_probabilities`."""
    p = check_probabilities(probabilities, name, as_given)
    wrong = np.flatnonzero(np.abs(p.sum(axis=1) - 1.0) > 1e-3)
    if len(wrong):
        raise refusal(name, "have rows of sum 1", f"row {wrong[0]} sums to {p[wrong[0]].sum():.6g}")
    return p
