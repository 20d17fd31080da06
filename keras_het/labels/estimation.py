"""Counts of labels against what a model of the noisy labels is confident of, and which flips are systematic."""

from typing import Any

import numpy as np
import scipy.special

from keras_het.base.batches import row_blocks
from keras_het.base.classes import order_columns
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_not_negative, check_numbers, check_square

ROUNDING = 1e-6  # else rounding can put the mean of equal probabilities above them, so that none counts
SYSTEMATIC = 0.01  # rate of tables of uniform flips with a flip that is called systematic
MIN_EXAMPLES = 3  # of a threshold: the mean of one or two is chance, and a class that a fold has not seen has 0


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


def count_pairs(classes: np.ndarray, labels: np.ndarray, size: int) -> np.ndarray:
    """Counts examples of class i with the label j, `(K, K)`."""
    return np.bincount(classes * size + labels, minlength=size**2).reshape(size, size)


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

    The threshold of a class is its mean probability over the examples with that label, but at least 1 / K. An example
    counts for its most probable class among the classes that reach their threshold. A class with fewer than three
    labels has no threshold, so no example counts for it.

    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", Eqs. 1 to 3.
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


def check_distributions(probabilities: Any, name: str = "probabilities", as_given: bool = False) -> np.ndarray:
    """Returns `probabilities` as NumPy, if they are in [0, 1], `(N, K)`, with N >= 1, and every row sums to 1.

    With `as_given`, float32, in memory or on disk, stays as it is, without a copy; else all is float64.
    """
    stays = as_given and isinstance(probabilities, np.ndarray) and probabilities.dtype == "float32"
    p = probabilities if stays else check_numbers(name, order_columns(None, probabilities, name))
    if p.ndim != 2 or not len(p) or not all(np.all((p[rows] >= 0) & (p[rows] <= 1)) for rows in row_blocks(len(p))):
        values = f", from {p.min():.4g} to {p.max():.4g}" if p.size else ""
        rule = "be in [0, 1], such as the exp of log-probabilities, and of shape (N, K)"
        raise refusal(name, rule, f"shape {p.shape}{values}")
    wrong = np.flatnonzero(np.abs(p.sum(axis=1) - 1.0) > 1e-3)
    if len(wrong):
        raise refusal(name, "have rows of sum 1", f"row {wrong[0]} sums to {p[wrong[0]].sum():.6g}")
    return p
