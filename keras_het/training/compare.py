"""The rule that chooses among candidates by labels that are wrong in part, and the guard against a model of nothing."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_het.label_noise.discriminant import Discriminant, Features, Scaling, moments, sums_of

CLEAR = 1.0  # paired standard errors that make a difference clear
BEHIND = 2.0  # paired standard errors behind the best one, at which a candidate is dropped
NOTABLE = 0.02  # of all labels: less behind the class means is no weak model, however many examples show it
WIDTH = 5  # epochs, of the moving mean by which the epoch is chosen
SMALLEST = float(np.finfo("float32").tiny)
REMEDY = (
    "train for more epochs (fewer if it learns by heart), by a higher learning rate (on features by "
    "`optimizer=keras.optimizers.Adam(0.05)`), or scale the inputs (mean 0, variance 1)"
)


class Difference(NamedTuple):
    """One set of scores beside another, of the same examples.

    Attributes:
        mean: mean score less that of the other.
        error: paired standard error of the mean.
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


def best_epoch(scores: np.ndarray, weights: np.ndarray) -> int:
    """The epoch, from 0, of the largest moving mean of the weighted mean score.

    Args:
        scores: scores of each example after each epoch, `(epochs, N)`; the larger, the better.
        weights: weights of the examples, `(N,)`.
    """
    return int(moving_mean(scores @ weights / weights.sum()).argmax())


def compare(scores: np.ndarray, others: np.ndarray, weights: np.ndarray) -> Difference:
    """The paired difference of two candidates.

        mean = sum_n w_n (s_n - o_n) / sum_n w_n,     error^2 = sum_n w_n^2 (s_n - o_n - mean)^2 / (sum_n w_n)^2

    Args:
        scores: scores of the first, `(N,)`, such as whether it predicts an example's label.
        others: scores of the other, on the same examples.
        weights: weights of the examples, `(N,)`.

    Example:
        >>> compare(np.array([1, 1, 0, 1]), np.array([1, 0, 0, 1]), np.ones(4)).mean
        0.25
    """
    above, share = np.subtract(scores, others, dtype="float64"), weights / weights.sum()
    mean = float(share @ above)
    return Difference(mean, math.sqrt(float(share**2 @ (above - mean) ** 2)))


def choose_one(
    candidates: Sequence[Any],
    difference: Callable[[Any, Any], Difference],
    safest: Any,
    errors: Callable[[Any], float],
) -> Any:
    """The candidate of the largest mean score, if it is clear; else the safest one; else the plain training.

    Labels that are wrong by a pattern of the examples can be predicted, too. So of candidates that predict as many
    labels, the one that is least able to follow them predicts the true classes better.

    Args:
        candidates: the plain training first.
        difference: difference of one candidate to another.
        safest: the candidate for a doubt, one of them.
        errors: function of a candidate that returns the standard errors by which it must be above the safest one.
    """
    plain = candidates[0]
    best = max(candidates, key=lambda candidate: difference(candidate, plain).mean)
    above = (one for one in (best, plain) if difference(one, safest).is_above(errors(one)))
    return next(above, safest)


def check_learned(p: np.ndarray, labels: np.ndarray, by_means: np.ndarray | None = None) -> None:
    """Stops where a model has learned nothing, and warns where it is clearly behind the class means of its features.

    It has learned nothing if, on held-out examples, neither its share of predicted labels is above that of the largest
    class by a paired standard error, nor the labels have more of its probability than labels that are dealt at random:

        mean_n (p_n(y_n) - sum_k q_k p_n(k)) > 2 standard errors,    q_k the share of label k

    The second does not ask for the right confidence: a model of rare classes, or one that is too sure, may pass.

    Args:
        p: probabilities out of sample, `(N, K)`.
        labels: integers in [0, K), `(N,)`.
        by_means: predictions of `class_means`, `(N,)`; None for no comparison.
    Raises:
        ValueError: for a model that has learned nothing, with the remedy.
    Warns: if the class means predict more of the labels, by over two paired standard errors and two points.
    """
    counts, rows, ones = np.bincount(labels, minlength=p.shape[1]), np.arange(len(labels)), np.ones(len(labels))
    right, frequent = p.argmax(axis=1) == labels, labels == counts.argmax()
    follows = compare(p[rows, labels], p @ (counts / len(labels)), ones).is_above(2.0)
    if not follows and not compare(right, frequent, ones).is_above(1.0):
        rule = f"predict held-out labels better than the largest class does: {REMEDY}"
        shares = f"{right.mean():.1%} of the labels predicted, where the largest class is {frequent.mean():.1%} of them"
        raise ValueError(f"The model must {rule}. Received: {shares}")
    nearest = right if by_means is None else by_means == labels
    behind = compare(nearest, right, ones)
    if behind.is_above(2.0) and behind.mean > NOTABLE:
        warnings.warn(
            f"The model predicts {right.mean():.1%} of the held-out labels, and the nearest class mean of the same "
            f"features {nearest.mean():.1%}: it is weak, and so is what follows from it. Remedy: {REMEDY}.",
            stacklevel=3,
        )


def class_means(x: Any, labels: np.ndarray, fold_of: np.ndarray) -> np.ndarray | None:
    """The class of the nearest mean of each example, `(N,)`, by the labels of the other folds; None without features.

        argmin_k sum_d (x_d - m_kd)^2 / s_d^2,    s_d^2 the variance of the feature

    Args:
        x: examples as the network takes them; only an array of numbers `(N, D)` has features.
        labels: integers, `(N,)`.
        fold_of: the fold of each example, `(N,)`.

    Example:
        >>> x = np.array([[0.0], [1.0], [10.0], [11.0]])
        >>> class_means(x, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])).tolist()
        [0, 0, 1, 1]
    """
    if getattr(x, "ndim", 0) != 2 or np.asarray(x).dtype.kind not in "fiu":
        return None
    features = _by_deviation(x)
    parts = [np.flatnonzero(fold_of == fold) for fold in np.unique(fold_of)]
    units, ones = int(labels.max()) + 1, np.ones(len(x))
    sums = [sums_of(features, rows, labels, units, ones, products=False) for rows in parts]
    counts, totals = (np.sum(values, axis=0) for values in list(zip(*sums, strict=True))[:2])
    found = np.zeros(len(labels), int)
    for rows, own in zip(parts, sums, strict=True):
        nearest = _nearest_mean(counts - own.counts, totals - own.features)
        found[rows] = features.logits(rows, nearest).argmax(axis=1)
    return found


def _by_deviation(x: Any) -> Features:
    """Features that are divided by their deviations."""
    mean, variance = moments(np.asarray(x))
    deviation = np.sqrt(np.where(variance > 0, variance, 1.0))
    return Features(np.asarray(x), Scaling(mean.astype("float32"), deviation.astype("float32")))


def _nearest_mean(counts: np.ndarray, totals: np.ndarray) -> Discriminant:
    """The classifier by the nearest of the means, of the sums and counts of each class."""
    means = totals / np.maximum(counts, 1)[:, None]
    bias = np.where(counts > 0, -0.5 * np.square(means).sum(axis=1), -np.inf)
    return Discriminant(means.T.astype("float32"), bias.astype("float32"))


def class_means_of(train: Any, others: Any) -> np.ndarray | None:
    """The same for other examples than those to train on, `(M,)`.

    Args:
        train: anything with examples `x` and labels `y`, integers `(N,)`, such as a `Task`.
        others: the same with M other examples.
    """
    if any(getattr(part.x, "ndim", 0) != 2 or np.asarray(part.x).dtype.kind not in "fiu" for part in (train, others)):
        return None
    features, units = _by_deviation(train.x), int(max(train.y.max(), others.y.max())) + 1
    ones, rows = np.ones(len(train.y)), np.arange(len(train.y))
    sums = sums_of(features, rows, train.y, units, ones, products=False)
    new = features._replace(x=np.asarray(others.x))
    return new.logits(np.arange(len(others.y)), _nearest_mean(sums.counts, sums.features)).argmax(axis=1)
