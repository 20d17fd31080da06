"""Whether the noise depends on the class alone, and by the T that is believed: tests by clean or repeated labels."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri, chndtrinc, ndtri, xlogy

from keras_het.base.batches import check_same_index, largest_of_rows
from keras_het.base.refusal import refusal
from keras_het.base.seeds import random_generator
from keras_het.base.tables import Titled
from keras_het.base.validation import check_fraction, check_labels, check_number, check_open_fraction
from keras_het.truth.corrected_weights import Noisy, read_noisy

LEVEL = 0.05  # p-value below which a test says no
TELLS = 0.03  # a test that says no more seldom, though nothing is wrong, has too few labels: what it can find is rare
ROUNDING = 1e-12  # of sums of equal numbers
DRAWS, FEWEST = 1999, 199  # with what was found 2,000, or 200: the level .05 is a whole number of them
WORK = 1 << 25  # labels in all draws, beyond which there are fewer draws
BLOCK = 1 << 20  # labels that are held at once


@dataclasses.dataclass(frozen=True)
class TransitionTest:
    """One question, answered by the labels that were given.

    Attributes:
        question: question in words.
        finding: result in words, and whether the labels are too few to tell.
        p_value: p-value of a finding so extreme, if the answer is yes; never 0, for it is counted among draws.
        needed: number of examples with such labels that find what `finding` names, in the share `power` of all cases;
            None if that cannot be said.
    """

    question: str
    finding: str
    p_value: float
    needed: int | None


@dataclasses.dataclass(frozen=True)
class TransitionCheck(Titled):
    """Tests of what every analysis by T rests on; it prints in plain words.

    Attributes:
        tests: a `TransitionTest` for each question.
        holds: boolean, whether no test says no, at .05 for all of them together; None if the labels are too few to
            tell. True is no proof: few labels find little.
        examples: number of examples.
        power: power of `needed`.
    """

    tests: tuple[TransitionTest, ...]
    holds: bool | None
    examples: int
    power: float

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the verdict and of each test."""
        wrong = "T or its assumption is wrong: do not trust it"
        verdict = {True: "nothing speaks against T", False: wrong, None: "too few to tell"}[self.holds]
        lines = [("verdict", f"by {self.examples:,} examples, {verdict}")]
        for test in self.tests:
            needed = f"; to find it, {test.needed:,} examples ({self.power:.0%} power)" if test.needed else ""
            lines.append((test.question, f"{test.finding} (p {test.p_value:.2g}){needed}"))
        return lines


def check_transition(
    probabilities: Any,
    labels: Any,
    transition: Any,
    true: Any = None,
    *,
    smallest: float = 0.05,
    power: float = 0.9,
    seed: int | list[int] = 0,
) -> TransitionCheck:
    """Tests whether T is right and noise does not depend on the example, by a few clean labels or by repeated ones.

    With `true`, the true classes of the same examples, there are three questions:

    1. Do labels depend on the class alone? S = sum_n p_n(label_n) is compared with what it is if, within each true
       class, labels are dealt to the examples at random. Labels that follow the look of an example agree more with the
       model than those of another one of its class.
    2. Is T right? The likelihood ratio G = 2 sum_ij c_ij log(c_ij / (c_i T_ij)) of the counts c of true classes and
       labels.
    3. Is the accuracy right that `true_performance` says? The mean over n of (T^-1)[label_n, prediction_n] -
       1[true_n = prediction_n] is zero if so. This is what counts: T may be wrong in ways that do not matter.

    Without `true`, labels of at least two annotators, who do not know of each other, `(N, M)`, have one question: do
    they agree as often as T says? Those who are misled by the same examples agree more often.

    No p-value is from a normal distribution. It is the rank of what was found among 1,999 draws, fewer for more than
    16,000 labels: for 1 of permutations within the classes, for 2 and 3 of labels by T, for annotators of true classes,
    in the shares that their labels and T give, and of labels by T. So a test says no in .05 of all cases at most, by
    five labels as by a thousand, and in clearly fewer only where few labels have few outcomes. Where that is below .03
    the finding says "too few to tell". The verdict is by the smallest p-value; its limit is such that it says no in .05
    of all cases, too.

    For each question it says how many examples are needed: to find a dependence, or a difference of T or of agreement,
    as large as the one that was found, and for 3 a difference of `smallest`. Examples must be drawn at random, and held
    out: labels that trained the model cannot be told apart from others, and the model agrees with their errors.

    Args:
        probabilities: probabilities of the model for held-out examples, `(N, K)`, each row of sum 1.
        labels: their noisy labels, integers `(N,)`; without `true`, `(N, M)`, -1 where an annotator gave none.
        transition: T, as in `true_performance`; its estimate is tested as it is, without its error.
        true: the true classes, integers `(N,)`.
        smallest: the error of the accuracy that shall be found, in (0, 1].
        power: the fraction of the cases in which it shall be found, in (0, 1).
        seed: seed of the draws; an integer, at least 0, or a list of them.
    Returns:
        `TransitionCheck`; print it.
    Raises:
        ValueError: for values outside these ranges, labels of one annotator without `true`, or as `true_performance`.
    Source: Barnard 1963, and Besag and Clifford 1989, "Generalized Monte Carlo significance tests", for ranks among
        draws; Tarone 1990, "A modified Bonferroni method for discrete data", for the verdict.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = rng.integers(3, size=600)
        >>> p = 0.7 * np.eye(3)[true] + 0.1
        >>> labels = np.where(rng.random(600) < 0.3, (true + 1) % 3, true)
        >>> flips = [[0.7, 0.3, 0.0], [0.0, 0.7, 0.3], [0.3, 0.0, 0.7]]
        >>> check_transition(p, labels, flips, true).holds
        True
        >>> check_transition(p, labels, np.transpose(flips), true).holds  # transposed
        False
    """
    check_same_index(probabilities=probabilities, labels=labels, true=true)
    noisy, rng = read_noisy(probabilities, labels, transition), random_generator(seed)
    check_fraction("smallest", check_number("smallest", smallest, above=0.0))
    check_open_fraction("power", power)
    if true is None:
        found = _agree(noisy, power, rng)
        return _verdict([found.test], [found.p_values], noisy, power)
    if noisy.labels.shape[1] > 1:
        raise refusal("labels", "have shape (N,) beside `true`", shape=noisy.labels)
    true = check_labels(true, noisy.p.shape[1], len(noisy.p), "true")
    dealt = _by_class(noisy, true, power, rng)
    counts, bias = _by_transition(noisy, true, smallest, power, rng)
    together = [dealt.p_values, np.minimum(counts.p_values, bias.p_values)]  # both of the latter are of the same draws
    return _verdict([each.test for each in (dealt, counts, bias)], together, noisy, power)


class _Tested(NamedTuple):
    """A test, and the p-values of what was found and of each draw, `(1 + D,)`."""

    test: TransitionTest
    p_values: np.ndarray


def _found(question: str, finding: str, statistics: np.ndarray, needed: int | None, certain: bool = False) -> _Tested:
    """The test by statistics of what was found and of the draws, large ones being extreme.

    `certain` is that T has one label for each class: then a single other one shows that it is wrong.
    """
    p = p_values(statistics)
    few = bool(p[0] >= LEVEL and np.mean(p < LEVEL) < TELLS) and not certain
    return _Tested(TransitionTest(question, finding + "; too few to tell" * few, float(p[0]), needed), p)


def _verdict(tests: list[TransitionTest], groups: list[np.ndarray], noisy: Noisy, power: float) -> TransitionCheck:
    """The check by the smallest p-value m of independent groups, for which 1 - prod_g (1 - P_g(p <= m)) is below .05.

    A p-value that no draw can reach costs the others nothing. Counts of labels do not say to which examples of a class
    they were dealt, so question 1 is independent of the others to first order.
    """
    limits = np.unique(np.concatenate(groups))
    above = [1.0 - np.searchsorted(np.sort(group), limits, side="right") / len(group) for group in groups]
    together = 1.0 - np.prod(above, axis=0)
    says_no = limits[together < LEVEL].max(initial=0.0)
    holds: bool | None = bool(min(group[0] for group in groups) > says_no)
    if holds and together[together < LEVEL].max(initial=0.0) < TELLS and not _certain(noisy.transitions):
        holds = None
    return TransitionCheck(tuple(tests), holds, len(noisy.p), power)


def _certain(rows: np.ndarray) -> bool:
    return bool((rows.max(axis=-1) == 1.0).all())


def _by_class(noisy: Noisy, true: np.ndarray, power: float, rng: np.random.Generator) -> _Tested:
    """Whether labels are dealt to the examples of a true class at random."""
    order = np.argsort(true, kind="stable")
    true, y, more = true[order], noisy.labels[order, 0], noisy.p[order].astype("float64", copy=False)
    excess, rows = np.empty(len(y)), np.arange(len(y))
    for k in (classes := np.unique(true)):
        own = slice(*np.searchsorted(true, [k, k + 1]))
        more[own] -= more[own].mean(axis=0)
        dealt = more[own] @ (np.bincount(y[own], minlength=more.shape[1]) / len(y[own]))
        excess[own] = more[rows[own], y[own]] - dealt  # beyond what the model gives to a label of another one
    sums = [np.array([excess.sum()])]
    for size in _blocks(len(y)):
        places = np.argsort(
            true + rng.random((size, len(y))), axis=1
        )  # permuted within the classes, which are in order
        sums.append(_sum_at(more, rows, y[places]))
    statistics = np.abs(np.concatenate(sums))
    free = max(1, len(y) - len(classes))  # an example of each class is lost with its mean
    spread = (math.sqrt(np.square(statistics[1:]).mean() / free), float(excess.std()))
    needed = _needed(excess.sum() / free, *spread, power) if statistics.max() > ROUNDING * len(y) else None
    finding = f"the model gives the labels {excess.mean():+.3f} more than if they were dealt within the class"
    needed = None if needed is None else needed + len(classes)
    return _found("do labels depend on the class alone", finding, statistics, needed)


def _by_transition(
    noisy: Noisy, true: np.ndarray, smallest: float, power: float, rng: np.random.Generator
) -> tuple[_Tested, _Tested]:
    """Whether the labels of each class are as T says, and the accuracy that follows from them is right."""
    y, t, w, predicted = noisy.labels[:, 0], noisy.transitions[0], noisy.inverses[0], largest_of_rows(noisy.p)
    right, totals = np.sum(true == predicted), np.bincount(true, minlength=len(t))
    with np.errstate(divide="ignore"):
        log_t = np.log(t)

    def of(labels: np.ndarray) -> np.ndarray:
        same = _sum_over_counts(true * len(t) + labels, lambda count: xlogy(count, count))
        ratio = 2.0 * (same - xlogy(totals, totals).sum() - _sum_at(log_t, true, labels))
        return np.stack([ratio, _sum_at(w.T, predicted, labels) - right], axis=1)

    drawn = (_draw_of_rows(t, np.broadcast_to(true, (size, len(true))), rng) for size in _blocks(len(true)))
    ratios, biases = np.concatenate([of(y[None]), *map(of, drawn)]).T
    counts = np.bincount(true * len(t) + y, minlength=t.size).reshape(t.shape)
    distance = 0.5 * np.abs(counts - totals[:, None] * t).sum() / len(true)
    expected, needed = ratios[1:].mean(), None
    if np.isfinite(ratios[0]) and ratios[0] > expected > 0:
        per_example = (ratios[0] - expected) / len(true)
        needed = math.ceil(chndtrinc(chdtri(expected, LEVEL), expected, 1.0 - power) / per_example)
    finding = f"the fractions of labels are {distance:.3f} from T (total variation), chance included"
    certain = _certain(t[true])
    by_counts = _found("is T right", finding, ratios, needed, certain)
    deviation = math.sqrt(noisy.noise_variance()[true, predicted].mean())
    needed = _needed(smallest, deviation, deviation, power) or None
    finding = f"it is {biases[0] / len(true):+.3f} from that by the true classes; {smallest:g} is looked for"
    return by_counts, _found("is the accuracy by T right", finding, np.abs(biases), needed, certain)


def _agree(noisy: Noisy, power: float, rng: np.random.Generator) -> _Tested:
    """Whether annotators agree as often as their T say."""
    if noisy.labels.shape[1] < 2:
        rule = "be of at least two annotators, (N, M), if the true classes are not given"
        raise refusal("labels", rule, f"shape ({len(noisy.p)},)")
    given, count = noisy.labels >= 0, len(noisy.p)
    numbers = given.sum(axis=1)
    if not (pairs := int((numbers * (numbers - 1) // 2).sum())):
        raise refusal("labels", "have examples with labels of two annotators", "none")
    examples, annotators = np.nonzero(given)  # of each label
    size, table = noisy.p.shape[1], _expected_agreement(noisy, given)[examples]
    for m, inverse in enumerate(noisy.inverses):  # what a label says of how often the annotators of its example agree
        table[annotators == m] = table[annotators == m] @ inverse.T
    table *= noisy.parts()[given][:, None]
    weights = np.maximum(noisy.weights(noisy.inverses).mean(axis=0), 0.0)
    shares, rows = weights[None] / weights.sum(), noisy.transitions.reshape(-1, size)

    def beyond(labels: np.ndarray) -> np.ndarray:
        same = _sum_over_counts(examples * size + labels, lambda number: number * (number - 1) / 2)
        return same - _sum_at(table, np.arange(len(examples)), labels)

    sums = [beyond(noisy.labels[given][None])]
    for draws in _blocks(len(examples)):
        true = _draw_of_rows(shares, np.zeros((draws, count), int), rng)
        sums.append(beyond(_draw_of_rows(rows, annotators * size + true[:, examples], rng)))
    found = np.concatenate(sums)
    deviation = math.sqrt(np.square(found[1:]).mean() / count)
    finding = f"they agree on {found[0] / pairs:+.3f} more of the pairs of labels than T says"
    needed = _needed(found[0] / count, deviation, deviation, power) or None
    return _found("do annotators agree as often as T says", finding, np.abs(found), needed, _certain(rows))


def _expected_agreement(noisy: Noisy, given: np.ndarray) -> np.ndarray:
    """How many pairs of the annotators of each example agree by their T, for each true class, `(N, K)`."""
    expected = np.zeros(noisy.p.shape)
    for m, first in enumerate(noisy.transitions):
        for n, second in enumerate(noisy.transitions[:m]):
            expected[given[:, m] & given[:, n]] += np.einsum("ij,ij->i", first, second)
    return expected


def _needed(effect: float, by_chance: float, with_it: float, power: float) -> int | None:
    """How many examples find a mean of this size, by deviations of one example without and with the effect."""
    if not effect:
        return None
    return math.ceil(((ndtri(1.0 - LEVEL / 2) * by_chance + ndtri(power) * with_it) / effect) ** 2)


def _blocks(count: int) -> Iterator[int]:
    """Numbers of draws, of `count` labels each, that are made at once."""
    left = min(DRAWS, max(FEWEST, WORK // count))
    while left:
        size = min(left, max(1, BLOCK // count))
        yield size
        left -= size


def _draw_of_rows(rows: np.ndarray, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A label by each of the distributions `rows[places]`, for rows `(R, K)`; of the shape of `places`."""
    ends = rows.cumsum(axis=1)
    ends = (ends / ends[:, -1:] + np.arange(len(rows))[:, None]).ravel()  # row r in [r, r + 1]: one search for all
    found = np.searchsorted(ends, places + rng.random(places.shape), side="right") - places * rows.shape[1]
    return np.minimum(found, rows.shape[1] - 1)  # r + u may be rounded to r + 1


def _sum_at(table: np.ndarray, places: np.ndarray, labels: np.ndarray) -> Any:
    """The sum over n of table[places_n, labels_n], for labels `(N,)`, or `(D, N)` of D draws."""
    return table[places, labels].sum(axis=-1)


def _sum_over_counts(keys: np.ndarray, function: Callable) -> np.ndarray:
    """For each row of `keys`, `(D, N)`, the sum of `function(how often it occurs)` over the keys that occur."""
    ordered = np.sort(keys, axis=1)
    last = np.ones(keys.shape, bool)
    last[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.flatnonzero(last)
    return np.bincount(ends // keys.shape[1], function(np.diff(ends, prepend=-1)), len(keys))


def p_values(statistics: np.ndarray) -> np.ndarray:
    """Of each statistic, `(D,)`, the share that is at least as large, itself included; sums in another order are equal.

    If the first is as the others are, its p-value is below a number a in a share a of all cases at most: the test is
    exact (Barnard 1963; Phipson and Smyth 2010, "Permutation p-values should never be zero").

    Example:
        >>> p_values(np.array([3.0, 1.0, 1.0, 2.0])).tolist()
        [0.25, 1.0, 1.0, 0.5]
    """
    finite = statistics[np.isfinite(statistics)]
    slack = 1e-9 * np.abs(finite).max(initial=0.0)
    smaller = np.searchsorted(np.sort(statistics), statistics - slack)
    return (len(statistics) - smaller) / len(statistics)
