"""Which labels a person should check next."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_het.base.batches import read_index, row_blocks
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_integer, check_labels
from keras_het.base.verified import verified_indices
from keras_het.labels.decoding import by_transition
from keras_het.labels.estimation import check_distributions, count_pairs
from keras_het.labels.issues import LabelTable

# Chosen by benchmarks/real/next_labels.py: with fewer of either, T of labels that people gave is believed too much.
ADDED_LABELS = 200  # in each row of T, wrong labels spread evenly
ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class NextLabels(LabelTable):
    """Labels to check next, in the order of looking. They print as a table of the first 20, also in a notebook.

    Attributes:
        index: row number of the example, `(n,)`.
        given: observed label.
        suggested: class whose row of T is nearest to the probabilities; for labels that are proposed, unlike for all
            labels, it is about as often right as the most probable class, or more often.
        score: probability that the label is the class of the example, in [0, 1]; the lower, the worse.
        class_names: names of the K classes, or their numbers.
        example_names: index of a pandas frame, for the printed table and the frame; None for numbers.
    """

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    class_names: Any
    example_names: Any = None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yields names of example, observed and suggested class, and score of each label."""
        names, *columns = self._columns().values()
        return zip(names.tolist(), *columns, strict=True)

    @property
    def _below(self) -> str:  # type: ignore[override]
        return f"{len(self.index)} labels to check"


def next_labels(probabilities: Any, labels: Any, count: int, *, verified_labels: Mapping | None = None) -> NextLabels:
    """Returns the labels that a person with a budget should check next: those that are most probably wrong.

    The score of a label j is the probability that it is the class of the example, where p is what a model predicts of
    the observed label:

        score = q_j T_jj / sum_k q_k T_kj,      q T = p

    T is that of `diagnose`, whose rows get 200 more labels each, wrong ones spread evenly; q is found by three
    rounds of the multiplicative updates of Richardson and Lucy from p on; more rounds overfit T. If no flip of T is
    more frequent than others, the order is nearly that of p_j (self-confidence). For labels of people, the score finds
    about as many errors as self-confidence, and for labels of rules far more: on TREC 232 instead of 165 among 300
    (`benchmarks/real/next_labels.py`).

    These labels say nothing about all others. For an interval of the accuracy (`verify_accuracy`), or a bound of
    the errors left (`errors_left`), draw a sample at random: `numpy.random.default_rng(0).permutation(N)[:200]`.

    Args:
        probabilities: probabilities out of sample, `(N, K)`, K >= 2, each row of sum 1.
        labels: integers in [0, K), `(N,)`.
        count: number of labels that are wanted, at most the number of labels that nobody has verified.
        verified_labels: labels that somebody has verified, a dict from row numbers, or names of a pandas index, to
            classes; these are not proposed again.
    Returns:
        `NextLabels`; print it.
    Raises:
        ValueError: for other shapes or values, or more labels than are left.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", for self-confidence; Richardson 1972,
        "Bayesian-based iterative method of image restoration", for q.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]]
        >>> print(next_labels(p, [0, 0, 1, 1, 1, 1], 2, verified_labels={1: 0}))
        index  given  suggested   score
            2      1          0  0.0145
            3      1          1  0.9687
        2 labels to check
    """
    names = read_index(labels=labels, probabilities=probabilities)
    p = check_distributions(probabilities, as_given=True)
    refuse_if(p.shape[1] < 2, "probabilities", "be of at least two classes", shape=p)
    labels = check_labels(labels, p.shape[1], len(p))
    unverified = np.setdiff1d(np.arange(len(p)), verified_indices(verified_labels, len(p), names))
    refuse_if(not len(unverified), "verified_labels", "leave a label that nobody has verified", "all of them")
    count, classes = check_integer("count", count, 1, len(unverified)), by_transition(labels, p)
    score = _score(labels, p, _transition(labels, classes, p.shape[1]))
    rows = unverified[score[unverified].argsort(kind="stable")[:count]]
    return NextLabels(rows, labels[rows], classes[rows], score[rows], np.arange(p.shape[1]), names)


def _score(labels: np.ndarray, p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Returns the probability of each label that it is the class, by p(label), `(N,)`."""
    return np.concatenate([_score_of(labels[rows], p[rows], transition) for rows in row_blocks(len(p))])


def _score_of(labels: np.ndarray, p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    p = q = p.astype("float64", copy=False)
    for _ in range(ROUNDS):  # the likelihood of p never falls
        q = q * (p / (q @ transition) @ transition.T)
    joint = q * transition[:, labels].T
    return joint[np.arange(len(p)), labels] / joint.sum(axis=1)


def _transition(labels: np.ndarray, classes: np.ndarray, size: int) -> np.ndarray:
    """Returns T by classes and labels, with labels added to each row; no entry is 0."""
    rate = (np.sum(classes != labels) + 1.0) / (len(labels) + 2.0)
    added = np.where(np.eye(size), 1.0 - rate, rate / (size - 1))
    counts = count_pairs(classes, labels, size) + ADDED_LABELS * added
    return counts / counts.sum(axis=1, keepdims=True)
