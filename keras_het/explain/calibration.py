"""Calibration: how far probabilities can be trusted."""

import dataclasses
from typing import Any

import numpy as np

from keras_het.base.batches import check_same_index, largest_of_rows
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_integer, check_labels


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Predictions sorted by their confidence, the largest probability, into B bins of equal width.

    Attributes:
        edges: edges of the bins, `(B + 1,)`, from 0 to 1.
        count: examples in each bin, `(B,)`.
        confidence: their mean confidence, `(B,)`, nan in an empty bin.
        accuracy: the fraction of them that is predicted right, `(B,)`, nan in an empty bin.
        error: the expected calibration error, the mean of |accuracy - confidence| over the examples.
    """

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    error: float


def calibration(probabilities: Any, labels: Any, bins: int = 15) -> Calibration:
    """The fraction of right predictions for each level of confidence, as a reliability diagram shows it.

    Its `error` is the expected calibration error, over bins of equal width,

        sum over bins b of |sum over i in b of 1[y_i = argmax p_i] - max p_i| / N    (Guo et al. 2017, Eq. 3)

    With noisy labels it says whether a model knows how often the *labels* agree with it. Such a model is less sure of
    the true classes than it could be.

    Args:
        probabilities: `(N, K)`.
        labels: integers, `(N,)`.
        bins: the number of bins.
    Returns:
        `Calibration`.
    Raises:
        ValueError: for other shapes, labels of no class, no example, or no bin.
    Source: Guo, Pleiss, Sun and Weinberger 2017, "On calibration of modern neural networks", section 2; Naeini, Cooper
        and Hauskrecht 2015.

    Example:
        >>> found = calibration([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]], [0, 1, 1], bins=2)
        >>> found.count.tolist(), found.confidence.round(3).tolist(), found.accuracy.round(3).tolist()
        ([0, 3], [nan, 0.833], [nan, 0.667])
        >>> round(found.error, 4)  # |(.9 + .8 + .8) - 2| / 3
        0.1667
    """
    bins = check_integer("bins", bins, 1)
    confidence, success = _confidence_and_success(probabilities, labels)
    places = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(places, minlength=bins)
    filled = np.where(count, count, np.nan)
    mean_confidence, accuracy = (np.bincount(places, values, bins) / filled for values in (confidence, success))
    gaps = np.bincount(places, success - confidence, bins)
    return Calibration(
        np.linspace(0, 1, bins + 1), count, mean_confidence, accuracy, float(np.abs(gaps).sum() / len(success))
    )


def _confidence_and_success(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest probability of each example, and whether its class is the label, 1 or 0, both `(N,)`.

    Raises:
        ValueError: as `calibration`.
    """
    check_same_index(probabilities=probabilities, labels=labels)
    p, y = np.asarray(probabilities), np.asarray(labels)  # float32 stays: a float64 copy may not fit in memory
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(p):
        raise refusal("probabilities", "be (N, K) and `labels` (N,), with N > 0", f"{p.shape} and {y.shape}")
    low, high = p.min(), p.max()
    if not (low >= 0 and high <= 1 + 1e-5) or np.any(np.abs(p.sum(-1, dtype="float64") - 1) > 1e-2):
        rule = "be in [0, 1] and sum to 1, such as the exp of what a head predicts"
        raise refusal("probabilities", rule, f"numbers from {low:.4g} to {high:.4g}")
    check_labels(y, p.shape[1])
    return p.max(axis=1).astype("float64"), (largest_of_rows(p) == y).astype("float64")
