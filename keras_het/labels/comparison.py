"""Comparison of methods by noisy labels, and checks that a model has learned something."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.refusal import outside_level, refuse_if
from keras_het.labels.data import Data
from keras_het.labels.training import Trial

MIN_WEAK_GAP = 0.02  # without it, a significant gap of 0.1 points would warn of a weak model on large data
REMEDY = (
    "scale the inputs (mean 0, variance 1), raise the learning rate (on features, "
    "`optimizer=keras.optimizers.Adam(0.05)`), or train for more epochs (fewer if it memorises the labels)"
)


class Difference(NamedTuple):
    """Mean paired difference of two sets of scores, and its standard error."""

    mean: float
    error: float


def one_standard_error(trials: Sequence[Trial], weight: np.ndarray | None = None) -> Trial:
    """Returns the first trial that is at most one standard error worse than the best; list the safest first.

    Source: Breiman, Friedman, Olshen and Stone 1984, "Classification and regression trees", section 3.4.3.
    """
    best = best_of(trials, weight)
    gaps = ((trial, difference(best.score, trial.score, weight)) for trial in trials)
    return next(trial for trial, gap in gaps if gap.mean <= gap.error)


def best_of(trials: Sequence[Trial], weight: np.ndarray | None = None) -> Trial:
    """Returns the trial with the best mean score."""
    return max(trials, key=lambda trial: np.average(trial.score, weights=weight))


def difference(scores: np.ndarray, others: np.ndarray, weight: np.ndarray | None = None) -> Difference:
    """Returns the paired difference of two sets of scores, `(N,)`.

        mean = sum_n w_n (s_n - o_n) / sum_n w_n,     error^2 = sum_n w_n^2 (s_n - o_n - mean)^2 / (sum_n w_n)^2

    w is `weight`, `(N,)`; None is equal weights.
    """
    gaps = np.subtract(scores, others, dtype="float64")
    fractions = np.full(len(gaps), 1.0 / len(gaps)) if weight is None else weight / weight.sum()
    mean = float(fractions @ gaps)
    return Difference(mean, float(np.sqrt(fractions**2 @ (gaps - mean) ** 2)))


def check_learned(p: np.ndarray, labels: np.ndarray, name: str = "The model", remedy: str = REMEDY) -> None:
    """Raises a ValueError if a model learned nothing; warns if it is not clearly better than the majority class.

    `name` and `remedy` are for the texts.
    """
    failure, rule = describe_failure(p, labels), "predict held-out labels clearly better than the majority class"
    refuse_if(failure, name, f"{rule}: {remedy}", failure)
    gain, text = _gain_over_majority(p, labels)
    if gain.mean <= gain.error:
        problem = "The model is not clearly better than the majority class, so do not rely on its predictions"
        warnings.warn(f"{problem}: {text}. Remedy: {remedy}.", stacklevel=outside_level())


def describe_failure(p: np.ndarray, labels: np.ndarray) -> str:
    """Returns the accuracies of the model and the majority class if the model learned nothing, else an empty text.

    A model has learned something if it beats the majority class by one standard error, or gives the labels more
    probability than shuffled labels:

        mean_n (p_n(y_n) - sum_k q_k p_n(k)) > 2 standard errors,    q_k the fraction of label k

    The second condition admits models of rare classes and overconfident models; `check_learned` warns of them.
    """
    counts, rows = np.bincount(labels, minlength=p.shape[1]), np.arange(len(labels))
    gain, text = _gain_over_majority(p, labels)
    centered = p - p.mean(axis=0, dtype="float64")  # else confidence in the majority class would hide a rare class
    excess = difference(centered[rows, labels], centered @ (counts / len(labels)))
    return "" if excess.mean > 2.0 * excess.error or gain.mean > gain.error else text


def _gain_over_majority(p: np.ndarray, labels: np.ndarray) -> tuple[Difference, str]:
    """Returns the accuracy of a model minus the accuracy of the majority class, and both in words."""
    is_correct, is_majority = p.argmax(axis=1) == labels, labels == np.bincount(labels).argmax()
    gain = difference(is_correct, is_majority)
    return gain, (
        f"it predicts {is_correct.mean():.1%} of the labels, the majority class {is_majority.mean():.1%} "
        f"({100 * gain.mean:+.1f} +- {100 * gain.error:.1f} points)"
    )


def warn_if_weak(p: np.ndarray, data: Data, fold_of: np.ndarray) -> None:
    """Warns if the nearest class mean of the features is better, by two standard errors and two points."""
    if getattr(data.x, "ndim", 0) != 2 or np.asarray(data.x).dtype.kind not in "fiu":
        return
    is_correct = p.argmax(axis=1) == data.labels
    is_nearest = nearest_class_means(data.x, data.labels, fold_of) == data.labels
    gap = difference(is_nearest, is_correct)
    if gap.mean > max(MIN_WEAK_GAP, 2.0 * gap.error):
        warnings.warn(
            f"The model predicts {is_correct.mean():.1%} of the held-out labels, but the nearest class mean of its "
            f"features predicts {is_nearest.mean():.1%}. Do not rely on this model. Remedy: {REMEDY}.",
            stacklevel=outside_level(),
        )


def nearest_class_means(x: Any, labels: np.ndarray, fold_of: np.ndarray) -> np.ndarray:
    """Returns the class of the nearest class mean of the other folds, for each example, `(N,)`.

    argmin_k sum_d (x_d - m_kd)^2 / s_d^2,    s_d^2 the variance of feature d
    """
    classes, folds = np.unique(labels), np.unique(fold_of)
    variance = np.var(x, axis=0, dtype="float64")
    inverse = np.where(variance > 0, 1.0 / np.where(variance > 0, variance, 1.0), 0.0)
    members = [[np.flatnonzero((fold_of == fold) & (labels == k)) for k in classes] for fold in folds]
    sums = np.array([[x[rows].sum(axis=0, dtype="float64") for rows in fold_rows] for fold_rows in members])
    counts = np.array([[len(rows) for rows in fold_rows] for fold_rows in members])
    nearest = np.empty(len(labels), int)
    for number, fold in enumerate(folds):
        count = counts.sum(axis=0) - counts[number]
        means = (sums.sum(axis=0) - sums[number]) / np.maximum(count, 1)[:, None]
        bias = np.where(count > 0, -0.5 * np.square(means) @ inverse, -np.inf)
        nearest[fold_of == fold] = classes[(x[fold_of == fold] @ (means * inverse).T + bias).argmax(axis=1)]
    return nearest
