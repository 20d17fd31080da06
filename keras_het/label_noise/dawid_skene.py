"""True classes from the labels of several annotators, without a model of the examples."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from scipy.special import digamma, gammaln

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import Titled
from keras_het.base.validation import check_annotations, check_integer, check_number

MOST_SHOWN, CLEAR = 10, 0.9  # in print: classes, and the probability of a class that is settled
START = 1.0  # votes of each example, even over the classes, beside its own: one vote alone would be certain


@dataclasses.dataclass(frozen=True)
class DawidSkene(Titled):
    """Estimates of the true classes, and of the quality of the annotators, from the labels of several annotators.

    It prints as a few lines.

    Attributes:
        probabilities: p(true class | labels), `(N, K)`; of an example without labels, the prior.
        transitions: T of each annotator, `(M, K, K)`, T[m, i, j] = p(label j of m | true class i).
        prior: fraction of each class, `(K,)`.
        log_likelihood: log likelihood of the labels by T and the prior, sum_n log p(labels of n).
        iterations: the number of steps.
        pooled: T that those of all annotators shrink toward, `(K, K)`; the T of an annotator without labels.
        strength: number of labels that `pooled` counts for in each row of each T; large where annotators are alike.
    """

    probabilities: np.ndarray
    transitions: np.ndarray
    prior: np.ndarray
    log_likelihood: float
    iterations: int
    pooled: np.ndarray
    strength: float

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of each line of the print."""
        (examples, units), pooled = self.probabilities.shape, self.prior @ self.pooled.diagonal()
        accuracy = self.transitions.diagonal(axis1=1, axis2=2) @ self.prior
        shares = [f"{place} {share:.2f}" for place, share in enumerate(self.prior[:MOST_SHOWN])]
        clear = float((self.probabilities.max(axis=1) >= CLEAR).mean())
        right = f"right {accuracy.min():.2f} to {accuracy.max():.2f} by T, {pooled:.2f} pooled"
        return [
            ("examples", f"{examples}, {clear:.0%} with a class of probability {CLEAR} or more"),
            ("prior", ", ".join(shares) + f" and {units - MOST_SHOWN} more" * (units > MOST_SHOWN)),
            ("annotators", f"{len(accuracy)}, {right}; `analysis.annotators` has each"),
            ("strength", f"{self.strength:.3g} labels of the pooled T in each row"),
            ("log-likelihood", f"{self.log_likelihood:.6g} after {self.iterations} steps"),
        ]


def majority_vote(labels: Any, num_classes: int | None = None, shares: bool = False) -> np.ndarray:
    """The label that most annotators gave to each example.

    Args:
        labels: integers `(N, M)`, -1 where the annotator gave none; each example has at least one: leave those without
            any out, or take `dawid_skene`, which gives them the prior.
        num_classes: K; None is one more than the largest label.
        shares: return the fraction of every class among the labels instead; a classifier may be trained on that.
    Returns:
        integers `(N,)`, the first of classes with equally many labels, so that it has too many; or shares `(N, K)`.
    Raises:
        ValueError: for labels out of range, or an example without any.

    Example:
        >>> majority_vote([[1, 1, 0], [-1, 2, -1]]).tolist()
        [1, 2]
        >>> majority_vote([[1, 1, 0], [-1, 2, -1]], shares=True).round(2).tolist()
        [[0.33, 0.67, 0.0], [0.0, 0.0, 1.0]]
    """
    num_classes = None if num_classes is None else check_integer("num_classes", num_classes, 1)
    labels = check_annotations(labels, np.inf if num_classes is None else num_classes)
    empty = np.flatnonzero((labels < 0).all(axis=1))
    if len(empty):
        raise refusal("labels", "have at least one label of every example", f"none of example {empty[0]}: leave it out")
    num_classes = num_classes or int(labels.max()) + 1
    votes = _vote_shares(_indicators(labels, num_classes), num_classes)
    return votes if shares else votes.argmax(axis=1)


def dawid_skene(
    labels: Any, num_classes: int, max_iterations: int = 20, tolerance: float = 1e-6, strength: float | None = None
) -> DawidSkene:
    """Estimates true classes, and how each annotator confuses them, from the labels alone.

    The model: labels of an example are independent given its true class, and row i of each T is drawn from a Dirichlet
    distribution with concentrations a_i = `strength` times row i of the pooled T. So somebody with three labels has
    nearly the pooled T, and somebody with 1000 one of his own. p_n begins as the shares of the votes of n, and of one
    vote more that is even over the classes. A step of variational EM, in log space:

        c_mij = sum over n with label j of m of p_n(i),    c_mi = sum_j c_mij
        g_ij = a_ij sum_m (psi(c_mij + a_ij) - psi(a_ij)),    h_i = sum_m (psi(c_mi + a_i.) - psi(a_i.))
        pooled_ij ~ g_ij + 1 / K,    strength = sum_ij g_ij / sum_i h_i,    prior = mean of p_n
        p_n(i) ~ prior_i prod over labels l_nm of exp(psi(c_mil + a_il) - psi(c_mi + a_i.))

    psi is the digamma function. Each step raises a lower bound of the log-likelihood of the labels with every T
    integrated out, and of one even label in each row of the pooled T. It stops where the bound grows by less than
    `tolerance` per label. The results are the mean T, (c + a) / (c_mi + strength), and p(true class) by it.

    EM needs examples with labels of several annotators each: one label each leaves the T at their start. Two or three
    leave the pooled T so loose that many steps can lead away from a good start: so there are few. More than half of
    the votes should be right, or classes may change places. Not for annotators, such as rules, who each give one label
    or none: one class for all is then most likely; there is a warning.

    Of 3,360 planted annotators, of two to eight classes, the total variation of T to the true one was .13 with 10
    labels and .07 with 200, and by maximum likelihood .35 and .09 (benchmarks/results/annotators_few.md).

    Args:
        labels: integers in [0, K), `(N, M)`, -1 where the annotator gave none.
        num_classes: K >= 2.
        max_iterations: integer, at least 1.
        tolerance: number, at least 0.
        strength: number of labels, greater than 0, that the pooled T counts for in each row of each T; None estimates
            it from the labels.
    Returns:
        `DawidSkene`.
    Raises:
        ValueError: for values outside these ranges.
    Source: Dawid and Skene 1979, "Maximum likelihood estimation of observer error-rates using the EM algorithm", for
        the model; Minka 2000, "Estimating a Dirichlet distribution", fixed points of the Dirichlet-multinomial, for
        pooled T and strength.

    Example:
        >>> found = dawid_skene([[0, 0, 1], [1, 1, 1], [0, 0, -1], [1, 1, 1], [0, 0, 1]], num_classes=2)
        >>> found.probabilities.argmax(axis=1).tolist(), found.transitions[2].round(2).tolist()
        ([0, 1, 0, 1, 0], [[0.16, 0.84], [0.02, 0.98]])
    """
    num_classes = check_integer("num_classes", num_classes, 2)
    max_iterations = check_integer("max_iterations", max_iterations, 1)
    tolerance = check_number("tolerance", tolerance, low=0.0)
    strength = None if strength is None else check_number("strength", strength, above=0.0)
    given = _indicators(check_annotations(labels, num_classes), num_classes)
    refuse_if(not given.nnz, "labels", "have at least one label", "none")
    _warn_of_one_class_each(given, num_classes)
    steps, before, iteration = _steps(given, num_classes, strength), -np.inf, 0
    while iteration < max_iterations:
        iteration += 1
        target, prior, counts, a = next(steps)
        if target - before < tolerance * given.nnz:
            break
        before = target
    transitions = _rows(counts + a)
    probabilities, likelihood = _posterior(given, prior, np.log(transitions))
    strength = float(a[0].sum())
    return DawidSkene(probabilities, transitions, prior, likelihood, iteration, a / strength, strength)


def _steps(given, num_classes, strength):
    """Endless steps of EM: what grows, the prior, the expected counts `(M, K, K)`, the concentrations `(K, K)`."""
    p = _vote_shares(given, num_classes, START)
    a = (strength or num_classes) * _rows(_counts(given, p).sum(axis=0) + 1.0 / num_classes)
    while True:
        prior, counts = p.mean(axis=0), _counts(given, p)
        a = _renewed(a, counts, strength)
        yield _target(p, prior, counts, a), prior, counts, a
        p, _ = _posterior(given, prior, digamma(counts + a) - digamma((counts + a).sum(axis=2, keepdims=True)))


def _renewed(a, counts, strength):
    """Concentrations of the rows of T, `(K, K)`, after a step of Minka's; `strength` is their sum, None a better one.

    The step raises the likelihood of the counts, `(M, K, K)`, under the Dirichlet-multinomial distribution.
    """
    size, sums = len(a), a.sum(axis=1)
    grown = a * (digamma(counts + a) - digamma(a)).sum(axis=0)
    whole = (digamma(counts.sum(axis=2) + sums) - digamma(sums)).sum()
    return (strength or grown.sum() / whole) * _rows(grown + 1.0 / size)


def _target(p, prior, counts, a):
    """The lower bound of the log-likelihood of the labels, T integrated out, and the prior of the pooled T."""
    of_classes = scipy.special.xlogy(p, prior).sum() + scipy.special.entr(p).sum()
    return of_classes + _log_evidence(counts, a).sum() + np.log(_rows(a)).mean(axis=1).sum()


def _log_evidence(counts, a):
    """Log-likelihood of the counts of labels in their order, each row of T integrated out, `(M, K)`."""
    own = gammaln(counts + a).sum(axis=-1) - gammaln((counts + a).sum(axis=-1))
    return own - gammaln(a).sum(axis=-1) + gammaln(a.sum(axis=-1))


def _warn_of_one_class_each(given, num_classes):
    """Warns where every annotator gives a single class, and together they give several."""
    used = (given.sum(axis=0) > 0).reshape(-1, num_classes)
    if (used.sum(axis=1) <= 1).all() and used.any(axis=0).sum() > 1:
        warnings.warn(
            "Each annotator gives labels of one class only, as rules do that say their class or abstain. Labels are "
            "then most likely if all examples are of one class, whatever is true: take `majority_vote`.",
            stacklevel=3,
        )


def _indicators(labels, num_classes):
    """Which label of which annotator each example has: zeros and ones, `(N, M K)`, sparse."""
    examples, annotators = np.nonzero(labels >= 0)
    columns = annotators * num_classes + labels[examples, annotators]
    shape = (len(labels), labels.shape[1] * num_classes)
    return scipy.sparse.csr_array((np.ones(len(examples)), (examples, columns)), shape=shape)


def _vote_shares(given, num_classes, more=0.0):
    """Shares of the classes in the labels of each example and `more` even ones, `(N, K)`; equal where there is none."""
    classes = scipy.sparse.csr_array(np.tile(np.eye(num_classes), (given.shape[1] // num_classes, 1)))
    counts = (given @ classes).toarray() + more / num_classes
    return np.where(counts.sum(axis=1, keepdims=True) > 0, _rows(counts), 1.0 / num_classes)


def _rows(x):
    """Rows divided by their sums."""
    sums = x.sum(axis=-1, keepdims=True)
    return x / np.where(sums > 0, sums, 1.0)


def _counts(given, probabilities):
    """Expected numbers of the labels of each annotator, by true class, `(M, K, K)`."""
    size = probabilities.shape[1]
    return (given.T @ probabilities).reshape(-1, size, size).swapaxes(1, 2)


def _posterior(given, prior, log_t):
    """p(true class | labels), `(N, K)`, and the log-likelihood of the labels, by logarithms of T, `(M, K, K)`."""
    with np.errstate(divide="ignore"):  # the log of a prior of 0, of a class without votes
        joint = np.log(prior) + given @ log_t.swapaxes(1, 2).reshape(given.shape[1], -1)
    totals = scipy.special.logsumexp(joint, axis=1, keepdims=True)
    return np.exp(joint - totals), float(totals.sum())
