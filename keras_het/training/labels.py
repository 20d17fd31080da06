"""The one reading of labels: one for each example, those of several annotators, or a distribution over the classes."""

import dataclasses
import warnings
from typing import Any

import numpy as np

from keras_het.base.batches import as_numpy, check_dense
from keras_het.base.classes import Encoded, encode, is_missing
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.label_noise.dawid_skene import dawid_skene, majority_vote
from keras_het.label_noise.votes import Votes

EQUAL = 1e-9  # difference of probabilities of one example


@dataclasses.dataclass(frozen=True)
class Labels:
    """What is known of the classes of N examples.

    Attributes:
        classes: names of the K classes, or their numbers, `(K,)`.
        y: the most probable class of each example, `(N,)`.
        votes: labels of each annotator, -1 for none, `(N, M)`; None where there is one label for each example.
        soft: distributions over the classes, as they were given, `(N, K)`; None for labels.
        annotators: names of the annotators, `(M,)`, or None.
        labelled: indices of the examples that have a label, among those that were given; None for all.
    """

    classes: np.ndarray
    y: np.ndarray
    votes: np.ndarray | None = None
    soft: np.ndarray | None = None
    annotators: np.ndarray | None = None
    labelled: np.ndarray | None = None


def read_labels(y: Any, count: int | None = None, name: str = "y") -> Labels:
    """Reads labels of any form.

    Args:
        y: labels `(N,)`, see `encode`; `Votes`; a matrix of votes `(N, M)`, integers or names, with -1, nan or None
            where an annotator gave none; or distributions or counts, `(N, K)`, of a float type and without a gap.
            Vectors with a single 1 are labels.
        count: N, or None.
        name: name of the argument, for errors.
    Raises:
        ValueError: for labels out of range, of one class, or of another number of examples, and if no example has one.

    Example:
        >>> found = read_labels([["cat", None, "cat"], ["dog", "dog", None], [None, None, None]])
        >>> found.classes.tolist(), found.votes.tolist(), found.labelled.tolist()
        (['cat', 'dog'], [[0, -1, 0], [1, 1, -1]], [0, 1])
    """
    if isinstance(y, Votes):
        found = _of_votes(y.votes, y.classes, y.annotators)
        return _counted(found, len(y.votes), count, name)
    given = _matrix(y, name)
    if given is None:
        return Labels(*encode(y, count, name, alone=True))
    found = _of_shares(given, name) if given.dtype.kind == "f" and not _has_gaps(given) else _of_table(y, given, name)
    return _counted(found, len(given), count, name)


def is_votes(y: Any) -> bool:
    """Whether labels are of several annotators, or distributions."""
    return isinstance(y, Votes) or _matrix(y, "y") is not None


def most_probable(votes: np.ndarray, units: int) -> np.ndarray:
    """Probabilities of the classes by the votes alone, `(N, K)`, for votes `(N, M)`, at least one for each example.

    They are those of Dawid and Skene; the fractions of the votes, if each annotator gives labels of one class only, as
    labelling functions do, or there is one annotator: there the likelihood does not say who is right.
    """
    used = (votes[:, :, None] == np.arange(units)).any(axis=0).sum(axis=1) if units * votes.size < 1e8 else None
    used = np.array([len(np.unique(own[own >= 0])) for own in votes.T]) if used is None else used
    if (used <= 1).all() or (used > 0).sum() < 2:
        return majority_vote(votes, units, shares=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dawid_skene(votes, units).probabilities


def _matrix(y: Any, name: str) -> np.ndarray | None:
    """Labels with two axes, an array of numbers or objects; None for one label for each example."""
    if isinstance(y, Encoded):
        return None
    given = np.asarray(y.to_numpy() if hasattr(y, "iloc") else as_numpy(check_dense(name, y)))
    if given.ndim != 2 or given.shape[1] == 1:
        return None
    if given.dtype.kind in "biuf" and np.all((given == 0) | (given == 1)) and np.all(given.sum(axis=1) == 1):
        return None
    return given


def _has_gaps(given: np.ndarray) -> bool:
    """Whether a vote is missing in numbers."""
    return bool(np.isnan(given).any() or (given == -1).any())


def _of_shares(given: np.ndarray, name: str) -> Labels:
    """Distributions, or counts of votes, as distributions."""
    totals = given.sum(axis=1, keepdims=True)
    rule = "be distributions or counts, not negative; integers, or with nan or -1 for none, are votes"
    refuse_if((given < 0).any() or not np.isfinite(given).all(), name, rule, "others")
    labelled = np.flatnonzero(totals[:, 0] > 0)
    soft = given[labelled] / totals[labelled]
    return Labels(np.arange(given.shape[1]), _largest(soft), soft=soft, labelled=labelled)


def _of_table(y: Any, given: np.ndarray, name: str) -> Labels:
    """Votes of a matrix of integers or names."""
    blank = _blanks(given)
    refuse_if(blank.all(), name, "have at least one label", "none")
    values = given[~blank]
    integers = values.dtype.kind in "biuf" or all(isinstance(value, int | float | np.number) for value in values)
    classes, labels = encode(values.astype("float64") if integers else values, None, name, alone=True)
    votes = np.full(given.shape, -1)
    votes[~blank] = labels
    return _of_votes(votes, classes, getattr(y, "columns", None))


def _blanks(given: np.ndarray) -> np.ndarray:
    """Where a matrix has no label: None, nan, NA or -1."""
    if given.dtype.kind in "biu":
        return given == -1
    if given.dtype.kind == "f":
        return np.isnan(given) | (given == -1)
    return np.array([[is_missing(value) or value == -1 for value in row] for row in given])


def _of_votes(votes: np.ndarray, classes: np.ndarray, annotators: Any) -> Labels:
    """Votes of those examples that have one."""
    labelled = np.flatnonzero((votes >= 0).any(axis=1))
    own = votes[labelled]
    names = None if annotators is None else np.asarray(annotators)
    y = _largest(most_probable(own, len(classes)))
    return Labels(np.asarray(classes), y, votes=own, annotators=names, labelled=labelled)


def _largest(p: np.ndarray) -> np.ndarray:
    """The most probable class of each example, `(N,)`; of equals one at random, for the first would have too many."""
    drawn = random_generator(0).random(p.shape)
    return np.where(p >= p.max(axis=1, keepdims=True) - EQUAL, drawn, -1.0).argmax(axis=1)


def _counted(found: Labels, rows: int, count: int | None, name: str) -> Labels:
    """The labels, if they are of so many examples."""
    if count is not None and rows != count:
        raise refusal(name, f"have a row for each of the {count} examples", rows)
    refuse_if(len(np.unique(found.y)) < 2, name, "be of at least two classes", 1)
    return found if len(found.y) < rows else dataclasses.replace(found, labelled=None)
