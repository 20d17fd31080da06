"""Fractions by a few verified examples and what is known of all: by cells of examples that look alike.

Examples are cut into cells by what is known of all N of them (whether label and prediction agree, the confidence),
never by what was verified. With W_h the fraction of all examples in cell h, and a_h that of its verified ones that
count,

    a = sum_h W_h a_h

is unbiased whatever the labels are, and the better the cells tell who counts, the less it varies. With two cells, agree
and do not, it is the estimate of prediction-powered inference with the best power, and of two-phase sampling.
(Angelopoulos, Duchi and Zrnic 2023, "PPI++", eq. 7; Neyman 1938, for cells.)
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

from keras_het.truth.intervals import NORMAL, TAIL, Estimate, estimate

LEAST = 20  # verified examples of a cell, but for the first cut: with fewer an interval grows by more than it gains
MOST = 8  # cells, for the same reason


class Counted(NamedTuple):
    """What was verified in cells, any shape: all entries are of one cell each.

    Attributes:
        share: fraction of all examples that are in the cell.
        hits: sum of the weights of its verified examples that count.
        size: sum of the weights of its verified examples.
        squares: sum of the squares of these.
    """

    share: Any
    hits: Any
    size: Any
    squares: Any


class Part(NamedTuple):
    """A sum over cells, its squared distance to the ends of its interval, and what it adds to the spread between cells.

    Attributes:
        value: W_h a_h, or a sum of them.
        below: squared distance to the lower end.
        above: squared distance to the upper end.
        second: W_h a_h^2, or their sum.
        least: part of the value that is of cells of which nothing was verified, and may be 0.
        most: amount by which these may be more.
    """

    value: Any
    below: Any
    above: Any
    second: Any
    least: Any = 0.0
    most: Any = 0.0

    def __add__(self, other: Any) -> "Part":  # type: ignore[override]  # parts are added, not joined
        return Part(*map(np.add, self, other))

    def summed(self, axis: int) -> "Part":
        """The sum over an axis of cells."""
        return Part(*(each.sum(axis=axis) for each in self))

    def distances(self, count: int) -> tuple[Any, Any]:
        """Distances of the sum to the ends of its 95% interval: roots of the sums of squares, and the bounds.

        The fractions of the cells, which are of a sample of N, too, add their own square.

        Source: Zou and Donner 2008, "Construction of confidence limits about effect measures", eq. 2.

        Args:
            count: N.
        """
        between = NORMAL**2 * np.maximum(self.second - np.square(self.value), 0.0) / count
        return np.sqrt(self.below + between) + self.least, np.sqrt(self.above + between) + self.most

    def estimate(self, count: int) -> Estimate:
        """The sum with its 95% interval, for N examples."""
        below, above = self.distances(count)
        return estimate(self.value, self.value - below, self.value + above)


def part(counted: Counted) -> Part:
    """W_h a_h of each cell, with the interval of Jeffreys for a_h, or a bound from 0 to W_h where nothing was verified.

    Verified examples of unequal weights count for (sum w)^2 / sum w^2 (Kish 1965). Where nothing was verified a_h is
    that of all cells together.

    Args:
        counted: cells.
    Source: Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion", section 4.1.

    Example:
        >>> found = part(Counted(1.0, 10.0, 10.0, 10.0)).estimate(10)
        >>> print(found)
        1.000 (0.783 to 1.000)
    """
    share, hits, size, squares = np.broadcast_arrays(*(np.asarray(each, "float64") for each in counted))
    seen = size > 0
    together = hits.sum() / size.sum() if seen.any() else 0.5
    a = np.where(seen, hits / np.where(seen, size, 1.0), together)
    low, high = jeffreys(a, np.where(seen, np.square(size) / np.where(seen, squares, 1.0), 0.0))
    known, unknown = share * seen, share * ~seen
    below, above = np.square(known * (a - low)), np.square(known * (high - a))
    return Part(share * a, below, above, share * np.square(a), unknown * a, unknown * (1.0 - a))


def jeffreys(a: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of a fraction `a` of `count` examples, arrays: Beta(n a + 1/2, n (1 - a) + 1/2), 2.5% each.

    They are 0 for a = 0, 1 for a = 1, and 0 and 1 for a count of 0.
    """
    pairs, place = np.unique(np.stack([np.ravel(a), np.ravel(count)], axis=1), axis=0, return_inverse=True)
    a_own, n = pairs.T
    ends = []
    for tail in (TAIL, 1.0 - TAIL):
        ends.append(betaincinv(n * a_own + 0.5, n * (1.0 - a_own) + 0.5, tail))
    low = np.where((a_own <= 0) | (n == 0), 0.0, np.minimum(ends[0], a_own))
    high = np.where((a_own >= 1) | (n == 0), 1.0, np.maximum(ends[1], a_own))
    return low[place.ravel()].reshape(np.shape(a)), high[place.ravel()].reshape(np.shape(a))


def odds(over: Part, under: Part, count: int) -> Estimate:
    """a / (a + b) of two sums, with its 95% interval; the value is nan if both are 0.

    r = a / b is outside the interval where |a - r b| is more than the square root of the sum of squared distances of a
    and of r b from their ends.

    Source: Donner and Zou 2012, "Closed-form confidence intervals for functions of the normal mean and standard
        deviation", eq. 9, for a / b.
    """
    distances = [*over.distances(count), *under.distances(count)]
    a_below, a_above, b_below, b_above = map(np.square, distances)
    a, b = np.asarray(over.value), np.asarray(under.value)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a / (a + b)
        root = np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_above) * (a**2 - a_below), 0.0))
        least = np.maximum(a**2 - a_below, 0.0) / (a * b + root)
        most = (a * b + np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_below) * (a**2 - a_above), 0.0))) / (b**2 - b_below)
        low = np.where(a > 0, np.where(np.isinf(least), 1.0, least / (1.0 + least)), 0.0)
        high = np.where(b**2 > b_below, most / (1.0 + most), 1.0)
    return estimate(value, np.nan_to_num(low), np.where(np.isnan(high), 1.0, high))


def cells_of(proxies: list[np.ndarray], rows: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The cell of each example, `(N,)`, from 0: cut at medians, by one proxy after the other, while cells stay filled.

    Args:
        proxies: numbers of each example, `(N,)`, the most telling first, by which the first cut is always made.
        rows: places of the verified examples.
        weights: their weights, `(n,)`; None for equal ones. Of unequal ones examples count for (sum w)^2 / sum w^2.

    Example:
        >>> cells_of([np.array([0, 1, 0, 1])], np.array([0, 1])).tolist()
        [1, 0, 1, 0]
    """
    seen = np.zeros(len(proxies[0]))
    seen[rows] = 1.0 if weights is None else weights
    found, waiting, number = np.zeros(len(seen), int), [(np.arange(len(seen)), 0)], 0
    least = max(LEAST, effective(seen) / MOST)
    while waiting:
        inside, depth = waiting.pop()
        cut = _cut(proxies, inside, seen[inside], depth, least)
        if cut is None:
            found[inside], number = number, number + 1
        else:
            waiting += [(inside[~cut], depth + 1), (inside[cut], depth + 1)]
    return found


def _cut(
    proxies: list[np.ndarray], inside: np.ndarray, seen: np.ndarray, depth: int, least: float
) -> np.ndarray | None:
    """Which of the examples are above the median of the next proxy that leaves enough on both sides; None for none."""
    for step in range(len(proxies)):
        values = proxies[(depth + step) % len(proxies)][inside]
        above = values > np.median(values)
        above = above if above.any() else values > values.min()  # of two values the larger may be the more frequent
        few = min(effective(seen[above]), effective(seen[~above])) < least
        if above.any() and not (few and depth + step):
            return above
    return None


def effective(weights: np.ndarray) -> float:
    """Number of examples of equal weights that vary as little (Kish 1965)."""
    squares = np.square(weights).sum()
    return float(weights.sum() ** 2 / squares) if squares else 0.0


def counted(
    counts: np.ndarray, weights: np.ndarray, cells: np.ndarray, rows: np.ndarray, number: int | None = None
) -> Counted:
    """What was verified in cells: whether each verified example counts, or how much in [0, 1].

    Args:
        counts: 0, 1 or between, `(n,)`.
        weights: weights of the verified examples, `(n,)`.
        cells: cells of all examples, `(N,)`.
        rows: places of the verified ones, `(n,)`.
        number: number of cells; None for the largest and one.
    """
    number = int(cells.max()) + 1 if number is None else number
    shares = np.bincount(cells, minlength=number) / len(cells)
    own = cells[rows]
    sums = [np.bincount(own, each, number) for each in (weights * counts, weights, weights**2)]
    return Counted(shares, *sums)


def fraction(counts: np.ndarray, weights: np.ndarray, cells: np.ndarray, rows: np.ndarray) -> Estimate:
    """The fraction of all examples that count, with its 95% interval, for arguments as in `counted`."""
    return part(counted(counts, weights, cells, rows)).summed(0).estimate(len(cells))


def worth(found: Estimate, alone: Estimate, count: int) -> float:
    """How many verified examples alone would give so short an interval: count (width alone / width)^2, or nan.

    Args:
        found: estimate by verified examples and all others.
        alone: estimate by these `count` alone.
        count: number of verified examples.
    """
    width = found.high - found.low
    return float(count * ((alone.high - alone.low) / width) ** 2) if 0 < width < np.inf else float("nan")
