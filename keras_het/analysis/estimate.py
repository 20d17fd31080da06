"""An estimate with its interval."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

NORMAL = 1.959964  # 95% of a normal distribution lie within so many standard deviations


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimate, or an array of them, and its 95% interval.

    Attributes:
        value: as it was computed: of a share it may be below 0 or above 1.
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


class Noise(NamedTuple):
    """Variances that labels by T add to one example's weight, and how far an uncertain T moves the mean.

    Attributes:
        hit: if the example is one of those whose share is estimated.
        miss: if it is not.
        of_transition: variance of the mean of all by the error of T.
    """

    hit: Any
    miss: Any
    of_transition: Any = 0.0


def share_estimate(value: Any, count: Any, noise: Noise, whole: Any = 1.0) -> Estimate:
    """The estimate of a share a by the mean of weights, with all a that `value` does not speak against.

        |value - a| <= 1.96 sqrt(V(a) / count + of_transition),    V(a) = a (1 - a) + a hit + (whole - a) miss

    The variance is that under T at a, not that of the sample, which is none where all agree. Without noise it is the
    interval of Wilson. Where T is uncertain V(a) is so, too: then the interval has 1.96 deviations at `value`, too.

    Args:
        value: estimate of a.
        count: examples that it is the mean of.
        noise: what T adds.
        whole: share of all examples that may be counted at all; the others have the weight 0.
    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference", for hit = miss = 0.

    Example:
        >>> print(share_estimate(1.0, 10, Noise(0.0, 0.0)))
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
