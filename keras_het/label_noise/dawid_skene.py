"""True classes from the labels of several annotators, without a model of the examples."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_annotations, check_integer, check_number


@dataclasses.dataclass(frozen=True)
class DawidSkene:
    """Estimates of the true classes, and of the quality of the annotators, from the labels of several annotators.

    Attributes:
        probabilities: p(true class | labels), `(N, K)`; of an example without labels, the prior.
        transitions: T of each annotator, `(M, K, K)`, T[m, i, j] = p(label j of m | true class i).
        prior: fraction of each class, `(K,)`.
        log_likelihood: log likelihood of the labels, sum_n log p(labels of n), after the last step.
        iterations: the number of steps.
    """

    probabilities: np.ndarray
    transitions: np.ndarray
    prior: np.ndarray
    log_likelihood: float
    iterations: int


def majority_vote(labels: Any, num_classes: int | None = None, shares: bool = False) -> np.ndarray:
    """The label that most annotators gave to each example.

    Args:
        labels: integers `(N, M)`, -1 where the annotator gave none; each example has at least one.
        num_classes: K; None is one more than the largest label.
        shares: return the fraction of every class among the labels instead; a classifier may be trained on that.
    Returns:
        integers `(N,)`, the first of classes with equally many labels; or shares `(N, K)`.
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
        raise refusal("labels", "have at least one label of every example", f"none of example {empty[0]}")
    num_classes = num_classes or int(labels.max()) + 1
    votes = _vote_shares(_indicators(labels, num_classes), num_classes)
    return votes if shares else votes.argmax(axis=1)


def dawid_skene(
    labels: Any, num_classes: int, max_iterations: int = 100, tolerance: float = 1e-6, smoothing: float = 0.01
) -> DawidSkene:
    """Estimates true classes, and how each annotator confuses them, by maximum likelihood from the labels alone.

    The model: labels of an example are independent given its true class. EM starts from the fractions of the votes, and
    alternates:

        T[m, i, j] = (smoothing / K + sum over n with label j of m of p_n(i))
                     / (smoothing + sum over n with a label of m of p_n(i))
        p_n(i) ~ prior_i prod over labels l_nm of T[m, i, l_nm]                (in log space)

    It stops where the log-likelihood grows by less than `tolerance` per label. This is the log-likelihood of the labels
    and of a Dirichlet prior of the rows, or of the labels alone if `smoothing` is 0; it grows at every step. EM needs
    examples with labels of several annotators each. More than half of the votes should be right, or classes may change
    places. Not for annotators, such as rules, who each give one label or none: one class for all is then most likely;
    there is a warning.

    Args:
        labels: integers in [0, K), `(N, M)`, -1 where the annotator gave none.
        num_classes: K >= 2.
        max_iterations: integer, at least 1.
        tolerance: number, at least 0.
        smoothing: number of labels added to the counts of each row of each T, spread over the classes; at least 0.
    Returns:
        `DawidSkene`.
    Raises:
        ValueError: for values outside these ranges.
    Source: Dawid and Skene 1979, "Maximum likelihood estimation of observer error-rates using the EM algorithm", Eqs.
        2.3 to 2.5.

    Example:
        >>> found = dawid_skene([[0, 0, 1], [1, 1, 1], [0, 0, -1], [1, 1, 1], [0, 0, 1]], num_classes=2)
        >>> found.probabilities.argmax(axis=1).tolist(), found.transitions[2].round(2).tolist()
        ([0, 1, 0, 1, 0], [[0.0, 1.0], [0.0, 1.0]])
    """
    num_classes = check_integer("num_classes", num_classes, 2)
    max_iterations = check_integer("max_iterations", max_iterations, 1)
    tolerance, smoothing = check_number("tolerance", tolerance, low=0.0), check_number("smoothing", smoothing, low=0.0)
    given = _indicators(check_annotations(labels, num_classes), num_classes)
    refuse_if(not given.nnz, "labels", "have at least one label", "none")
    _warn_of_one_class_each(given, num_classes)
    probabilities, before, iteration = _vote_shares(given, num_classes), -np.inf, 0
    while iteration < max_iterations:
        iteration += 1
        prior, transitions = probabilities.mean(axis=0), _confusions(given, probabilities, smoothing)
        probabilities, likelihood = _posterior(given, prior, transitions)
        target = likelihood + _log_prior(transitions, smoothing)
        if target - before < tolerance * given.nnz:
            break
        before = target
    return DawidSkene(probabilities, transitions, prior, likelihood, iteration)


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


def _vote_shares(given, num_classes):
    """The fraction of each class among the labels of each example, `(N, K)`; equal for one without labels."""
    classes = scipy.sparse.csr_array(np.tile(np.eye(num_classes), (given.shape[1] // num_classes, 1)))
    counts = (given @ classes).toarray()
    totals = counts.sum(axis=1, keepdims=True)
    return np.where(totals > 0, counts, 1.0 / num_classes) / np.maximum(totals, 1.0)


def _confusions(given, probabilities, smoothing):
    """T of each annotator, `(M, K, K)`, from probabilities of the true classes; rows without counts are uniform."""
    size = probabilities.shape[1]
    counts = (given.T @ probabilities).reshape(-1, size, size).swapaxes(1, 2) + smoothing / size
    totals = counts.sum(axis=2, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, 1.0 / size), where=totals > 0)


def _posterior(given, prior, transitions):
    """p(true class | labels), `(N, K)`, and the log-likelihood of the labels."""
    with np.errstate(divide="ignore"):  # log 0, of labels that never occur, if there is no smoothing
        columns = np.log(transitions).swapaxes(1, 2).reshape(given.shape[1], -1)
        joint = np.log(prior) + given @ columns
    totals = scipy.special.logsumexp(joint, axis=1, keepdims=True)
    return np.exp(joint - totals), float(totals.sum())


def _log_prior(transitions, smoothing):
    """The log-density, up to a constant, of the T under the prior that stands for the smoothing."""
    return smoothing / transitions.shape[-1] * np.log(transitions).sum() if smoothing else 0.0
