"""An estimate with its interval."""

import dataclasses
from typing import Any

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


def estimate(value: Any, deviation: Any, least: float = 0.0, most: float = 1.0) -> Estimate:
    """The estimate whose interval is 1.96 standard deviations to both sides, cut to [least, most].

    Example:
        >>> print(estimate(np.array([0.98, 0.5]), 0.02))
        0.980 (0.941 to 1.000)
        0.500 (0.461 to 0.539)
    """
    ends = (np.clip(value + sign * NORMAL * deviation, least, most) for sign in (-1, 1))
    return Estimate(*(float(x) if np.ndim(x) == 0 else x for x in (value, *ends)))
