"""Labels that a person should check next."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_het.base.batches import read_index, row_blocks
from keras_het.base.refusal import refuse_if
from keras_het.base.tables import number_of
from keras_het.base.validation import check_integer, check_labels
from keras_het.labels.decoding import classes_by_transition
from keras_het.labels.estimation import check_distributions, count_pairs, warn_of_order
from keras_het.labels.issues import LabelTable
from keras_het.labels.verified_labels import verified_indices

# Both values were set by hand, on the datasets of benchmarks/real/next_labels.py, which does not vary them. Fewer added
# labels or more rounds would overfit T.
ADDED_LABELS = 200  # for each row of T
ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class NextLabels(LabelTable):
    """Labels to check next, in order. They print as a table of the first 20, also in a notebook.

    Attributes:
        index: row number of the example, `(n,)`.
        label: observed label.
        suggested: class whose row of T is nearest to the probabilities. For these labels, it is correct at least about
            as often as the most probable class.
        score: probability that the label is correct, in [0, 1].
        class_names: names or numbers of the K classes.
        example_names: index of a pandas frame, for texts and frames; None for numbers.
    """

    index: np.ndarray
    label: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    class_names: Any
    example_names: Any = None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yields the names of the example, its label and its suggested class, and the score."""
        names, *columns = self._columns().values()
        return zip(names.tolist(), *columns, strict=True)

    @property
    def _below(self) -> str:  # type: ignore[override]
        return f"{number_of(len(self.index), 'label')} to check"


def next_labels(probabilities: Any, labels: Any, count: int, *, verified_labels: Mapping | None = None) -> NextLabels:
    """Returns the `count` labels that are most likely errors, for a person to check next.

    The score of a label j is the probability that it is correct, with p the predictions of the observed label:

        score = q_j T_jj / sum_k q_k T_kj,      q T = p

    T is estimated as by `diagnose`, with 200 more labels in each row, their errors spread evenly. Three multiplicative
    updates of Richardson and Lucy from q = p give q; more would overfit T. If all flips of T are equally frequent, the
    score ranks labels nearly as p_j (self-confidence) does. On labels of people, it finds about as many errors as
    self-confidence. On labels by rules it finds far more: on TREC, 232 instead of 165 among 300
    (`benchmarks/real/next_labels.py`).

    These labels are no random sample. For `verify_accuracy` and `errors_left`, draw one, such as
    `numpy.random.default_rng(0).permutation(N)[:200]`.

    Args:
        probabilities: out-of-sample probabilities, `(N, K)`, K >= 2, each row of sum 1.
        labels: integers in [0, K), `(N,)`.
        count: number of labels, at most the number of unverified labels.
        verified_labels: verified labels, which are not proposed again, a dict from row numbers, or names of a pandas
            index, to classes.
    Returns:
        `NextLabels`; print it.
    Raises:
        ValueError: for other shapes or values, or a `count` above the number of unverified labels.
    Warns: if the labels fit the columns far better in another order.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", for self-confidence; Richardson 1972,
        "Bayesian-based iterative method of image restoration", for q.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]]
        >>> print(next_labels(p, [0, 0, 1, 1, 1, 1], 2, verified_labels={1: 0}))
        index  label  suggested   score
            2      1          0  0.0145
            3      1          1  0.9687
        2 labels to check
    """
    names = read_index(labels=labels, probabilities=probabilities)
    p = check_distributions(probabilities, keep_float32=True)
    refuse_if(p.shape[1] < 2, "probabilities", "be of at least two classes", shape=p)
    labels = check_labels(labels, p.shape[1], len(p))
    warn_of_order(p, labels)
    unverified = np.setdiff1d(np.arange(len(p)), verified_indices(verified_labels, len(p), names))
    refuse_if(not len(unverified), "verified_labels", "leave an unverified label", "all labels")
    count, classes = check_integer("count", count, 1, len(unverified)), classes_by_transition(labels, p)
    score = _score(labels, p, _transition(labels, classes, p.shape[1]))
    rows = unverified[score[unverified].argsort(kind="stable")[:count]]
    return NextLabels(rows, labels[rows], classes[rows], score[rows], np.arange(p.shape[1]), names)


def _score(labels: np.ndarray, p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Returns the probability that each label is correct, `(N,)`."""
    return np.concatenate([_score_block(labels[rows], p[rows], transition) for rows in row_blocks(len(p))])


def _score_block(labels: np.ndarray, p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    p = q = p.astype("float64", copy=False)
    for _ in range(ROUNDS):  # the likelihood of p never falls
        q = q * (p / (q @ transition) @ transition.T)
    joint = q * transition[:, labels].T
    return joint[np.arange(len(p)), labels] / joint.sum(axis=1)


def _transition(labels: np.ndarray, classes: np.ndarray, size: int) -> np.ndarray:
    """Returns T by classes and labels, with added labels in each row, so that no entry is 0."""
    rate = (np.sum(classes != labels) + 1.0) / (len(labels) + 2.0)
    prior = np.where(np.eye(size), 1.0 - rate, rate / (size - 1))
    counts = count_pairs(classes, labels, size) + ADDED_LABELS * prior
    return counts / counts.sum(axis=1, keepdims=True)
