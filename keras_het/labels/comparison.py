"""The rule that compares methods by labels that are wrong in part, and the guards against a model of nothing."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.refusal import outside_level, refuse_if
from keras_het.labels.data import Data
from keras_het.labels.training import Trial

MIN_GAP = 0.02  # behind the class means: a smaller one is no weak model, however many examples show it
REMEDY = (
    "train for more epochs (fewer if it memorises the labels), with a higher learning rate (on features by "
    "`optimizer=keras.optimizers.Adam(0.05)`), or scale the inputs (mean 0, variance 1)"
)


class Difference(NamedTuple):
    """A paired difference of two sets of scores: its mean, and the standard error of the mean."""

    mean: float
    error: float


def one_standard_error(trials: Sequence[Trial], weight: np.ndarray | None = None) -> Trial:
    """Returns the first trial that is not behind the best one by more than a standard error; lists begin with caution.

    Source: Breiman, Friedman, Olshen and Stone 1984, "Classification and regression trees", section 3.4.3.
    """
    best = best_of(trials, weight)
    gaps = ((trial, difference(best.score, trial.score, weight)) for trial in trials)
    return next(trial for trial, gap in gaps if gap.mean <= gap.error)


def best_of(trials: Sequence[Trial], weight: np.ndarray | None = None) -> Trial:
    """Returns the trial of the best mean score."""
    return max(trials, key=lambda trial: np.average(trial.score, weights=weight))


def difference(scores: np.ndarray, others: np.ndarray, weight: np.ndarray | None = None) -> Difference:
    """Returns the paired difference of two sets of scores, `(N,)`.

        mean = sum_n w_n (s_n - o_n) / sum_n w_n,     error^2 = sum_n w_n^2 (s_n - o_n - mean)^2 / (sum_n w_n)^2

    Example:
        >>> difference(np.array([1, 1, 0, 1]), np.array([1, 0, 0, 1])).mean
        0.25
    """
    gaps = np.subtract(scores, others, dtype="float64")
    share = np.full(len(gaps), 1.0 / len(gaps)) if weight is None else weight / weight.sum()
    mean = float(share @ gaps)
    return Difference(mean, float(np.sqrt(share**2 @ (gaps - mean) ** 2)))


def check_learned(p: np.ndarray, labels: np.ndarray) -> None:
    """Raises a ValueError for a model that learned nothing; warns if its classes are no better than the largest."""
    guess, rule = guess_of(p, labels), "predict held-out labels clearly better than the largest class does"
    refuse_if(guess, "The model", f"{rule}: {REMEDY}", guess)
    gain, shares = _over_largest(p, labels)
    if gain.mean <= gain.error:
        said = "The model is not clearly better than the largest class, so do not rely on its predictions"
        warnings.warn(f"{said}: {shares}. Remedy: {REMEDY}.", stacklevel=outside_level())


def guess_of(p: np.ndarray, labels: np.ndarray) -> str:
    """Returns how many labels a model predicts, if it is no better than the largest class; else an empty text.

    Such a model neither predicts more labels than the majority class does, by one standard error, nor gives the labels
    more probability than shuffled labels:

        mean_n (p_n(y_n) - sum_k q_k p_n(k)) > 2 standard errors,    q_k the fraction of label k

    The standard error is that of p less its mean. The second does not ask for the right confidence: a model of rare
    classes, or one that is too sure, may pass by it alone, with a warning.
    """
    counts, rows = np.bincount(labels, minlength=p.shape[1]), np.arange(len(labels))
    gain, shares = _over_largest(p, labels)
    centered = p - p.mean(axis=0, dtype="float64")  # else the confidence in the largest class would hide a rare one
    follows = difference(centered[rows, labels], centered @ (counts / len(labels)))
    return "" if follows.mean > 2.0 * follows.error or gain.mean > gain.error else shares


def _over_largest(p: np.ndarray, labels: np.ndarray) -> tuple[Difference, str]:
    """Returns how many more labels a model predicts than the largest class does, and this in words."""
    is_right, is_largest = p.argmax(axis=1) == labels, labels == np.bincount(labels).argmax()
    gain = difference(is_right, is_largest)
    return gain, (
        f"{is_right.mean():.1%} of the labels predicted, and {is_largest.mean():.1%} are of the largest class "
        f"({100 * gain.mean:+.1f} +- {100 * gain.error:.1f} points)"
    )


def warn_if_weak(p: np.ndarray, data: Data, fold_of: np.ndarray) -> None:
    """Warns if the class means of the features predict more held-out labels, by two standard errors and two points."""
    if getattr(data.x, "ndim", 0) != 2 or np.asarray(data.x).dtype.kind not in "fiu":
        return
    is_right = p.argmax(axis=1) == data.labels
    is_nearest = nearest_class_means(data.x, data.labels, fold_of) == data.labels
    gap = difference(is_nearest, is_right)
    if gap.mean > max(MIN_GAP, 2.0 * gap.error):
        warnings.warn(
            f"The model predicts {is_right.mean():.1%} of the held-out labels, and the nearest class mean of the same "
            f"features {is_nearest.mean():.1%}, so results based on it are unreliable. Remedy: {REMEDY}.",
            stacklevel=outside_level(),
        )


def nearest_class_means(x: Any, labels: np.ndarray, fold_of: np.ndarray) -> np.ndarray:
    """Returns the class of the nearest mean of each example, `(N,)`, by the labels of the other folds.

    argmin_k sum_d (x_d - m_kd)^2 / s_d^2,    s_d^2 the variance of the feature
    """
    classes, folds = np.unique(labels), np.unique(fold_of)
    variance = np.var(x, axis=0, dtype="float64")
    inverse = np.where(variance > 0, 1.0 / np.where(variance > 0, variance, 1.0), 0.0)
    members = [[np.flatnonzero((fold_of == fold) & (labels == k)) for k in classes] for fold in folds]
    sums = np.array([[x[rows].sum(axis=0, dtype="float64") for rows in of_fold] for of_fold in members])
    counts = np.array([[len(rows) for rows in of_fold] for of_fold in members])
    nearest = np.empty(len(labels), int)
    for number, fold in enumerate(folds):
        count = counts.sum(axis=0) - counts[number]
        means = (sums.sum(axis=0) - sums[number]) / np.maximum(count, 1)[:, None]
        bias = np.where(count > 0, -0.5 * np.square(means) @ inverse, -np.inf)
        nearest[fold_of == fold] = classes[(x[fold_of == fold] @ (means * inverse).T + bias).argmax(axis=1)]
    return nearest
