"""Comparison of methods by noisy labels, and checks that a model has learned something."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.labels.data import Data
from keras_het.labels.training.linear import MAX_REGRESSION_ROWS, REGRESSIONS, Features, scaling
from keras_het.labels.training.trainer import Trial

ROUNDING, TINY = 1e-9, float(np.finfo("float32").tiny)
MIN_WEAK_GAP = 0.02  # without it, a significant gap of 0.1 points would warn of a weak model on large data
REMEDY = (
    "scale the inputs (mean 0, variance 1), raise the learning rate, or train for more epochs (fewer if it memorises "
    "the labels)"
)


class Difference(NamedTuple):
    """Mean paired difference of two sets of scores, and its standard error."""

    mean: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the mean is above its standard error, by more than rounding."""
        return self.mean > self.error * (1.0 + ROUNDING)


def one_standard_error(trials: Sequence[Trial], weight: np.ndarray | None = None) -> Trial:
    """Returns the first trial that is at most one standard error worse than the best; list the safest first.

    Source: Breiman, Friedman, Olshen and Stone 1984, "Classification and regression trees", section 3.4.3.
    """
    best = best_of(trials, weight)
    gaps = ((trial, difference(best.score, trial.score, weight)) for trial in trials)
    return next(trial for trial, gap in gaps if not gap.is_clear)


def best_of(trials: Sequence[Trial], weight: np.ndarray | None = None) -> Trial:
    """Returns the trial with the best mean score."""
    return max(trials, key=lambda trial: np.average(trial.score, weights=weight))


def difference(scores: np.ndarray, others: np.ndarray, weight: np.ndarray | None = None) -> Difference:
    """Returns the paired difference of two sets of scores, `(N,)`.

        mean = sum_n f_n (s_n - o_n),     error^2 = sum_n f_n^2 (s_n - o_n - mean)^2 / (1 - sum_n f_n^2)

    f is `weight`, `(N,)`, divided by its sum; None is equal weights. Then the error is the usual one, of N - 1 degrees
    of freedom, and a single example with another score is no clear difference.
    """
    gaps = np.subtract(scores, others, dtype="float64")
    fractions = np.full(len(gaps), 1.0 / len(gaps)) if weight is None else weight / weight.sum()
    mean = float(fractions @ gaps)
    squares = fractions**2
    return Difference(mean, float(np.sqrt(squares @ (gaps - mean) ** 2 / max(1.0 - squares.sum(), TINY))))


def check_learned(p: np.ndarray, labels: np.ndarray, name: str = "The model", remedy: str = REMEDY) -> None:
    """Raises a ValueError if a model learned nothing; warns if it is not clearly better than the majority class.

    Clearly is by two standard errors: of labels that are random, one in six models is better by one.
    `name` and `remedy` are for the texts.
    """
    failure, rule = describe_failure(p, labels), "predict held-out labels clearly better than the majority class"
    refuse_if(failure, name, f"{rule}: {remedy}", failure)
    gain, text = _gain_over_majority(p, labels)
    if gain.mean <= 2.0 * gain.error:
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
    return "" if excess.mean > 2.0 * excess.error or gain.is_clear else text


def _gain_over_majority(p: np.ndarray, labels: np.ndarray) -> tuple[Difference, str]:
    """Returns the accuracy of a model minus the accuracy of the majority class, and both in words."""
    is_correct, is_majority = p.argmax(axis=1) == labels, labels == np.bincount(labels).argmax()
    gain = difference(is_correct, is_majority)
    return gain, (
        f"it predicts {is_correct.mean():.1%} of the labels, the majority class {is_majority.mean():.1%} "
        f"({100 * gain.mean:+.1f} +- {100 * gain.error:.1f} points)"
    )


def warn_if_weak(p: np.ndarray, data: Data, fold_of: np.ndarray) -> None:
    """Warns if logistic regression on the same features is better, by two standard errors and two points."""
    if getattr(data.x, "ndim", 0) != 2 or np.asarray(data.x).dtype.kind not in "fiu":
        return
    rows = np.sort(random_generator(0).permutation(len(data))[:MAX_REGRESSION_ROWS])
    part = data[rows]
    logits = Features(part, scaling(part.x, part.weight)).held_out(REGRESSIONS, fold_of[rows], np.arange(len(part)))
    is_correct = p[rows].argmax(axis=1) == part.labels
    regressions = [each.argmax(axis=1) == part.labels for each in logits]
    best = max(regressions, key=np.mean)
    gap = difference(best, is_correct)
    if gap.mean > max(MIN_WEAK_GAP, 2.0 * gap.error):
        warnings.warn(
            f"The model predicts {is_correct.mean():.1%} of the held-out labels, but logistic regression on the same "
            f"features predicts {best.mean():.1%}. Do not rely on this model. Remedy: {REMEDY}.",
            stacklevel=outside_level(),
        )
