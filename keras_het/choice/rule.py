"""The rule that chooses among candidates by labels that are wrong in part, from predictions of held-out examples."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

CLEAR = 1.0  # paired standard errors that make a difference clear
BEHIND = 2.0  # paired standard errors behind the best one, at which a candidate is dropped
WIDTH = 5  # epochs, of the moving mean by which the epoch is chosen


@dataclasses.dataclass(frozen=True)
class Difference:
    """A candidate beside another one, on the same examples.

    Attributes:
        mean: of the share of labels that are predicted, the candidate's less the other's.
        error: its paired standard error.
    """

    mean: float
    error: float

    def is_above(self, errors: float) -> bool:
        """Whether the mean is larger than this number of standard errors."""
        return self.mean > errors * self.error


def moving_mean(values: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """The mean of each value and its neighbours, `width` values in all; the ends go on as they are.

    Example:
        >>> moving_mean(np.array([0.0, 3.0, 0.0]), width=3).tolist()
        [1.0, 1.0, 1.0]
    """
    padded = np.pad(values, width // 2, mode="edge")
    return np.convolve(padded, np.full(width, 1.0 / width), "valid")


def best_epoch(right: np.ndarray, weights: np.ndarray) -> int:
    """The epoch, from 0, of the largest moving mean of the weighted share of labels that are predicted.

    Args:
        right: whether an example's label is predicted after an epoch, `(epochs, N)`.
        weights: of the examples, `(N,)`.
    """
    return int(moving_mean(right @ weights / weights.sum()).argmax())


def compare(right: np.ndarray, other: np.ndarray, weights: np.ndarray) -> Difference:
    """The paired difference of two candidates.

        mean = sum_n w_n (right_n - other_n) / sum_n w_n,     error^2 = sum_n w_n^2 (right_n - other_n - mean)^2
                                                                         / (sum_n w_n)^2

    Args:
        right: whether the first one predicts an example's label, `(N,)`.
        other: the same of the other.
        weights: of the examples, `(N,)`.

    Example:
        >>> compare(np.array([1, 1, 0, 1]), np.array([1, 0, 0, 1]), np.ones(4)).mean
        0.25
    """
    above, share = right.astype("float64") - other, weights / weights.sum()
    mean = float(share @ above)
    return Difference(mean, math.sqrt(float(share**2 @ (above - mean) ** 2)))


def choose_one(
    candidates: Sequence[Any], difference: Callable[[Any, Any], Difference], safest: Any, errors: float
) -> Any:
    """The candidate that predicts most labels, if it is clear; else the safest one; else the plain training.

    Labels that are wrong by a pattern of the examples can be predicted, too. So of candidates that predict as many
    labels, the one that is least able to follow them predicts the true classes better.

    Args:
        candidates: the plain training first.
        difference: of one candidate to another.
        safest: the candidate for a doubt, one of them.
        errors: standard errors that a difference must have.
    """
    plain = candidates[0]
    best = max(candidates, key=lambda candidate: difference(candidate, plain).mean)
    if difference(best, safest).is_above(errors):
        return best
    return plain if difference(plain, safest).is_above(errors) else safest
