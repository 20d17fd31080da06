"""The mean of what people would say of all examples, by the verdicts of judges on all and of people on a few."""

import dataclasses
from typing import Any

import numpy as np
from scipy.special import stdtrit

from keras_het.base.batches import as_numpy, check_same_index
from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.tables import Titled
from keras_het.base.validation import check_numbers
from keras_het.truth.cells import cells_of, fraction, worth
from keras_het.truth.intervals import TAIL, Estimate, estimate
from keras_het.truth.verified_sample import Sample, check_random, read_sample

FEW = 20  # verified numbers
FOLDS = 10  # of the verified examples, each predicted by the others
LEAST_EACH = 5  # verified examples for each number that is fitted


@dataclasses.dataclass(frozen=True)
class VerifiedMean(Titled):
    """The mean of all examples, as people would judge them; it prints in plain words.

    Attributes:
        mean: `Estimate` of it: value, low and high, of 95%.
        judged: mean of each judge, `(J,)`.
        alone: the mean by the verified examples alone.
        index: places of the verified examples, `(n,)`.
        notes: (title, text) of what the result rests on.
    """

    mean: Estimate
    judged: np.ndarray
    alone: Estimate
    index: np.ndarray
    notes: tuple[tuple[str, str], ...]

    @property
    def worth(self) -> float:
        """Number of verified examples that alone would give so short an interval: n (width alone / width)^2."""
        return worth(self.mean, self.alone, len(self.index))

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the mean and of what it rests on."""
        judged = ", ".join(f"{mean:.3f}" for mean in self.judged)
        worth = f"{self.worth:.0f} verified examples without the other verdicts"
        return [
            ("mean, as people judge", f"{self.mean}; by the {len(self.index)} verified alone {self.alone}"),
            *([("as exact as", worth)] if np.isfinite(self.worth) else []),
            ("mean of the judge" if len(self.judged) == 1 else "means of the judges", judged),
            *self.notes,
        ]


def verified_mean(verdicts: Any, verified: Any, *, inclusion: Any = None) -> VerifiedMean:
    """The mean of what people would say of all outputs, by a judge's verdicts on all and people's on a few.

    For whoever has outputs of a model, right or wrong by the word of another model: how good is it really? No
    probabilities are needed.

    * People say 0 or 1 (wrong or right, also True and False): a = sum_h W_h a_h, with cells of like verdicts, as in
      `verified_performance`; the first cut is by the mean of the judges.
    * People give numbers (grades): mean over all of f + mean over verified of (y - f), with f the linear regression of
      people's numbers on the verdicts, fitted on other verified examples (ten folds); where that varies more than
      people's numbers, f is 0. Intervals by Student's t, which hold less than 95% where few rare numbers make the mean.

    **It holds whatever the judge does**: one that is partial, or errs where the model errs, only helps less. It rests
    on this: people are right, and the verified examples were drawn at random, each with the probability `inclusion`.

    Args:
        verdicts: numbers or booleans of each example, `(N,)`, or of J judges, `(N, J)`.
        verified: people's verdicts, a dict from the indices of examples to numbers or booleans; indices are those of
            `verdicts`, if it is of pandas.
        inclusion: probability of each example to be drawn, a dict from the same indices or an array `(N,)`; None
            for equal ones. They count up to a factor.
    Returns:
        `VerifiedMean`; print it.
    Raises:
        ValueError: for other shapes or values, verdicts that are missing, no verified example or, for numbers, less
            than two; a probability of 0; or examples that cannot have been drawn at random (less than one in 100,000).
    Source: Angelopoulos, Duchi and Zrnic 2023, "PPI++" (arXiv 2311.01453), eq. 7; Zrnic and Candes 2024,
        "Cross-prediction-powered inference" (PNAS 121), for the folds.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> right = rng.random(5000) < 0.7
        >>> judge = right ^ (rng.random(5000) < np.where(right, 0.05, 0.3))  # too friendly
        >>> some = rng.choice(5000, 200, replace=False)
        >>> print(verified_mean(judge, dict(zip(some, right[some]))).mean)
        0.693 (0.643 to 0.740)
    """
    check_same_index(verdicts=verdicts)
    index = verdicts.index if hasattr(verdicts, "iloc") else None
    given = _numbers("verdicts", as_numpy(verdicts))
    refuse_if(given.ndim not in (1, 2) or not given.size, "verdicts", "have shape (N,) or (N, J)", shape=given)
    refuse_first(~np.isfinite(given), "verdicts", "be finite", given)
    judges = given.reshape(len(given), -1)
    sample = read_sample(verified, len(judges), inclusion, index, "verified")
    y = _numbers("verified", list(verified.values()))
    refuse_first(~np.isfinite(y), "verified", "be finite numbers", y)
    each = judges.mean(axis=1)
    scores = {"their verdicts": each} | {f"verdicts of judge {j}": own for j, own in enumerate(judges.T)}
    doubt = check_random(sample, scores, {}, "verified")
    is_fraction = np.isin(y, (0.0, 1.0)).all() and judges.min() >= 0 and judges.max() <= 1
    refuse_if(len(y) < 2 and not is_fraction, "verified", "have at least two examples, for a mean of numbers", len(y))
    find = _of_fractions if is_fraction else mean_estimate
    proxies = judges if len(judges.T) == 1 else np.column_stack([each, judges])
    kind = "fraction of those that are right" if is_fraction else "mean of numbers, by Student's t"
    notes = [("rests on", f"{len(y)} verified examples that were drawn at random; it is the {kind}")]
    if len(y) < FEW and not is_fraction:
        notes.append(("warning", f"intervals of the mean of fewer than {FEW} numbers may hold far less than 95%."))
    return VerifiedMean(
        find(y, judges if find is mean_estimate else proxies, sample),
        judges.mean(axis=0),
        find(y, np.zeros((len(judges), 1)), sample),
        sample.rows,
        tuple(notes + ([("warning", doubt)] if doubt else [])),
    )


def _numbers(name: str, given: Any) -> np.ndarray:
    """Numbers or booleans, `(N,)` or `(N, J)`."""
    array = np.asarray(given)
    rule = "be numbers or booleans; of texts, compare them first, as verdicts == 'right'"
    refuse_if(array.dtype.kind in "SU" or any(isinstance(each, str) for each in array.ravel()[:1]), name, rule, "texts")
    return check_numbers(name, array.astype("float64"))


def _of_fractions(y: np.ndarray, proxies: np.ndarray, sample: Sample) -> Estimate:
    """The fraction of ones."""
    return fraction(y, sample.weights, cells_of(list(proxies.T), sample.rows, sample.weights), sample.rows)


def mean_estimate(y: np.ndarray, proxies: np.ndarray, sample: Sample, least: float = -np.inf) -> Estimate:
    """The mean of numbers that are known of the sample alone, by a regression on what is known of all.

    Args:
        y: numbers of the verified examples, `(n,)`.
        proxies: numbers of all examples, `(N, J)`.
        sample: verified examples.
        least: least possible value.
    """
    if len(y) < 2:
        return estimate(y[0], least, np.inf, least=least, most=np.inf)
    weights = sample.weights
    of_all, of_own = _regressed(y, proxies, sample)
    (shift, spread), (alone, plain) = _rest(y - of_own, weights), _rest(y, weights)
    if spread + of_all.var() / len(proxies) >= plain:  # the verdicts do not help
        of_all, shift, spread = np.zeros(len(proxies)), alone, plain
    value = of_all.mean() + shift
    if spread == 0:  # all are alike, which says nothing of how others differ
        return estimate(value, least, np.inf, least=least, most=np.inf)
    half = stdtrit(len(y) - 1, 1.0 - TAIL) * np.sqrt(spread + of_all.var() / len(proxies))
    return estimate(value, value - half, value + half, least=least, most=np.inf)


def _rest(residuals: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The weighted mean of residuals, and its variance."""
    mean = np.average(residuals, weights=weights)
    squares = np.square(weights * (residuals - mean)).sum() / weights.sum() ** 2
    return float(mean), float(squares * len(weights) / (len(weights) - 1))


def _regressed(y: np.ndarray, proxies: np.ndarray, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of all examples, the mean of those by the folds, and of the verified ones by folds without them."""
    columns = np.column_stack([np.ones(len(proxies)), proxies - proxies.mean(axis=0)])
    own, n = columns[sample.rows], len(y)
    if n < LEAST_EACH * columns.shape[1]:
        return np.zeros(len(proxies)), np.zeros(n)
    fold = np.arange(n) % min(FOLDS, n)  # in the order that they were verified in
    of_all, of_own = np.zeros(len(proxies)), np.zeros(n)
    for k in range(fold.max() + 1):
        root = np.sqrt(sample.weights[fold != k])[:, None]
        found = np.linalg.lstsq(root * own[fold != k], root[:, 0] * y[fold != k], rcond=None)[0]
        of_all += columns @ found * np.mean(fold == k)
        of_own[fold == k] = own[fold == k] @ found
    return of_all, of_own
