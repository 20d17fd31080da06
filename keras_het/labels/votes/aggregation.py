"""Aggregation of the labels of several annotators, without a model of the examples."""

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from scipy.special import digamma, gammaln

from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.tables import TitledLines
from keras_het.base.validation import check_annotations, check_choice, check_integer
from keras_het.labels.classes import encode_votes, joined_names

METHODS = ("dawid_skene", "majority")
RULE_FRACTION = 0.95  # an annotator who gives one class this often acts like a rule
MIN_RULE_VOTES = 10  # fewer votes for one class can be chance
SHOWN_CLASSES, CLEAR_PROBABILITY = 10, 0.9
TOLERANCE = 1e-6  # growth of the bound per label that stops EM
START_VOTES = 1.0  # for each example, spread evenly; without it, a single label would be certain
PRIOR_LABELS = 16.0  # correct labels and evenly spread labels in each row of the pooled T; else few labels mislead EM
PRIOR_EXAMPLES = 5.0  # for each class; else a class without a majority vanishes from small tables


@dataclasses.dataclass(frozen=True)
class Aggregate(TitledLines):
    """True classes and quality of the annotators, which print in a few lines.

    For the majority, the attributes after `classes` are None.

    Attributes:
        probabilities: p(true class | labels), `(N, K)`; for the majority, fractions of the labels.
        prior: fraction of each class, `(K,)`.
        classes: names of the K classes, or their numbers, `(K,)`.
        transitions: T of each annotator, `(M, K, K)`, T[m, i, j] = p(label j of annotator m | true class i).
        pooled: T that the T of all annotators shrink towards, `(K, K)`; it is the T of an annotator without labels.
        strength: number of labels that `pooled` counts for in each row of each T; large if annotators are alike.
    """

    probabilities: np.ndarray
    prior: np.ndarray
    classes: np.ndarray
    transitions: np.ndarray | None = None
    pooled: np.ndarray | None = None
    strength: float | None = None

    @property
    def labels(self) -> np.ndarray:
        """Most probable class of each example, `(N,)`; the first of equally probable classes."""
        return self.probabilities.argmax(axis=1)

    def lines(self) -> list[tuple[str, str]]:
        """Returns (title, text) of each printed line."""
        examples, units = self.probabilities.shape
        pairs = zip(self.classes.tolist()[:SHOWN_CLASSES], self.prior, strict=False)
        prior = ", ".join(f"{name} {fraction:.2f}" for name, fraction in pairs)
        clear = f"{(self.probabilities.max(axis=1) >= CLEAR_PROBABILITY).mean():.0%}"
        prior += f" and {units - SHOWN_CLASSES} more" * (units > SHOWN_CLASSES)
        if self.transitions is None or self.pooled is None:
            agree = f"{clear} with {CLEAR_PROBABILITY:.0%} or more of the labels for one class"
            return [("examples", f"{examples:,}, {agree}"), ("prior", prior)]
        agreement = self.transitions.diagonal(axis1=1, axis2=2) @ self.prior
        pooled = self.prior @ self.pooled.diagonal()
        agree = f"agreement with these classes {agreement.min():.2f} to {agreement.max():.2f}, {pooled:.2f} pooled"
        return [
            ("examples", f"{examples:,}, {clear} with a class of probability {CLEAR_PROBABILITY} or more"),
            ("assumes", "annotators err independently. Shared errors stay hidden: verify 200, labels.verify_accuracy"),
            ("prior", prior),
            ("annotators", f"{len(agreement)}, {agree}; print labels.annotators(result) for all"),
        ]


def aggregate(
    votes: Any,
    num_classes: int | None = None,
    method: str = "dawid_skene",
    *,
    max_iterations: int = 20,
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
    by less than 1e-6 per label. The results are the mean T, (c + a) / (c_mi + strength), and its p(true class).

    With one label for each example, no T shows how good an annotator is, and you get a warning. More than half of the
    labels should be correct, or classes can swap. Rules name one class or abstain. If most labels come from annotators
    who act like rules, and the rules name several classes, the model would put all examples into one class. You then
    get the majority and a warning, and an example without a label gets the mean fractions.

    **It cannot see errors that annotators share**, for example on hard examples. Then its probabilities are too high.
    On LabelMe, the largest has a mean of 0.93, and 0.80 of the classes are correct. There is no warning, because the
    votes do not show it. `verify_accuracy` measures how many are.

    Args:
        votes: integers in [0, K), or names, `(N, M)`, with -1, nan, None or "" for a missing label; an array, nested
            lists, or a pandas frame with a column for each annotator. Names are numbered in sorted order, or in the
            order of a Categorical.
        num_classes: K; None uses the number of names, or one more than the largest label.
        method: "dawid_skene" or "majority".
        max_iterations: maximum number of EM steps, at least 1.
    Returns:
        `Aggregate`; print it.
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
    num_classes = None if num_classes is None else check_integer("num_classes", num_classes, 2)
    classes, labels = encode_votes(votes, "votes", num_classes is None)
    num_classes = num_classes or len(classes)
    names = classes.tolist() if classes.dtype.kind in "OSUb" else []
    rule = f"have at most {num_classes} classes, `num_classes`"
    refuse_if(len(names) > num_classes, "votes", rule, f"{len(names)}: {joined_names(names)}")
    labels = check_annotations(labels, num_classes, name="votes")
    classes = np.array([*names, *range(len(names), num_classes)], object if names else int)
    indicators = _indicators(labels, num_classes)
    if method == "majority":
        is_empty = (labels < 0).all(axis=1)
        rule = "have at least one label for every example. Leave out the others"
        refuse_if(is_empty.any(), "votes", rule, f"no label for example {is_empty.argmax()}")
        return _majority(indicators, classes)
    max_iterations = check_integer("max_iterations", max_iterations, 1)
    if are_of_rules(labels, num_classes):
        warnings.warn(
            "Most labels come from annotators who nearly always name one class, like rules. Dawid and Skene's model "
            "cannot estimate their accuracy, so you get the majority.",
            stacklevel=outside_level(),
        )
        return _majority(indicators, classes)
    if indicators.sum(axis=1).max() < 2:
        text = "No example has labels of several annotators, so T cannot show how good they are."
        warnings.warn(text, stacklevel=outside_level())
    return _dawid_skene(indicators, classes, max_iterations)


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


def _dawid_skene(indicators: Any, classes: np.ndarray, max_iterations: int) -> Aggregate:
    last_bound = -np.inf
    for bound, prior, counts, a in itertools.islice(_steps(indicators, len(classes)), max_iterations):  # noqa: B007
        if bound - last_bound < TOLERANCE * indicators.nnz:
            break
        last_bound = bound
    transitions, strength = _normalize_rows(counts + a), float(a[0].sum())
    probabilities = _e_step(indicators, prior, np.log(transitions))
    return Aggregate(probabilities, prior, classes, transitions, a / strength, strength)


def _steps(indicators, num_classes):
    """Yields the bound, the prior, the expected counts `(M, K, K)` and concentrations `(K, K)` of each step of EM."""
    p = _vote_fractions(indicators, num_classes, START_VOTES)
    counts = _expected_counts(indicators, p)
    a = num_classes * _normalize_rows(counts.sum(axis=0) + _prior_counts(num_classes))
    while True:
        prior, a = _normalize_rows(p.sum(axis=0) + PRIOR_EXAMPLES), _m_step(a, counts)
        yield _lower_bound(p, prior, counts, a), prior, counts, a
        p = _e_step(indicators, prior, digamma(counts + a) - digamma((counts + a).sum(axis=2, keepdims=True)))
        counts = _expected_counts(indicators, p)


def _m_step(a, counts):
    """Returns concentrations of the rows of T, `(K, K)`, after Minka's update.

    The update raises the likelihood of the counts, `(M, K, K)`, under the Dirichlet-multinomial distribution.
    """
    sums = a.sum(axis=1)
    numerator = a * (digamma(counts + a) - digamma(a)).sum(axis=0)
    denominator = (digamma(counts.sum(axis=2) + sums) - digamma(sums)).sum()
    return numerator.sum() / denominator * _normalize_rows(numerator + _prior_counts(len(a)))


def _prior_counts(size):
    """Returns the prior numbers of labels in the pooled T, by true class, `(K, K)`."""
    return PRIOR_LABELS * (np.eye(size) + 1.0 / size)


def _lower_bound(p, prior, counts, a):
    """Returns the lower bound of the log-likelihood of the labels, T integrated out, and of the prior."""
    class_term = ((p.sum(axis=0) + PRIOR_EXAMPLES) * np.log(prior)).sum() + scipy.special.entr(p).sum()
    prior_term = (_prior_counts(len(prior)) * np.log(_normalize_rows(a))).sum()
    posterior = gammaln(counts + a).sum(axis=-1) - gammaln((counts + a).sum(axis=-1))
    return class_term + (posterior - gammaln(a).sum(axis=-1) + gammaln(a.sum(axis=-1))).sum() + prior_term


def _majority(indicators, classes):
    """Returns fractions of the labels, or their mean for an example without a label."""
    fractions, has_label = _vote_fractions(indicators, len(classes)), indicators.sum(axis=1) > 0
    prior = fractions[has_label].mean(axis=0)
    return Aggregate(np.where(has_label[:, None], fractions, prior), prior, classes)


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


def _e_step(indicators, prior, log_t):
    """Returns p(true class | labels), `(N, K)`, by log T, `(M, K, K)`."""
    joint = np.log(prior) + indicators @ log_t.swapaxes(1, 2).reshape(indicators.shape[1], -1)
    return scipy.special.softmax(joint, axis=1)
