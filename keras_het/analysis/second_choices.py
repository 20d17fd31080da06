"""Whether wrong labels depend on the example, or on its class alone: a permutation test, and an area under ROC."""

from typing import NamedTuple

import numpy as np
import scipy.stats
from scipy.special import ndtr

# Of the wrong labels that would name another one by their class alone: so many may name the second choice because the
# model has the class wrong. Of uniform noise it is .02 at an accuracy of .85, .04 at .81, .06 at .78 and .09 at .67.
SLACK = 0.06
TINY = 1e-12  # a variance, where nothing can differ


class Agreement(NamedTuple):
    """How often a wrong label is the model's second choice for its example.

    number: of wrong labels.
    rate: those that are the second choice.
    expected: their share if, within each class, labels were dealt to the examples at random.
    p_value: of so many or more, if up to `SLACK` of the others are beyond what is expected; nan without a wrong label.
    """

    number: int
    rate: float
    expected: float
    p_value: float

    @property
    def excess(self) -> float:
        """Fraction of those that would not be the second choice by their class alone, but are; 0 if all would be."""
        others = 1.0 - self.expected
        return (self.rate - self.expected) / others if others > 0 else 0.0


def agreement(second: np.ndarray, labels: np.ndarray, classes: np.ndarray, size: int) -> Agreement:
    """Tests whether wrong labels are the second choice for their own example more often than for others of the class.

    The mean and the variance of the number of agreements, over all permutations of the labels within each class, are
    exact; the number is taken to be normal.

    Args:
        second: second choices, integers in [0, size), shape `(N,)`.
        labels: the wrong labels, `(N,)`.
        classes: classes of the examples, `(N,)`.
        size: the number of classes.

    Example:
        >>> second, labels = np.tile([0, 1], 50), np.tile([0, 1], 50)
        >>> found = agreement(second, labels, np.full(100, 2), 3)
        >>> found.rate, found.expected, found.p_value < 1e-6
        (1.0, 0.5, True)
    """
    count = len(labels)
    if not count:
        return Agreement(0, 0.0, 0.0, float("nan"))
    expected = variance = 0.0
    for k in np.unique(classes):
        own = classes == k
        mean, spread = _moments(np.bincount(second[own], minlength=size), np.bincount(labels[own], minlength=size))
        expected, variance = expected + mean, variance + spread
    found = int(np.sum(second == labels))
    others = count - expected
    z = (found - expected - SLACK * others - 0.5) / np.sqrt(max(TINY, variance + others * SLACK * (1 - SLACK)))
    return Agreement(count, found / count, float(expected / count), float(ndtr(-z)))


def _moments(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Mean and variance of the number of equal pairs, of values with these counts that are paired at random."""
    a, b, count = a.astype("float64"), b.astype("float64"), a.sum()
    pairs = (a * b).sum()
    squares = pairs - ((a * b * b).sum() + (b * a * a).sum()) / count + (pairs / count) ** 2
    return pairs / count, max(0.0, squares) / max(1.0, count - 1.0)


def unclear(margin: np.ndarray, wrong: np.ndarray, classes: np.ndarray) -> float:
    """P(a wrong label is of a less clear example than a right one of the same class), 0.5 if there is no connection.

    Args:
        margin: clearness of each example, `(N,)`.
        wrong: boolean, whether the label is wrong, booleans, `(N,)`.
        classes: classes of the examples, `(N,)`.

    Example:
        >>> unclear(np.array([0.9, 0.8, 0.1, 0.5]), np.array([False, False, True, True]), np.zeros(4, int))
        1.0
    """
    wins = pairs = 0.0
    for k in np.unique(classes):
        own = classes == k
        ranks, is_wrong = scipy.stats.rankdata(-margin[own]), wrong[own]
        of_class = float(is_wrong.sum())
        wins += ranks[is_wrong].sum() - of_class * (of_class + 1) / 2
        pairs += of_class * (len(ranks) - of_class)
    return float(wins / pairs) if pairs else 0.5


def ranks_of_clearness(margin: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The place of each example in its class, the clearest first, as a fraction in (0, 1), `(N,)`."""
    order = np.lexsort((-margin, classes))
    totals = np.bincount(classes)
    starts = np.cumsum(totals) - totals
    places = np.empty(len(margin))
    places[order] = (np.arange(len(margin)) - starts[classes[order]] + 0.5) / totals[classes[order]]
    return places
