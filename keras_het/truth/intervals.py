"""Estimates with their intervals: of shares, and of what noisy labels say of the true classes, by variances under T."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from keras_het.base.batches import row_blocks
from keras_het.truth.corrected_weights import Noisy

NORMAL = 1.959964  # 95% of a normal distribution lie within so many standard deviations
TAIL = 0.025  # of an interval, on each side
STEPS = 50  # of the calibration error, between 0 and what was found


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimate, or an array of them, and its 95% interval.

    Attributes:
        value: number as it was computed: of a fraction it may be below 0 or above 1.
        low: the lower end of the interval, within the range of what is estimated.
        high: its upper end.
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        if np.ndim(self.value):
            return "\n".join(str(Estimate(*each)) for each in zip(self.value, self.low, self.high, strict=True))
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def estimate(value: Any, low: Any, high: Any, least: float = 0.0, most: float = 1.0) -> Estimate:
    """The estimate with this interval, cut to [least, most]; numbers as floats.

    Example:
        >>> print(estimate(np.array([0.98, 0.5]), 0.4, np.array([1.02, 0.6])))
        0.980 (0.400 to 1.000)
        0.500 (0.400 to 0.600)
    """
    found = np.broadcast_arrays(value, np.clip(low, least, most), np.clip(high, least, most))
    return Estimate(*(float(x) if np.ndim(x) == 0 else x for x in found))


class Variances(NamedTuple):
    """Variances that labels by T add to one example's weight, and how far an uncertain T moves the mean.

    Attributes:
        hit: variance if the example is one of those whose share is estimated.
        miss: variance if it is not.
        of_transition: variance of the mean of all by the error of T.
    """

    hit: Any
    miss: Any
    of_transition: Any = 0.0


def fraction_estimate(value: Any, count: Any, noise: Variances, whole: Any = 1.0) -> Estimate:
    """The estimate of a share a by the mean of weights, with all a that `value` does not speak against.

        |value - a| <= 1.96 sqrt(V(a) / count + of_transition),    V(a) = a (1 - a) + a hit + (whole - a) miss

    The variance is that under T at a, not that of the sample, which is none where all agree. Without noise it is the
    interval of Wilson. Where T is uncertain V(a) is so, too: then the interval has 1.96 deviations at `value`, too.

    Args:
        value: estimate of a.
        count: examples that it is the mean of.
        noise: variances that T adds.
        whole: fraction of all examples that may be counted at all; the others have the weight 0.
    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference", for hit = miss = 0.

    Example:
        >>> print(fraction_estimate(1.0, 10, Variances(0.0, 0.0)))
        1.000 (0.722 to 1.000)
    """
    unit = NORMAL**2 / count
    half = value + 0.5 * unit * (1.0 + noise.hit - noise.miss)
    rest = value**2 - unit * whole * noise.miss - NORMAL**2 * noise.of_transition
    root = np.sqrt(np.maximum(half**2 - (1.0 + unit) * rest, 0.0))  # no a at all: the nearest
    low, high = (half - root) / (1.0 + unit), (half + root) / (1.0 + unit)
    inside = np.clip(value, 0.0, whole)
    variance = inside * (1.0 - inside) + inside * noise.hit + (whole - inside) * noise.miss
    least = (np.asarray(noise.of_transition) > 0) * NORMAL * np.sqrt(variance / count + noise.of_transition)
    return estimate(value, np.minimum(low, value - least), np.maximum(high, value + least))


class TruthIntervals:
    """What labels by T add to the variance of an example's weight, of which each interval takes its part.

    Args:
        noisy: predictions, labels and T.
        predicted: class of each example, `(N,)`.
        joint: estimated fractions of true class i and prediction k, `(K, K)`.
    """

    def __init__(self, noisy: Noisy, predicted: np.ndarray, joint: np.ndarray) -> None:
        self.noisy, self.predicted, self.joint, self.count = noisy, predicted, joint, len(predicted)
        variance = noisy.noise_variance()  # of the weight for class k, if the true class is i
        size = len(variance)
        likely = np.maximum(joint, 0.0) + 1.0 / (self.count * size**2)  # one more example for all: no 0 / 0
        own = np.diag(variance)[:, None]
        others = (variance.T @ likely - own * likely) / (likely.sum(axis=0) - likely)
        self.of_joint = own, np.maximum(others, 0.0)
        self.hit, self.miss = np.diag(variance)[predicted], self.of_joint[1][predicted, predicted]

    def of_accuracy(self, value: Any, of_transition: Any) -> Estimate:
        """That of the fraction of predictions that are the true class."""
        return fraction_estimate(value, self.count, Variances(self.hit.mean(), self.miss.mean(), of_transition))

    def of_bins(self, value: np.ndarray, counts: np.ndarray, sums: Any, of_transition: np.ndarray) -> Estimate:
        """The same in bins of `counts` examples, nan if empty, where `sums` adds a number of each example up by bin."""
        noise = Variances(sums(self.hit) / counts, sums(self.miss) / counts, of_transition)
        return fraction_estimate(value, counts, noise)

    def of_table(self, of_transition: np.ndarray) -> Estimate:
        """That of the fractions of true class and prediction."""
        predicted = np.bincount(self.predicted, minlength=len(self.joint)) / self.count
        return fraction_estimate(self.joint, self.count, Variances(*self.of_joint, of_transition), predicted)

    def of_loss(self, value: Any, loss: Callable, weighted: np.ndarray, of_transition: Any) -> Estimate:
        """That of the mean loss, by Student's t.

        The variance is at least what labels by T would add if all predictions were right: labels that happen to be the
        predictions do not show it.

        Args:
            value: estimate of the mean loss.
            loss: function that gives the losses of some rows for each class, `(n, K)`.
            weighted: the sum of the losses of each example by its weights, `(N,)`.
            of_transition: variance of the mean by the error of T.
        """
        if self.count < 2:
            return estimate(value, 0.0, np.inf, most=np.inf)
        added = sum(self._added(loss(rows), rows) for rows in row_blocks(self.count)) / self.count
        variance = max(weighted.var(ddof=1), added) / self.count
        half = np.sqrt(stdtrit(self.count - 1, 1.0 - TAIL) ** 2 * variance + NORMAL**2 * of_transition)
        return estimate(value, value - half, value + half, most=np.inf)

    def _added(self, loss: np.ndarray, rows: slice) -> float:
        """The sum of the variances that labels by T add to the losses of some rows, `(n, K)`."""
        total, shares = 0.0, np.square(self.noisy.parts(rows))
        for t, inverse, share in zip(self.noisy.transitions, self.noisy.inverses, shares.T, strict=True):
            by_label, likely = loss @ inverse.T, t[self.predicted[rows]]
            mean = np.einsum("nj,nj->n", likely, by_label)
            total += share @ (np.einsum("nj,nj->n", likely, np.square(by_label)) - np.square(mean))
        return total

    def of_calibration_error(
        self, gaps: np.ndarray, counts: np.ndarray, hit: np.ndarray, sums: Any, shifts: np.ndarray, noise: np.ndarray
    ) -> tuple[float, float]:
        """Ends of the interval of sum_b |gap_b|, where the gap of bin b is its share times (accuracy - confidence).

        The low end is the least size e for which what was found, f, is not among the largest 2.5% of

            sum_b |gap_b e / f + error_b|

        which has gaps of the shape that was found. Sums of absolute values are too large on average, most of all where
        there is no error, so 1.96 deviations below do not hold it. Above they do, for the same reason: the high end is
        f and 1.96 deviations of the sum of the errors, each with the sign of its gap.

        Args:
            gaps: gaps that were found, `(B,)`.
            counts: examples of each bin, `(B,)`.
            hit: their estimated accuracy, `(B,)`; anything if empty.
            sums: function, as in `of_bins`.
            shifts: shifts of the gaps by drawn T, `(D, B)`.
            noise: standard normal numbers, `(D, B)`.
        """
        filled = np.maximum(counts, 1)
        right = np.where(counts, counts * np.clip(hit, 0.0, 1.0) + 2.0, 0.0) / (filled + 4.0)  # never 0 or 1
        variance = right * (1.0 - right) + (right * sums(self.hit) + (1.0 - right) * sums(self.miss)) / filled
        errors = shifts + noise * np.sqrt(variance * counts) / self.count
        found = np.abs(gaps).sum()
        fractions = np.linspace(0.0, 1.0, STEPS + 1)
        drawn = np.stack([np.abs(fraction * gaps + errors).sum(axis=1) for fraction in fractions])
        low = (fractions * found)[np.mean(drawn >= found, axis=1) > TAIL].min(initial=found)
        return low, found + NORMAL * float((errors @ np.where(gaps < 0.0, -1.0, 1.0)).std())
