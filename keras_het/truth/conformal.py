"""Sets of classes that hold the true class, by held-out noisy labels and T."""

import dataclasses
from typing import Any

import numpy as np

from keras_het.base.refusal import refusal
from keras_het.base.seeds import random_generator
from keras_het.base.tables import Titled
from keras_het.base.validation import check_boolean, check_choice, check_integer, check_open_fraction
from keras_het.label_noise.estimation import check_distributions
from keras_het.truth.corrected_weights import Noisy, read_noisy

DRAWS = 200
CORRECTIONS = ("asymptotic", "finite", None)
KOLMOGOROV = np.sqrt(2.0 * np.pi) / 4.0  # the mean of the largest deviation of n uniform numbers upward, times root n
PENALTY, FREE = 0.01, 5  # of RAPS: for each further class, and the number of classes without a penalty


@dataclasses.dataclass(frozen=True)
class ConformalSets(Titled):
    """A rule that gives each example a set of classes: those whose score is at most a threshold.

    Attributes:
        level: rate at which the set shall hold the true class.
        score: "lac", "aps" or "raps".
        thresholds: thresholds of the classes, `(K,)`; all the same unless `per_class`. Infinite if no threshold reaches
            the level: then the class is in every set.
        coverage: coverage of the thresholds by the corrected labels, before the correction of the finite sample; a
            number, or `(K,)` if `per_class`.
        margin: excess of that over the level, as the threshold was chosen on these examples; a number, or
            `(K,)` if `per_class`.
        mean_size: mean size of the sets of these examples.
        per_class: boolean, whether the level is kept for each true class, not only on average.
        notes: (title, text) of what the rule rests on.
    """

    level: float
    score: str
    thresholds: np.ndarray
    coverage: Any
    margin: Any
    mean_size: float
    per_class: bool
    notes: tuple[tuple[str, str], ...]

    def sets(self, probabilities: Any) -> np.ndarray:
        """Which classes are in the set of each example, booleans `(N, K)`, for probabilities `(N, K)`.

        Raises:
            ValueError: for rows that do not sum to one, or another number of classes.
        """
        p = check_distributions(probabilities)
        if p.shape[1] != len(self.thresholds):
            rule = f"have {len(self.thresholds)} columns, as those of the calibration"
            raise refusal("probabilities", rule, p.shape[1])
        return scores(p, self.score) <= self.thresholds

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the rule and of what it rests on."""
        whose = "each true class" if self.per_class else "the true class, on average over the classes"
        without = int(np.isinf(self.thresholds).sum())
        trivial = f", {without} classes are in every set, for no threshold reaches the level" if without else ""
        return [
            ("sets", f"{self.score.upper()}, to hold {whose} in {self.level:.0%} of the examples"),
            ("mean size", f"{self.mean_size:.2f} of {len(self.thresholds)} classes{trivial}"),
            ("margin", f"{np.max(self.margin):.3f} above the level, as the threshold was chosen on these labels"),
            *self.notes,
        ]


def conformal_sets(
    probabilities: Any,
    labels: Any,
    transition: Any,
    *,
    level: float = 0.9,
    score: str = "lac",
    per_class: bool = False,
    correction: str | None = "asymptotic",
    draws: int = DRAWS,
    seed: int | list[int] = 0,
) -> ConformalSets:
    """A rule for sets of classes that hold the TRUE class as often as wanted, from noisy labels of held-out examples.

    Ordinary conformal sets hold the label so often. With wrong labels they are far too large. Here the threshold is the
    least t with

        F(t) - margin >= level,    F(t) = mean over n of sum_i (T^-1)[noisy_n, i] 1[score_i(x_n) <= t]

    where F(t) estimates P(score of the true class <= t). For `per_class`, class i has a threshold of its own by its
    part of the sum, divided by its share. **It holds under the conditions of `true_performance`**: noise that does not
    depend on the example given its true class, the right T, and held-out examples. Labels that trained the model cannot
    be told apart from others, and make the sets too small.

    F is rough, and the least t picks a place where it is too high. The margin makes up for that:

    * "asymptotic": the mean of the largest F*(t) - F(t) over samples of the examples, with a T that is drawn anew if it
      is uncertain. It is right in the limit of many labels.
    * "finite": the bound of Sesia et al., which holds for any number of labels; often it is so large that no threshold
      reaches the level, and the sets are all classes. It is for a T that is taken for exact, and labels `(N,)`.
    * None: no margin; the sets then cover a little less than the level.

    Scores of class i, with classes in descending order of probability: "lac" 1 - p_i; "aps" the sum of the
    probabilities to class i, with it; "raps" the same, and .01 for each place beyond the fifth. The random part of APS
    is left out, so the same example has always the same set.

    Args:
        probabilities: probabilities of the model for held-out examples, `(N, K)`, each row of sum 1.
        labels: their noisy labels, integers `(N,)`, or `(N, M)` of annotators, as in `true_performance`.
        transition: T, as in `true_performance`.
        level: level of the coverage, in (0, 1).
        score: "lac", "aps" or "raps".
        per_class: boolean, whether every true class is to be covered so often (label-conditional).
        correction: "asymptotic", "finite" or None.
        draws: samples for the asymptotic margin.
        seed: seed of the samples; an integer, at least 0, or a list of them.
    Returns:
        `ConformalSets`; its method `sets(probabilities)` is for new examples.
    Raises:
        ValueError: for values outside these ranges, or as `true_performance`.
    Source: Sesia, Wang and Tong 2023, "Adaptive conformal classification with noisy labels" (arXiv 2309.05092): F and
        the finite-sample margins. Bortolotti et al. 2025 (arXiv 2501.18060): the mean supremum in the limit of many
        labels; here by samples with replacement. Penso and Goldberger 2024 (arXiv 2405.02648): uniform noise. Scores:
        Sadinle, Lei and Wasserman 2019; Romano, Sesia and Candes 2020, without its random part; Angelopoulos et al.
        2021.

    Example:
        >>> p = np.array([[0.8, 0.2], [0.3, 0.7]]).repeat(500, axis=0)
        >>> labels = np.arange(1000) % 4 % 3 % 2 ^ (np.arange(1000) >= 500)  # a quarter is wrong
        >>> found = conformal_sets(p, labels, [[0.75, 0.25], [0.25, 0.75]])
        >>> found.sets([[0.8, 0.2], [0.4, 0.6]]).tolist(), found.mean_size
        ([[True, False], [False, False]], 1.0)
    """
    noisy, rng = read_noisy(probabilities, labels, transition), random_generator(seed)
    level = check_open_fraction("level", level)
    check_boolean("per_class", per_class)
    found = scores(noisy.p.astype("float64", copy=False), check_choice("score", score, tuple(_SCORES)))
    check_choice("correction", correction, CORRECTIONS)
    if correction == "finite" and (noisy.redraw is not None or noisy.labels.shape[1] > 1):
        rule = 'be "asymptotic" for a T that is uncertain, or of several annotators'
        raise refusal("correction", rule, "correction='finite'")
    process, margin = _Process(found, noisy.weights(noisy.inverses), per_class), np.zeros(1)
    if correction == "asymptotic":
        margin = process.mean_supremum(
            (occurs, noisy.weights(inverses)) for occurs, inverses in noisy.draws(check_integer("draws", draws, 1), rng)
        )
    elif correction == "finite":
        margin = finite_margin(noisy, per_class)
    thresholds, coverage = process.thresholds(level + margin)
    return ConformalSets(
        level,
        score,
        thresholds,
        coverage if per_class else float(coverage[0]),
        margin + np.zeros(len(thresholds)) if per_class else float(margin[0]),
        float((found <= thresholds).sum(axis=1).mean()),
        per_class,
        tuple(noisy.explain()),
    )


def scores(p: np.ndarray, score: str) -> np.ndarray:
    """The score of each class of each example, `(N, K)`: the larger, the less it fits."""
    return _SCORES[score](p)


def _sum_to(p: np.ndarray, penalty: float = 0.0) -> np.ndarray:
    """The sum of the probabilities down to each class, and a penalty for each place beyond the fifth."""
    order = np.argsort(-p, axis=1, kind="stable")
    found = np.empty_like(p)
    beyond = penalty * np.maximum(np.arange(1, p.shape[1] + 1) - FREE, 0)
    np.put_along_axis(found, order, np.take_along_axis(p, order, axis=1).cumsum(axis=1) + beyond, axis=1)
    return found


_SCORES = {"lac": lambda p: 1.0 - p, "aps": _sum_to, "raps": lambda p: _sum_to(p, PENALTY)}


class _Process:
    """F(t), for all classes together or for each, at every score that occurs, in order."""

    def __init__(self, scores: np.ndarray, weights: np.ndarray, per_class: bool) -> None:
        self.weights, self.count, self.size, self.per_class = weights, *scores.shape, per_class
        columns = list(scores.T) if per_class else [scores.ravel()]
        self.orders = [np.argsort(column, kind="stable") for column in columns]
        self.sorted = [column[order] for column, order in zip(columns, self.orders, strict=True)]
        self.own = self._values(weights)

    def _values(self, weights: np.ndarray) -> list[np.ndarray]:
        """F at each score in order; for each class divided by its share, or 0 if noise has left it none."""
        columns = list(weights.T) if self.per_class else [weights.ravel()]
        sums = [column[order].cumsum() for column, order in zip(columns, self.orders, strict=True)]
        if self.per_class:
            return [found / found[-1] if found[-1] > 0 else np.zeros_like(found) for found in sums]
        return [found / self.count for found in sums]

    def mean_supremum(self, draws: Any) -> np.ndarray:
        """The mean over samples of the largest F*(t) - F(t), an entry for each threshold."""
        found = []
        for occurs, weights in draws:
            drawn = self._values(occurs[:, None] * weights)
            found.append([np.max(new - old) for new, old in zip(drawn, self.own, strict=True)])
        return np.mean(found, axis=0)

    def thresholds(self, wanted: Any) -> tuple[np.ndarray, np.ndarray]:
        """The least scores at which F is as large as wanted, `(K,)`, and F there; infinity where it never is."""
        wanted = np.broadcast_to(wanted, len(self.own))
        pairs = [_first(*each) for each in zip(self.sorted, self.own, wanted, strict=True)]
        thresholds, coverage = np.array(pairs).T
        return np.broadcast_to(thresholds, self.size).copy(), coverage


def _first(scores: np.ndarray, values: np.ndarray, wanted: float) -> tuple[float, float]:
    last = np.append(scores[1:] > scores[:-1], True)  # of equal scores the last has all of their weights
    found = np.flatnonzero(last & (values >= wanted))
    return (scores[found[0]], values[found[0]]) if len(found) else (np.inf, 1.0)


def finite_margin(noisy: Noisy, per_class: bool) -> np.ndarray:
    """The margin that holds for any number of labels, `(1,)`, or `(K,)` for each class.

        c(n_k) + 2 sum over l != k of |V_kl| m,
        m = min(K sqrt(pi / 2), 1 / sqrt(n*) + sqrt(log(2 K n*) / 2)) / sqrt(n*)

    with n_k labels of class k, n* the fewest of these, c(n) the mean largest deviation of n uniform numbers, and V the
    inverse of p(true l | noisy k). Marginal: c(n) + (2 max_k sum of |V_kl| + sum_k |share - noisy share|) m, with K^2
    for K. (Sesia, Wang and Tong 2023, the constants of their label-conditional and marginal algorithms.)
    """
    inverse = np.linalg.inv(noisy.transitions[0])
    counts = np.bincount(noisy.labels[:, 0], minlength=len(inverse))
    if (fewest := counts.min()) == 0:
        return np.ones(len(inverse) if per_class else 1)
    given = counts / counts.sum()
    true = np.maximum(given @ inverse, 1e-12)
    v = np.abs(inverse.T * given / true[:, None])
    others = v.sum(axis=1) - v.diagonal()
    terms = len(inverse) if per_class else len(inverse) ** 2
    root = np.sqrt(fewest)
    m = min(terms * np.sqrt(np.pi / 2), 1 / root + np.sqrt(np.log(2 * terms * fewest) / 2)) / root
    if per_class:
        return KOLMOGOROV / np.sqrt(counts) + 2 * others * m
    whole = KOLMOGOROV / np.sqrt(counts.sum()) + (2 * others.max() + np.abs(true - given).sum()) * m
    return np.array([whole])
