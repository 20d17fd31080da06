"""Intervals of fractions, of sums of fractions over strata, and of ratios, by few verified examples."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

NORMAL = 1.959964  # 95% of a normal distribution lie within this number of standard deviations
TAIL = 0.025  # on each side of an interval


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimate, or an array of estimates, with its 95% interval.

    Attributes:
        value: the estimate; nan if nothing was verified.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        if np.ndim(self.value):
            return "\n".join(str(Estimate(*each)) for each in zip(self.value, self.low, self.high, strict=True))
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


class Part(NamedTuple):
    """A fraction that is a sum over strata: value, and distances to the ends of its 95% interval."""

    value: Any
    below: Any
    above: Any

    def estimate(self) -> Estimate:
        """Returns the value with its interval within [0, 1]."""
        ends = self.value - self.below, self.value + self.above
        numbers = self.value, *(np.clip(end, 0.0, 1.0) for end in ends)
        return Estimate(*(float(x) if np.ndim(x) == 0 else x for x in numbers))


def jeffreys(fraction: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of Jeffreys' 95% interval of a fraction of `count` examples, arrays.

    They are quantiles of Beta(n a + 1/2, n (1 - a) + 1/2), but 0 for a = 0, 1 for a = 1, and 0 and 1 for n = 0.

    Source: Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion", section 4.1.
    """
    low, high = (
        betaincinv(count * fraction + 0.5, count * (1.0 - fraction) + 0.5, tail) for tail in (TAIL, 1.0 - TAIL)
    )
    low = np.where((fraction <= 0) | (count == 0), 0.0, np.minimum(low, fraction))
    return low, np.where((fraction >= 1) | (count == 0), 1.0, np.maximum(high, fraction))


def stratified(shares: Any, verified: Sequence, count: Any) -> Part:
    """Returns the fraction sum_h W_h a_h of N examples that count, with its interval, over the last axis.

    Squared distances of the strata to the ends of Jeffreys' intervals add up. Verified examples of unequal weights are
    worth (sum w)^2 / sum w^2. The shares W_h of a sample add the variance between strata, and a stratum without a
    verified example a bound from 0 to W_h.

    Args:
        shares: W_h, `(..., H)`.
        verified: sums over the verified examples, three times `(..., H)`: weights of those that count, weights of all,
            and their squares.
        count: N.
    Source: Zou and Donner 2008, "Construction of confidence limits about effect measures", eq. 2.

    Example:
        >>> print(stratified([1.0], ([10.0], [10.0], [10.0]), 10).estimate())
        1.000 (0.783 to 1.000)
    """
    shares, hits, sizes, squares = (np.asarray(x, "float64") for x in (shares, *verified))
    is_seen, total = sizes > 0, sizes.sum(axis=-1, keepdims=True)
    pooled = np.where(total > 0, hits.sum(axis=-1, keepdims=True) / np.where(total > 0, total, 1.0), 0.5)
    a = np.where(is_seen, hits / np.where(is_seen, sizes, 1.0), pooled)
    low, high = jeffreys(a, np.where(is_seen, np.square(sizes) / np.where(is_seen, squares, 1.0), 0.0))
    value, known, unknown = (shares * a).sum(axis=-1), shares * is_seen, shares * ~is_seen
    between = NORMAL**2 * np.maximum((shares * np.square(a)).sum(axis=-1) - np.square(value), 0.0) / count
    below, above = (np.sqrt(np.square(known * x).sum(axis=-1) + between) for x in (a - low, high - a))
    return Part(value, below + (unknown * a).sum(axis=-1), above + (unknown * (1.0 - a)).sum(axis=-1))


def ratio_of(over: Part, under: Part) -> Estimate:
    """Returns a / (a + b) of two fractions, with its interval; the value is nan if both are 0.

    r = a / b is outside the interval where |a - r b| is more than the root of the sum of the squared distances of a and
    of r b to their ends.

    Source: Donner and Zou 2012, "Closed-form confidence intervals for functions of the normal mean and standard
        deviation", eq. 9.
    """
    (a, *of_a), (b, *of_b) = over, under
    (a_below, a_above), (b_below, b_above) = (map(np.square, distances) for distances in (of_a, of_b))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a / (a + b)
        root = np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_above) * (a**2 - a_below), 0.0))
        least = np.maximum(a**2 - a_below, 0.0) / (a * b + root)
        most = (a * b + np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_below) * (a**2 - a_above), 0.0))) / (b**2 - b_below)
        low = np.where(a > 0, np.where(np.isinf(least), 1.0, least / (1.0 + least)), 0.0)
        high = np.where(b**2 > b_below, most / (1.0 + most), 1.0)
    return Estimate(value, np.nan_to_num(low), np.where(np.isnan(high), 1.0, high))
