"""One number for each example from the ratings of several people, without a model of the examples."""

import dataclasses
from typing import Any

import numpy as np

from keras_het.base.batches import as_numpy
from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.validation import check_boolean, check_number, check_numbers

MAX_ITERATIONS, TOLERANCE = 1000, 1e-6  # of the spreads, and of the biases in units of the mean spread
SMALLEST = 1e-12  # of the variance of all ratings: raters who agree to the last digit have it


@dataclasses.dataclass(frozen=True)
class RaterConsensus:
    """Estimates of the true values, and of the bias and spread of the raters, from their ratings.

    Attributes:
        target: estimate of the true value of each example, `(N,)`; nan without a rating.
        error: standard error of that estimate, `(N,)`, in the units of the ratings; infinite without a rating. What all
            raters add in common, which no rating shows, is not in it. In simulations of 2 to 5 ratings an example 1.645
            errors, for 90%, held the true value in .83 to .94 of the cases.
        bias: number that each rater adds to the true value, `(M,)`; their mean over all ratings is 0.
        spread: standard deviation of each rater's ratings about the true value and the bias, `(M,)`.
        iterations: number of steps.
    """

    target: np.ndarray
    error: np.ndarray
    bias: np.ndarray
    spread: np.ndarray
    iterations: int


def rater_consensus(ratings: Any, smoothing: float = 5.0, equal_spread: bool = False) -> RaterConsensus:
    """Estimates a true value for each example, and how each rater strays from it, from the ratings alone.

    The model: rating of m for n = target_n + bias_m + spread_m e_nm, with independent standard normal e_nm and no
    prior of the targets. EM alternates:

        target_n = sum_m w_m (rating_nm - bias_m) / sum_m w_m,    w_m = 1 / spread_m^2 of those who rated n
        error_n^2 = 1 / sum_m w_m
        bias_m = sum_n (rating_nm - target_n) / (count_m + smoothing)
        spread_m^2 = (sum_n ((rating_nm - target_n - bias_m)^2 + error_n^2) + smoothing s^2) / (count_m + smoothing)

    s^2 is the mean of the squares in the last line over all ratings. So a rater begins with `smoothing` ratings of
    bias 0 and the spread of all: with one rating nobody is perfect. Without error_n^2, which least squares leave out,
    one rater can take all weight.

    The bias of all raters together cannot be told from the targets. Needs examples with ratings of several raters. A
    long table becomes such ratings by `frame.pivot(index="task", columns="rater", values="rating")`.

    Args:
        ratings: numbers `(N, M)`, nan where the rater gave none.
        smoothing: number of ratings that each rater begins with, above 0.
        equal_spread: boolean, whether all raters have one spread; the target is then a plain mean of the ratings
            without their biases.
    Returns:
        `RaterConsensus`; a regression may be trained on `target`, with weights 1 / `error`^2.
    Raises:
        ValueError: for another shape, numbers that are not finite, or no example with two ratings.
    Source: Raykar, Yu, Zhao et al. 2010, "Learning from crowds", JMLR 11, the part on regression, with a bias as in
        Rodrigues, Lourenco, Ribeiro and Pereira 2017, "Learning supervised topic models for classification and
        regression from crowds", both without their model of the examples.

    Example:
        >>> found = rater_consensus([[1.0, 3.0], [2.0, 4.0], [5.0, 7.0], [3.0, np.nan]])
        >>> found.target.round(1).tolist(), found.bias.round(2).tolist()
        ([1.9, 2.9, 5.9, 3.3], [-0.32, 0.43])
    """
    smoothing = check_number("smoothing", smoothing, above=0.0)
    equal_spread = check_boolean("equal_spread", equal_spread)
    ratings = check_numbers("ratings", as_numpy(ratings))
    refuse_if(ratings.ndim != 2, "ratings", "have shape (N, M)", shape=ratings)
    refuse_first(np.isinf(ratings), "ratings", "be finite, or nan where missing", ratings)
    given = _Ratings(ratings)
    several = given.by_example(np.ones(len(given.rows))).max(initial=0.0) > 1
    refuse_if(not several, "ratings", "have two ratings of at least one example", f"{len(given.rows)}, one of each")
    start = np.full(ratings.shape[1], float(given.values.var()) or 1.0)
    found = RaterConsensus(np.empty(0), np.empty(0), np.zeros(len(start)), np.sqrt(start), 0)
    while found.iterations < MAX_ITERATIONS:
        before, found = found, _step(given, found, smoothing, equal_spread, SMALLEST * start[0])
        moved = np.abs(found.bias - before.bias) / found.spread.mean(), np.abs(found.spread / before.spread - 1.0)
        if np.max(moved) < TOLERANCE:
            break
    return found


class _Ratings:
    """The ratings that there are: of which example, by whom, and what; and sums over those of an example or rater."""

    def __init__(self, ratings):
        self.rows, self.who = np.nonzero(~np.isnan(ratings))
        self.values, self.shape = ratings[self.rows, self.who], ratings.shape

    def by_example(self, values):
        return np.bincount(self.rows, values, self.shape[0])

    def by_rater(self, values):
        return np.bincount(self.who, values, self.shape[1])


def _step(given, found, smoothing, equal_spread, smallest):
    """The targets by the biases and spreads that were found, and new biases and spreads by these targets."""
    precision, count = 1.0 / np.square(found.spread[given.who]), given.by_rater(np.ones(len(given.rows)))
    weights = given.by_example(precision)
    with np.errstate(divide="ignore", invalid="ignore"):  # an example without a rating
        target = given.by_example(precision * (given.values - found.bias[given.who])) / weights
        squared_error = 1.0 / weights
    residuals = given.values - target[given.rows]
    bias = given.by_rater(residuals) / (count + smoothing)
    bias -= bias @ count / count.sum()
    squares = given.by_rater(np.square(residuals - bias[given.who]) + squared_error[given.rows])
    mean = max(squares.sum() / count.sum(), smallest)
    variance = np.full_like(bias, mean) if equal_spread else (squares + smoothing * mean) / (count + smoothing)
    return RaterConsensus(target, np.sqrt(squared_error), bias, np.sqrt(variance), found.iterations + 1)
