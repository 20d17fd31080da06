"""Probabilities of the true classes from the labels of several annotators, without a model of the examples."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from scipy.special import digamma, gammaln

from keras_het.base.classes import encode_votes
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.tables import TitledLines
from keras_het.base.validation import check_annotations, check_choice, check_integer, check_number

METHODS = ("dawid_skene", "majority")
ONE_CLASS = 0.95  # fraction of an annotator's votes for one class: such votes do not say how good the annotator is
MIN_VOTES = 10  # of an annotator for one class alone: fewer say little of the others
SHOWN_CLASSES, CLEAR_PROBABILITY = 10, 0.9
START_VOTES = 1.0  # of each example, spread evenly, beside its labels: a single label would be certain
PRIOR_LABELS = 16.0  # correct ones of each row of the pooled T, and as many spread evenly: else few labels mislead EM
PRIOR_EXAMPLES = 5.0  # of each class: else a class without a majority vanishes from small tables


@dataclasses.dataclass(frozen=True)
class Aggregate(TitledLines):
    """True classes, and the quality of the annotators, by their labels. It prints as a few lines.

    Attributes:
        probabilities: p(true class | labels), `(N, K)`; fractions of the labels for the majority.
        prior: fraction of each class, `(K,)`.
        transitions: T of each annotator, `(M, K, K)`, T[m, i, j] = p(label j of m | true class i). For the
            majority this and all that follows is None.
        pooled: T that the T of all annotators shrink toward, `(K, K)`; the T of an annotator without labels.
        strength: number of labels that `pooled` counts for in each row of each T; large if annotators are alike.
        log_likelihood: log likelihood of the labels by T and the prior, sum_n log p(labels of n).
        iterations: number of steps.
    """

    probabilities: np.ndarray
    prior: np.ndarray
    transitions: np.ndarray | None = None
    pooled: np.ndarray | None = None
    strength: float | None = None
    log_likelihood: float | None = None
    iterations: int | None = None

    @property
    def labels(self) -> np.ndarray:
        """The most probable class of each example, `(N,)`; of equally probable ones the first."""
        return self.probabilities.argmax(axis=1)

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of each line."""
        examples, units = self.probabilities.shape
        fractions = [f"{k} {fraction:.2f}" for k, fraction in enumerate(self.prior[:SHOWN_CLASSES])]
        clear = float((self.probabilities.max(axis=1) >= CLEAR_PROBABILITY).mean())
        lines = [
            ("examples", f"{examples}, {clear:.0%} with a class of probability {CLEAR_PROBABILITY} or more"),
            ("prior", ", ".join(fractions) + f" and {units - SHOWN_CLASSES} more" * (units > SHOWN_CLASSES)),
        ]
        if self.transitions is None or self.pooled is None:
            return lines
        accuracy, pooled = self.transitions.diagonal(axis1=1, axis2=2) @ self.prior, self.prior @ self.pooled.diagonal()
        correct = f"correct {accuracy.min():.2f} to {accuracy.max():.2f} by T, {pooled:.2f} pooled"
        return [
            *lines,
            ("annotators", f"{len(accuracy)}, {correct}; `labels.annotators` has each"),
            ("strength", f"{self.strength:.3g} labels of the pooled T in each row"),
            ("log-likelihood", f"{self.log_likelihood:.6g} after {self.iterations} steps"),
        ]


def aggregate(
    votes: Any,
    num_classes: int | None = None,
    method: str = "dawid_skene",
    *,
    max_iterations: int = 20,
    tolerance: float = 1e-6,
    strength: float | None = None,
) -> Aggregate:
    """Returns p(true class) of each example, and how each annotator confuses the classes, from the labels alone.

    "majority" takes the fractions of the labels. "dawid_skene" assumes that the labels of an example are independent
    given its true class, and that row i of each T is drawn from a Dirichlet distribution with concentrations
    a_i = `strength` times row i of the pooled T. So an annotator with three labels has nearly the pooled T, and an
    annotator with 1000 labels an own T. p_n begins as the fractions of the labels of n and of one more that is spread
    evenly. A step of variational EM, in log space:

        c_mij = sum over n with label j of m of p_n(i),    c_mi = sum_j c_mij
        g_ij = a_ij sum_m (psi(c_mij + a_ij) - psi(a_ij)),    h_i = sum_m (psi(c_mi + a_i.) - psi(a_i.))
        pooled_ij ~ g_ij + 16 [i = j] + 16 / K,    strength = sum_ij g_ij / sum_i h_i,    prior_i ~ sum_n p_n(i) + 5
        p_n(i) ~ prior_i prod over labels l_nm of exp(psi(c_mil + a_il) - psi(c_mi + a_i.))

    psi is the digamma function. Each step raises a lower bound of the log-likelihood of the labels with every T
    integrated out, and of the prior: 32 labels in each row of the pooled T, half of them correct and half spread
    evenly, and 5 examples of each class. The prior keeps small tables near the majority. It stops if the bound grows by
    less than `tolerance` per label. The results are the mean T, (c + a) / (c_mi + strength), and p(true class) by it.

    EM needs examples with labels of several annotators each: one label each leaves the T at their start, with a
    warning. More than half of the labels should be correct, or classes can change places. If most labels are of
    annotators who nearly always name one class, as rules do that name their class or abstain, and the rules name
    several classes, a single class for all examples would be most likely. You then get the majority and a warning; an
    example without a label has the mean fractions.

    With 3,360 planted annotators, of two to eight classes, the total variation of T to the true one was 0.13 with 10
    labels and 0.07 with 200, and by maximum likelihood 0.35 and 0.09 (benchmarks/results/annotators_few.md). crowd-kit
    has further methods, and Snorkel a label model for rules.

    Args:
        votes: integers in [0, K), `(N, M)`, -1 where the annotator gave none; or a pandas frame with a column for each
            annotator, of integers or names, with nan for none: its names are numbered in sorted order, or in the order
            of its Categoricals.
        num_classes: K; None uses the classes of the frame, or one more than the largest label.
        method: "dawid_skene" or "majority".
        max_iterations: integer, at least 1.
        tolerance: number, at least 0.
        strength: number of labels, greater than 0, that the pooled T counts for in each row of each T; None estimates
            it from the labels.
    Returns:
        `Aggregate`.
    Raises:
        ValueError: for values outside these ranges, or, for the majority, an example without a label.
    Source: Dawid and Skene 1979, "Maximum likelihood estimation of observer error-rates using the EM algorithm", for
        the model; Minka 2000, "Estimating a Dirichlet distribution", fixed points of the Dirichlet-multinomial, for
        pooled T and strength.

    Example:
        >>> votes = [[0, 0, 1], [1, 1, 1], [0, 0, -1], [1, 1, 1], [0, 0, 1]]
        >>> found = aggregate(votes)
        >>> found.labels.tolist(), found.transitions[2].round(2).tolist()
        ([0, 1, 0, 1, 0], [[0.16, 0.84], [0.05, 0.95]])
        >>> aggregate(votes, method="majority").probabilities[0].round(2).tolist()
        [0.67, 0.33]
    """
    check_choice("method", method, METHODS)
    votes = encode_votes(votes, "votes", num_classes is None).labels if hasattr(votes, "columns") else votes
    num_classes = None if num_classes is None else check_integer("num_classes", num_classes, 2)
    labels = check_annotations(votes, np.inf if num_classes is None else num_classes, name="votes")
    num_classes = max(2, int(labels.max()) + 1) if num_classes is None else num_classes
    given = _indicators(labels, num_classes)
    refuse_if(not given.nnz, "votes", "have at least one label", "none")
    if method == "majority":
        empty = np.flatnonzero((labels < 0).all(axis=1))
        rule = "have at least one label of every example"
        refuse_if(len(empty), "votes", rule, f"none of example {empty[:1]}: leave it out")
        return _majority(given, num_classes)
    max_iterations = check_integer("max_iterations", max_iterations, 1)
    tolerance = check_number("tolerance", tolerance, low=0.0)
    strength = None if strength is None else check_number("strength", strength, above=0.0)
    if are_of_rules(labels, num_classes):
        warnings.warn(
            "Most labels are of annotators who nearly always name one class, as rules do that name their class or "
            "abstain. Dawid and Skene's model cannot tell how often they are right, so the majority is returned.",
            stacklevel=outside_level(),
        )
        return _majority(given, num_classes)
    if given.sum(axis=1).max() < 2:
        text = "No example has labels of several annotators, so T says nothing of how good they are."
        warnings.warn(text, stacklevel=outside_level())
    return _dawid_skene(given, num_classes, max_iterations, tolerance, strength)


def are_of_rules(votes: np.ndarray, units: int) -> bool:
    """Returns whether most votes, `(N, M)`, are of annotators who nearly always name one class, as rules do.

    Together these must name several: if all name the same, one class may just be frequent. An annotator of a few votes
    for one class counts only if all annotators name one class each.
    """
    counts = np.array([np.bincount(own[own >= 0], minlength=units) for own in votes.T])
    totals, largest = counts.sum(axis=1), counts.max(axis=1)
    least = 1 if (largest == totals).all() else MIN_VOTES
    is_rule = (largest >= ONE_CLASS * totals) & (totals >= least)
    return bool(2 * totals[is_rule].sum() > totals.sum() and np.ptp(counts[is_rule].argmax(axis=1)) > 0)


def _dawid_skene(
    given: Any, num_classes: int, max_iterations: int, tolerance: float, strength: float | None
) -> Aggregate:
    steps, before = _steps(given, num_classes, strength), -np.inf
    for iteration in range(1, max_iterations + 1):  # noqa: B007  it is returned
        target, prior, counts, a = next(steps)
        if target - before < tolerance * given.nnz:
            break
        before = target
    transitions, strength = _rows(counts + a), float(a[0].sum())
    probabilities, likelihood = _posterior(given, prior, np.log(transitions))
    return Aggregate(probabilities, prior, transitions, a / strength, strength, likelihood, iteration)


def _steps(given, num_classes, strength):
    """Yields the bound, the prior, the expected counts `(M, K, K)` and concentrations `(K, K)` of each step of EM."""
    p = _vote_fractions(given, num_classes, START_VOTES)
    a = (strength or num_classes) * _rows(_counts(given, p).sum(axis=0) + _prior_counts(num_classes))
    while True:
        prior, counts = _rows(p.sum(axis=0) + PRIOR_EXAMPLES), _counts(given, p)
        a = _renewed(a, counts, strength)
        yield _target(p, prior, counts, a), prior, counts, a
        p, _ = _posterior(given, prior, digamma(counts + a) - digamma((counts + a).sum(axis=2, keepdims=True)))


def _renewed(a, counts, strength):
    """Returns concentrations of the rows of T, `(K, K)`, after a step of Minka's; `strength` is their sum, or None.

    The step raises the likelihood of the counts, `(M, K, K)`, under the Dirichlet-multinomial distribution.
    """
    size, sums = len(a), a.sum(axis=1)
    grown = a * (digamma(counts + a) - digamma(a)).sum(axis=0)
    whole = (digamma(counts.sum(axis=2) + sums) - digamma(sums)).sum()
    return (strength or grown.sum() / whole) * _rows(grown + _prior_counts(size))


def _prior_counts(size):
    """Returns labels, `(K, K)`, by true class, that the pooled T has beside the labels."""
    return PRIOR_LABELS * (np.eye(size) + 1.0 / size)


def _target(p, prior, counts, a):
    """Returns the lower bound of the log-likelihood of the labels, T integrated out, and of the prior."""
    of_classes = ((p.sum(axis=0) + PRIOR_EXAMPLES) * np.log(prior)).sum() + scipy.special.entr(p).sum()
    return of_classes + _log_evidence(counts, a).sum() + (_prior_counts(len(prior)) * np.log(_rows(a))).sum()


def _log_evidence(counts, a):
    """Returns the log-likelihood of the counts of labels in their order, each row of T integrated out, `(M, K)`."""
    own = gammaln(counts + a).sum(axis=-1) - gammaln((counts + a).sum(axis=-1))
    return own - gammaln(a).sum(axis=-1) + gammaln(a.sum(axis=-1))


def _majority(given, num_classes):
    """Returns fractions of the labels; those of an example without a label are the mean of all others."""
    fractions, has_label = _vote_fractions(given, num_classes), given.sum(axis=1) > 0
    prior = fractions[has_label].mean(axis=0)
    return Aggregate(np.where(has_label[:, None], fractions, prior), prior)


def _indicators(labels, num_classes):
    """Returns which label of which annotator each example has: zeros and ones, `(N, M K)`, sparse."""
    examples, annotators = np.nonzero(labels >= 0)
    columns = annotators * num_classes + labels[examples, annotators]
    shape = (len(labels), labels.shape[1] * num_classes)
    return scipy.sparse.csr_array((np.ones(len(examples)), (examples, columns)), shape=shape)


def _vote_fractions(given, num_classes, more=0.0):
    """Returns fractions of the classes in the labels of each example and `more` even ones, `(N, K)`; equal for none."""
    classes = scipy.sparse.csr_array(np.tile(np.eye(num_classes), (given.shape[1] // num_classes, 1)))
    counts = (given @ classes).toarray() + more / num_classes
    return np.where(counts.sum(axis=1, keepdims=True) > 0, _rows(counts), 1.0 / num_classes)


def _rows(x):
    """Returns rows divided by their sums."""
    sums = x.sum(axis=-1, keepdims=True)
    return x / np.where(sums > 0, sums, 1.0)


def _counts(given, probabilities):
    """Returns expected numbers of the labels of each annotator, by true class, `(M, K, K)`."""
    size = probabilities.shape[1]
    return (given.T @ probabilities).reshape(-1, size, size).swapaxes(1, 2)


def _posterior(given, prior, log_t):
    """Returns p(true class | labels), `(N, K)`, and the log-likelihood of the labels, by log T, `(M, K, K)`."""
    joint = np.log(prior) + given @ log_t.swapaxes(1, 2).reshape(given.shape[1], -1)
    totals = scipy.special.logsumexp(joint, axis=1, keepdims=True)
    return np.exp(joint - totals), float(totals.sum())
