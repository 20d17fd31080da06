"""Aggregation of the labels of several annotators, without a model of the examples."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from scipy.special import digamma, gammaln

from keras_het.base.batches import as_array
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.tables import TitledLines
from keras_het.base.validation import check_annotations, check_choice, check_integer, check_number
from keras_het.labels.classes import check_not_id, encode_votes

METHODS = ("dawid_skene", "majority")
RULE_FRACTION = 0.95  # an annotator who gives one class this often acts like a rule
MIN_RULE_VOTES = 10  # fewer votes for one class can be chance
SHOWN_CLASSES, CLEAR_PROBABILITY = 10, 0.9
START_VOTES = 1.0  # for each example, spread evenly; without it, a single label would be certain
PRIOR_LABELS = 16.0  # correct labels and evenly spread labels in each row of the pooled T; else few labels mislead EM
PRIOR_EXAMPLES = 5.0  # for each class; else a class without a majority vanishes from small tables


@dataclasses.dataclass(frozen=True)
class Aggregate(TitledLines):
    """True classes and quality of the annotators, which print in a few lines.

    For the majority, all attributes but `probabilities` and `prior` are None.

    Attributes:
        probabilities: p(true class | labels), `(N, K)`; for the majority, fractions of the labels.
        prior: fraction of each class, `(K,)`.
        transitions: T of each annotator, `(M, K, K)`, T[m, i, j] = p(label j of annotator m | true class i).
        pooled: T that the T of all annotators shrink towards, `(K, K)`; it is the T of an annotator without labels.
        strength: number of labels that `pooled` counts for in each row of each T; large if annotators are alike.
        log_likelihood: log-likelihood of the labels by T and the prior, sum_n log p(labels of n).
        iterations: number of EM steps.
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
        """Most probable class of each example, `(N,)`; the first of equally probable classes."""
        return self.probabilities.argmax(axis=1)

    def lines(self) -> list[tuple[str, str]]:
        """Returns (title, text) of each printed line."""
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
            ("annotators", f"{len(accuracy)}, {correct}; print labels.annotators(result) for all"),
            ("strength", f"the pooled T counts for {self.strength:.3g} labels in each row"),
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
    """Estimates the true class of each example, and the transition matrix of each annotator, from the labels alone.

    "majority" returns the fractions of the labels. "dawid_skene" assumes that the labels of an example are independent
    given its true class. Row i of each T has a Dirichlet prior with concentrations a_i, `strength` times row i of the
    pooled T. So the T of an annotator with three labels is close to the pooled T, and 1,000 labels give a T of their
    own. p_n starts as the fractions of the labels of n and one more label, spread evenly. A step of variational EM:

        c_mij = sum over n with label j of m of p_n(i),    c_mi = sum_j c_mij
        g_ij = a_ij sum_m (psi(c_mij + a_ij) - psi(a_ij)),    h_i = sum_m (psi(c_mi + a_i.) - psi(a_i.))
        pooled_ij ~ g_ij + 16 [i = j] + 16 / K,    strength = sum_ij g_ij / sum_i h_i,    prior_i ~ sum_n p_n(i) + 5
        p_n(i) ~ prior_i prod over labels l_nm of exp(psi(c_mil + a_il) - psi(c_mi + a_i.))

    psi is the digamma function. Each step raises a lower bound of the log-likelihood of the labels, with every T
    integrated out, and of the prior. The prior is 32 labels in each row of the pooled T, half of them correct and half
    spread evenly, and 5 examples of each class. It keeps small tables near the majority. EM stops when the bound grows
    by less than `tolerance` per label. The results are the mean T, (c + a) / (c_mi + strength), and its p(true class).

    EM needs examples with several labels. With one label each, no T shows how good an annotator is, and you get a
    warning. More than half of the labels should be correct, or classes can swap. Rules name one class or abstain. If
    most labels come from annotators who act like rules, and the rules name several classes, the model would put all
    examples into one class. You then get the majority and a warning, and an example without a label gets the mean
    fractions.

    With 3,360 planted annotators, the total variation between T and the true T was 0.13 with 10 labels and 0.07 with
    200. By maximum likelihood it was 0.35 and 0.09 (benchmarks/results/annotators_few.md). crowd-kit has further
    methods, and Snorkel has a label model for rules.

    Args:
        votes: integers in [0, K), or names, `(N, M)`, with -1, nan, None or "" for a missing label; an array, nested
            lists, or a pandas frame with a column for each annotator. Names are numbered in sorted order, or in the
            order of a Categorical.
        num_classes: K; None uses the number of names, or one more than the largest label.
        method: "dawid_skene" or "majority".
        max_iterations: maximum number of EM steps, at least 1.
        tolerance: growth of the bound per label that stops EM, at least 0.
        strength: number of labels, above 0, that the pooled T counts for in each row of each T; None estimates it.
    Returns:
        `Aggregate`; print it.
    Raises:
        ValueError: for values out of range, or, for the majority, an example without a label.
    Source: Dawid and Skene 1979, "Maximum likelihood estimation of observer error-rates using the EM algorithm", for
        the model; Minka 2000, "Estimating a Dirichlet distribution", fixed points of the Dirichlet-multinomial, for
        pooled T and strength.

    Example:
        >>> votes = [[0, 0, 1], [1, 1, 1], [0, 0, -1], [1, 1, 1], [0, 0, 1]]
        >>> result = aggregate(votes)
        >>> result.labels.tolist(), result.transitions[2].round(2).tolist()
        ([0, 1, 0, 1, 0], [[0.16, 0.84], [0.05, 0.95]])
        >>> aggregate(votes, method="majority").probabilities[0].round(2).tolist()
        [0.67, 0.33]
    """
    check_choice("method", method, METHODS)
    if must_encode(votes, "votes"):
        votes = encode_votes(votes, "votes", num_classes is None).labels
    num_classes = None if num_classes is None else check_integer("num_classes", num_classes, 2)
    labels = check_annotations(votes, np.inf if num_classes is None else num_classes, name="votes")
    if num_classes is None:
        check_not_id(labels[labels >= 0], "votes")
        num_classes = max(2, int(labels.max()) + 1)
    indicators = _indicators(labels, num_classes)
    refuse_if(not indicators.nnz, "votes", "have at least one label", "none")
    if method == "majority":
        empty = np.flatnonzero((labels < 0).all(axis=1))
        rule = "have at least one label for every example. Leave out the others"
        refuse_if(len(empty), "votes", rule, f"no label for example {empty[0]}" if len(empty) else "")
        return _majority(indicators, num_classes)
    max_iterations = check_integer("max_iterations", max_iterations, 1)
    tolerance = check_number("tolerance", tolerance, low=0.0)
    strength = None if strength is None else check_number("strength", strength, above=0.0)
    if are_of_rules(labels, num_classes):
        warnings.warn(
            "Most labels come from annotators who nearly always name one class, like rules. Dawid and Skene's model "
            "cannot estimate their accuracy, so you get the majority.",
            stacklevel=outside_level(),
        )
        return _majority(indicators, num_classes)
    if indicators.sum(axis=1).max() < 2:
        text = "No example has labels of several annotators, so T cannot show how good they are."
        warnings.warn(text, stacklevel=outside_level())
    return _dawid_skene(indicators, num_classes, max_iterations, tolerance, strength)


def must_encode(votes: Any, name: str) -> bool:
    """Returns whether votes are a frame, or a table of anything but integers."""
    table = as_array(name, votes)
    return hasattr(votes, "columns") or (table.ndim == 2 and table.dtype.kind not in "iu")


def are_of_rules(votes: np.ndarray, units: int) -> bool:
    """Returns whether most votes, `(N, M)`, come from annotators who nearly always name one class, as rules do.

    Together they must name several classes, because a single class can be frequent. An annotator with few votes counts
    only if every annotator names one class.
    """
    counts = np.array([np.bincount(column[column >= 0], minlength=units) for column in votes.T])
    totals, largest = counts.sum(axis=1), counts.max(axis=1)
    min_votes = 1 if (largest == totals).all() else MIN_RULE_VOTES
    is_rule = (largest >= RULE_FRACTION * totals) & (totals >= min_votes)
    return bool(2 * totals[is_rule].sum() > totals.sum() and np.ptp(counts[is_rule].argmax(axis=1)) > 0)


def _dawid_skene(
    indicators: Any, num_classes: int, max_iterations: int, tolerance: float, strength: float | None
) -> Aggregate:
    steps, last_bound = _steps(indicators, num_classes, strength), -np.inf
    for iteration in range(1, max_iterations + 1):  # noqa: B007  it is returned
        bound, prior, counts, a = next(steps)
        if bound - last_bound < tolerance * indicators.nnz:
            break
        last_bound = bound
    transitions, strength = _normalize_rows(counts + a), float(a[0].sum())
    probabilities, likelihood = _posterior(indicators, prior, np.log(transitions))
    return Aggregate(probabilities, prior, transitions, a / strength, strength, likelihood, iteration)


def _steps(indicators, num_classes, strength):
    """Yields the bound, the prior, the expected counts `(M, K, K)` and concentrations `(K, K)` of each step of EM."""
    p = _vote_fractions(indicators, num_classes, START_VOTES)
    pooled_counts = _expected_counts(indicators, p).sum(axis=0) + _prior_counts(num_classes)
    a = (strength or num_classes) * _normalize_rows(pooled_counts)
    while True:
        prior, counts = _normalize_rows(p.sum(axis=0) + PRIOR_EXAMPLES), _expected_counts(indicators, p)
        a = _update_concentrations(a, counts, strength)
        yield _lower_bound(p, prior, counts, a), prior, counts, a
        p, _ = _posterior(indicators, prior, digamma(counts + a) - digamma((counts + a).sum(axis=2, keepdims=True)))


def _update_concentrations(a, counts, strength):
    """Returns concentrations of the rows of T, `(K, K)`, after Minka's update; `strength` is their sum, or None.

    The update raises the likelihood of the counts, `(M, K, K)`, under the Dirichlet-multinomial distribution.
    """
    size, sums = len(a), a.sum(axis=1)
    numerator = a * (digamma(counts + a) - digamma(a)).sum(axis=0)
    denominator = (digamma(counts.sum(axis=2) + sums) - digamma(sums)).sum()
    return (strength or numerator.sum() / denominator) * _normalize_rows(numerator + _prior_counts(size))


def _prior_counts(size):
    """Returns the prior numbers of labels in the pooled T, by true class, `(K, K)`."""
    return PRIOR_LABELS * (np.eye(size) + 1.0 / size)


def _lower_bound(p, prior, counts, a):
    """Returns the lower bound of the log-likelihood of the labels, T integrated out, and of the prior."""
    class_term = ((p.sum(axis=0) + PRIOR_EXAMPLES) * np.log(prior)).sum() + scipy.special.entr(p).sum()
    prior_term = (_prior_counts(len(prior)) * np.log(_normalize_rows(a))).sum()
    return class_term + _log_evidence(counts, a).sum() + prior_term


def _log_evidence(counts, a):
    """Returns the log-likelihood of the counts of labels in their order, each row of T integrated out, `(M, K)`."""
    posterior = gammaln(counts + a).sum(axis=-1) - gammaln((counts + a).sum(axis=-1))
    return posterior - gammaln(a).sum(axis=-1) + gammaln(a.sum(axis=-1))


def _majority(indicators, num_classes):
    """Returns fractions of the labels, or their mean for an example without a label."""
    fractions, has_label = _vote_fractions(indicators, num_classes), indicators.sum(axis=1) > 0
    prior = fractions[has_label].mean(axis=0)
    return Aggregate(np.where(has_label[:, None], fractions, prior), prior)


def _indicators(labels, num_classes):
    """Returns a sparse one-hot matrix of the labels of each example, by annotator and class, `(N, M K)`."""
    examples, annotators = np.nonzero(labels >= 0)
    columns = annotators * num_classes + labels[examples, annotators]
    shape = (len(labels), labels.shape[1] * num_classes)
    return scipy.sparse.csr_array((np.ones(len(examples)), (examples, columns)), shape=shape)


def _vote_fractions(indicators, num_classes, added=0.0):
    """Returns class fractions of each example's labels and `added` evenly spread labels, `(N, K)`; equal for none."""
    classes = scipy.sparse.csr_array(np.tile(np.eye(num_classes), (indicators.shape[1] // num_classes, 1)))
    counts = (indicators @ classes).toarray() + added / num_classes
    return np.where(counts.sum(axis=1, keepdims=True) > 0, _normalize_rows(counts), 1.0 / num_classes)


def _normalize_rows(x):
    sums = x.sum(axis=-1, keepdims=True)
    return x / np.where(sums > 0, sums, 1.0)


def _expected_counts(indicators, probabilities):
    """Returns expected numbers of labels of each annotator, by true class, `(M, K, K)`."""
    size = probabilities.shape[1]
    return (indicators.T @ probabilities).reshape(-1, size, size).swapaxes(1, 2)


def _posterior(indicators, prior, log_t):
    """Returns p(true class | labels), `(N, K)`, and the log-likelihood of the labels, by log T, `(M, K, K)`."""
    joint = np.log(prior) + indicators @ log_t.swapaxes(1, 2).reshape(indicators.shape[1], -1)
    totals = scipy.special.logsumexp(joint, axis=1, keepdims=True)
    return np.exp(joint - totals), float(totals.sum())
