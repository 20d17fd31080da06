"""Intervals of fractions, stratified fractions, and ratios, from few verified examples."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

Z_95 = 1.959964  # standard deviations that hold 95% of a normal distribution
TAIL_PROBABILITY = 0.025


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Estimate, or array of estimates, with a 95% interval.

    Attributes:
        value: estimate; nan if nothing was verified.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        if np.ndim(self.value):
            return "\n".join(str(Estimate(*row)) for row in zip(self.value, self.low, self.high, strict=True))
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


class Part(NamedTuple):
    """Fraction summed over strata: its value, and the distances to the ends of its 95% interval."""

    value: Any
    below: Any
    above: Any

    def estimate(self) -> Estimate:
        """Returns the value with its interval within [0, 1]."""
        ends = self.value - self.below, self.value + self.above
        numbers = self.value, *(np.clip(end, 0.0, 1.0) for end in ends)
        return Estimate(*(float(x) if np.ndim(x) == 0 else x for x in numbers))


def jeffreys(fraction: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of Jeffreys' 95% interval of fractions of `count` examples.

    The ends are quantiles of Beta(n a + 1/2, n (1 - a) + 1/2), but 0 for a = 0, 1 for a = 1, and 0 and 1 for n = 0.

    Source: Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion", section 4.1.
    """
    parameters = count * fraction + 0.5, count * (1.0 - fraction) + 0.5
    low, high = (betaincinv(*parameters, tail) for tail in (TAIL_PROBABILITY, 1.0 - TAIL_PROBABILITY))
    low = np.where((fraction <= 0) | (count == 0), 0.0, np.minimum(low, fraction))
    return low, np.where((fraction >= 1) | (count == 0), 1.0, np.maximum(high, fraction))


def stratified(fractions: Any, verified: Sequence, count: Any) -> Part:
    """Returns the fraction sum_h W_h a_h of hits among N examples, with its interval, over the last axis.

    The squared distances to the ends of the strata's Jeffreys intervals add up. The effective sample size of weighted
    examples is (sum w)^2 / sum w^2. The interval includes the variance between strata, and the range from 0 to W_h of a
    stratum without verified examples.

    Args:
        fractions: W_h, fractions of all examples in the strata, `(..., H)`.
        verified: sums of the weights of the hits, of all weights, and of squared weights, over the verified examples,
            each `(..., H)`.
        count: N.
    Source: Zou and Donner 2008, "Construction of confidence limits about effect measures", eq. 2.
    """
    fractions, hits, sizes, squares = (np.asarray(x, "float64") for x in (fractions, *verified))
    has_sample, total = sizes > 0, sizes.sum(axis=-1, keepdims=True)
    pooled = np.where(total > 0, hits.sum(axis=-1, keepdims=True) / np.where(total > 0, total, 1.0), 0.5)
    a = np.where(has_sample, hits / np.where(has_sample, sizes, 1.0), pooled)
    low, high = jeffreys(a, np.where(has_sample, np.square(sizes) / np.where(has_sample, squares, 1.0), 0.0))
    value, sampled, unsampled = (fractions * a).sum(axis=-1), fractions * has_sample, fractions * ~has_sample
    between = Z_95**2 * np.maximum((fractions * np.square(a)).sum(axis=-1) - np.square(value), 0.0) / count
    below, above = (np.sqrt(np.square(sampled * x).sum(axis=-1) + between) for x in (a - low, high - a))
    return Part(value, below + (unsampled * a).sum(axis=-1), above + (unsampled * (1.0 - a)).sum(axis=-1))


def ratio(numerator: Part, rest: Part) -> Estimate:
    """Returns a / (a + b) for two fractions, with its interval; the value is nan if both are 0.

    The interval of r = a / b excludes r if |a - r b| is more than the root of the summed squared distances of a and r b
    to the ends of their intervals.

    Source: Donner and Zou 2012, "Closed-form confidence intervals for functions of the normal mean and standard
        deviation", eq. 9.
    """
    (a, *a_distances), (b, *b_distances) = numerator, rest
    (a_below, a_above), (b_below, b_above) = (map(np.square, distances) for distances in (a_distances, b_distances))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a / (a + b)
        root = np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_above) * (a**2 - a_below), 0.0))
        r_low = np.maximum(a**2 - a_below, 0.0) / (a * b + root)
        upper_root = np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_below) * (a**2 - a_above), 0.0))
        r_high = (a * b + upper_root) / (b**2 - b_below)
        low = np.where(a > 0, np.where(np.isinf(r_low), 1.0, r_low / (1.0 + r_low)), 0.0)
        high = np.where(b**2 > b_below, r_high / (1.0 + r_high), 1.0)
    return Estimate(value, np.nan_to_num(low), np.where(np.isnan(high), 1.0, high))
