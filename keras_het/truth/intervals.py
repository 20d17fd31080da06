"""Estimates with their intervals."""

import dataclasses
from typing import Any

import numpy as np

NORMAL = 1.959964  # 95% of a normal distribution lie within so many standard deviations
TAIL = 0.025  # of an interval, on each side


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
