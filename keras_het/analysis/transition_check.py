"""Whether the noise depends on the class alone, and by the T that is believed: tests by clean or repeated labels."""

import dataclasses
import html
import math
from typing import Any

import numpy as np
from scipy.special import chdtri, chndtrinc, ndtr, ndtri

from keras_het.analysis.corrected_weights import Noisy, read_noisy
from keras_het.base.batches import check_same_index
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_labels, check_number, check_share

LEVEL = 0.05  # p-value below which a test says no
DRAWS = 2000  # tables of labels as T makes them
ROUNDING = 1e-12  # variance of equal numbers


@dataclasses.dataclass(frozen=True)
class TransitionTest:
    """One question, answered by the labels that were given.

    Attributes:
        question: in words.
        finding: what was found, in words.
        p_value: of a finding so extreme, if the answer is yes.
        needed: how many examples with such labels find what `finding` names, in the share `power` of all cases; None
            if that cannot be said.
    """

    question: str
    finding: str
    p_value: float
    needed: int | None


@dataclasses.dataclass(frozen=True)
class TransitionCheck:
    """Tests of what every analysis by T rests on; it prints in plain words.

    Attributes:
        tests: a `TransitionTest` for each question.
        holds: whether no test says no, at .05 for all of them together. It is no proof: few labels find little.
        examples: how many there were.
        power: of `needed`.
    """

    tests: tuple[TransitionTest, ...]
    holds: bool
    examples: int
    power: float

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the verdict and of each test."""
        verdict = "nothing speaks against T" if self.holds else "T or its assumption is wrong: do not trust it"
        lines = [("verdict", f"by {self.examples:,} examples, {verdict}")]
        for test in self.tests:
            needed = f"; to find it, {test.needed:,} examples ({self.power:.0%} power)" if test.needed else ""
            lines.append((test.question, f"{test.finding} (p {test.p_value:.2g}){needed}"))
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{title}: {text}" for title, text in self.lines())

    def _repr_html_(self) -> str:
        """The same as a table for a notebook."""
        rows = (f"<tr><th>{html.escape(title)}</th><td>{html.escape(text)}</td></tr>" for title, text in self.lines())
        return f"<table><tbody>{''.join(rows)}</tbody></table>"


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

    1. Do labels depend on the class alone? S = sum_n p_n(label_n) is compared with what it would be if, within each
       true class, labels were dealt to the examples at random. Mean and variance over all permutations are exact.
       Labels that follow the look of an example agree more with the model than those of another one of its class.
    2. Is T right? The likelihood ratio G = 2 sum_ij c_ij log(c_ij / (c_i T_ij)) of the counts c of true classes and
       labels, with the p-value of 2,000 tables that are drawn by T.
    3. Is the accuracy right that `true_performance` says? The mean over n of (T^-1)[label_n, prediction_n] -
       1[true_n = prediction_n] is zero if so. This is what counts: T may be wrong in ways that do not matter.

    Without `true`, labels of at least two annotators, who do not know of each other, `(N, M)`, have one question: do
    they agree as often as T says? Those who are misled by the same examples agree more often.

    For each question it says how many examples are needed: to find a dependence, or a difference of T or of agreement,
    as large as the one that was found, and for 3 a difference of `smallest`. Examples must be drawn at random, and held
    out: labels that trained the model cannot be told apart from others, and the model agrees with their errors.

    Args:
        probabilities: of the model for held-out examples, `(N, K)`, each row of sum 1.
        labels: their noisy labels, integers `(N,)`; without `true`, `(N, M)`, -1 where an annotator gave none.
        transition: T, as in `true_performance`; its estimate is tested as it is, without its error.
        true: the true classes, integers `(N,)`.
        smallest: the error of the accuracy that shall be found, in (0, 1].
        power: the share of the cases in which it shall be found, in (0, 1).
        seed: of the tables; an integer, at least 0, or a list of them.
    Returns:
        `TransitionCheck`; print it.
    Raises:
        ValueError: for values outside these ranges, labels of one annotator without `true`, or as `true_performance`.
    Source: Hoeffding 1951, "A combinatorial central limit theorem", Theorem 2, for the permutations.

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
    check_share("smallest", check_number("smallest", smallest, above=0.0))
    if not 0.0 < check_number("power", power, above=0.0) < 1.0:
        raise ValueError(f"`power` must be less than 1. Received: power={power!r}")
    if true is None:
        tests = [_agree(noisy, power)]
    else:
        size = noisy.p.shape[1]
        if noisy.labels.shape[1] > 1:
            raise ValueError(f"`labels` must have shape (N,) beside `true`. Received: shape {noisy.labels.shape}")
        true = check_labels(true, size, len(noisy.p), "true")
        tests = [_by_class(noisy, true, power), _by_counts(noisy, true, power, rng)]
        tests.append(_bias(noisy, true, smallest, power))
    holds = all(test.p_value >= LEVEL / len(tests) for test in tests)
    return TransitionCheck(tuple(tests), holds, len(noisy.p), power)


def _by_class(noisy: Noisy, true: np.ndarray, power: float) -> TransitionTest:
    """Whether labels are dealt to the examples of a true class at random."""
    y, variance, excess = noisy.labels[:, 0], 0.0, np.zeros(len(true))
    for k in (classes := np.unique(true)):
        own = true == k
        table = noisy.p[own][:, y[own]]  # of each example, what the model gives to the label of each other one
        centered = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
        excess[own] = centered.diagonal()
        variance += np.square(centered).sum() / max(1, len(table) - 1)
    z = excess.sum() / math.sqrt(variance) if variance > ROUNDING * len(y) else 0.0
    finding = f"the model gives the labels {excess.mean():+.3f} more than if they were dealt within the class"
    free = max(1, len(y) - len(classes))  # an example of each class is lost with its mean
    spread = (math.sqrt(variance / free), float(excess.std()))
    needed = _needed(excess.sum() / free, *spread, power)
    needed = None if needed is None else needed + len(classes)
    return TransitionTest("do labels depend on the class alone", finding, _two_sided(z), needed)


def _by_counts(noisy: Noisy, true: np.ndarray, power: float, rng: np.random.Generator) -> TransitionTest:
    """Whether the labels of each class are as T says."""
    t = noisy.transitions[0]
    counts = np.zeros(t.shape, int)
    np.add.at(counts, (true, noisy.labels[:, 0]), 1)
    totals, found = counts.sum(axis=1), _likelihood_ratio(counts, t)
    tables = (rng.multinomial(total, row, size=DRAWS) for total, row in zip(totals, t, strict=True))
    drawn = sum(_likelihood_ratio(table[:, None], row) for table, row in zip(tables, t, strict=True))
    p_value = (1 + np.sum(drawn >= found - 1e-9)) / (1 + DRAWS)
    distance = 0.5 * np.abs(counts / np.maximum(totals, 1)[:, None] - t).sum(axis=1) @ totals / len(true)
    expected, needed = drawn.mean(), None
    if np.isfinite(found) and found > expected > 0:
        per_example = (found - expected) / len(true)
        needed = math.ceil(chndtrinc(chdtri(expected, LEVEL), expected, 1.0 - power) / per_example)
    finding = f"the shares of labels are {distance:.3f} from T (total variation), chance included"
    return TransitionTest("is T right", finding, float(p_value), needed)


def _likelihood_ratio(counts: np.ndarray, t: np.ndarray) -> Any:
    """2 sum c log(c / expected) over the last two axes; infinite for a label that T excludes."""
    expected = counts.sum(axis=-1, keepdims=True) * t
    with np.errstate(divide="ignore", invalid="ignore"):
        return 2.0 * np.where(counts > 0, counts * np.log(counts / expected), 0.0).sum(axis=(-2, -1))


def _bias(noisy: Noisy, true: np.ndarray, smallest: float, power: float) -> TransitionTest:
    """Whether the accuracy that follows from the labels is that of the true classes."""
    predicted = noisy.p.argmax(axis=1)
    own = noisy.weights(noisy.inverses)[np.arange(len(true)), predicted]
    mean, z, deviation = _mean_zero(own - (true == predicted))
    needed = _needed(smallest, deviation, deviation, power)
    finding = f"it is {mean:+.3f} from that by the true classes; {smallest:g} is looked for"
    return TransitionTest("is the accuracy by T right", finding, _two_sided(z), needed)


def _agree(noisy: Noisy, power: float) -> TransitionTest:
    """Whether annotators agree as often as their T say."""
    if noisy.labels.shape[1] < 2:
        rule = "be of at least two annotators, (N, M), if the true classes are not given"
        raise ValueError(f"`labels` must {rule}. Received: shape ({len(noisy.p)},)")
    weights, differences = noisy.weights(noisy.inverses), np.zeros(len(noisy.p))
    for m, first in enumerate(noisy.labels.T):
        for n in range(m):
            both = (first >= 0) & (noisy.labels[:, n] >= 0)
            expected = weights @ np.einsum("ij,ij->i", noisy.transitions[m], noisy.transitions[n])
            differences += np.where(both, (first == noisy.labels[:, n]) - expected, 0.0)
    pairs = np.mean([(given := int(row.sum())) * (given - 1) / 2 for row in noisy.labels >= 0])
    if not pairs:
        raise ValueError("`labels` must have examples with labels of two annotators. Received: none")
    mean, z, deviation = _mean_zero(differences)
    finding = f"they agree on {mean / pairs:+.3f} more of the pairs of labels than T says"
    question = "do annotators agree as often as T says"
    return TransitionTest(question, finding, _two_sided(z), _needed(mean, deviation, deviation, power))


def _mean_zero(values: np.ndarray) -> tuple[float, float, float]:
    """The mean of independent values, in standard errors, and their standard deviation."""
    mean, deviation = float(values.mean()), float(values.std())
    return mean, mean * math.sqrt(len(values)) / deviation if deviation else math.inf * mean if mean else 0.0, deviation


def _two_sided(z: float) -> float:
    return float(2.0 * ndtr(-abs(z)))


def _needed(effect: float, by_chance: float, with_it: float, power: float) -> int | None:
    """How many examples find a mean of this size, by deviations of one example without and with the effect."""
    if not effect:
        return None
    return math.ceil(((ndtri(1.0 - LEVEL / 2) * by_chance + ndtri(power) * with_it) / effect) ** 2)
