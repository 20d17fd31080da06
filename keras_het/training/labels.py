"""The one reading of labels: one for each example, those of several annotators, or a distribution over the classes."""

import dataclasses
import warnings
from typing import Any

import numpy as np

from keras_het.base.batches import as_numpy, check_dense
from keras_het.base.classes import Encoded, encode
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.label_noise.label_shares import are_vectors, blanks, check_no_counts
from keras_het.labels.aggregation import aggregate
from keras_het.labels.votes import Votes

ONE_CLASS = 0.95  # fraction of an annotator's votes that one class has, from which on it says little which
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
        labelled: mask of the examples that have a label, `(N,)`; None if all have one.
    """

    classes: np.ndarray
    y: np.ndarray
    votes: np.ndarray | None = None
    soft: np.ndarray | None = None
    annotators: np.ndarray | None = None
    labelled: np.ndarray | None = None

    def take(self, indices: np.ndarray) -> "Labels":
        """The labels of the examples at the `indices`, all of which count."""
        votes, soft = (None if each is None else each[indices] for each in (self.votes, self.soft))
        return dataclasses.replace(self, y=self.y[indices], votes=votes, soft=soft, labelled=None)

    def renumbered(self, places: np.ndarray) -> "Labels":
        """The same labels, with class k at the place `places[k]`, `(K,)`."""
        order = np.argsort(places)
        of_votes = np.append(places, -1).astype("int32")  # -1 is the last place
        votes = None if self.votes is None else of_votes[self.votes]
        soft = None if self.soft is None else self.soft[:, order]
        return dataclasses.replace(self, classes=self.classes[order], y=places[self.y], votes=votes, soft=soft)


def read_labels(y: Any, count: int | None = None, name: str = "y") -> Labels:
    """Reads labels of any form.

    Args:
        y: labels `(N,)`, see `encode`; `Votes`; a matrix of votes `(N, M)`, integers or names, with -1, nan, None or
            "" where an annotator gave none; or distributions or counts, `(N, K)`, of a float type and without a gap.
            Vectors with a single 1 are labels.
        count: N, or None.
        name: name of the argument, for errors.
    Raises:
        ValueError: for labels out of range, of one class, or of another number of examples, and if no example has one.

    Example:
        >>> found = read_labels([["cat", None, "cat"], ["dog", "dog", None], [None, None, None]])
        >>> found.classes.tolist(), found.votes.tolist(), found.labelled.tolist()
        (['cat', 'dog'], [[0, -1, 0], [1, 1, -1], [-1, -1, -1]], [True, True, False])
    """
    if isinstance(y, Votes):
        check_rows(y.votes, count, name)
        return _checked(_of_votes(y.votes, y.classes, y.annotators), name)
    given = _matrix(y, name)
    if given is None:
        return Labels(*encode(y, count, name, alone=True))
    check_rows(given, count, name)
    return _checked(_of_shares(y, given, name) if _are_shares(given, name) else _of_table(y, given, name), name)


def check_rows(y: np.ndarray, count: int | None, name: str = "y") -> None:
    """Raises a ValueError for labels of another number of examples; None knows none."""
    if count is not None and len(y) != count:
        turned = f" (np.transpose({name}), if rows are annotators)" if y.shape[1:] == (count,) else ""
        raise refusal(name, f"have a row for each of the {count} examples{turned}", len(y))


def is_votes(y: Any) -> bool:
    """Whether labels are of several annotators, or distributions."""
    return isinstance(y, Votes) or _matrix(y, "y") is not None


def most_probable(votes: np.ndarray, units: int) -> np.ndarray:
    """Probabilities of the classes by the votes alone, `(N, K)`, for votes `(N, M)`; even for an example without one.

    They are those of Dawid and Skene; the fractions of the votes, if there is one annotator, or most votes are of
    annotators who nearly always name the same class, as labelling functions do: there the likelihood does not say who
    is right, and is largest where all examples are of one class.
    """
    if not say_who_is_right(votes, units):
        return fractions(votes, units)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return aggregate(votes, units).probabilities


def say_who_is_right(votes: np.ndarray, units: int) -> bool:
    """Whether votes `(N, M)` are of several annotators, most of them of some who name more than one class."""
    counts = np.array([np.bincount(own[own >= 0], minlength=units) for own in votes.T])
    totals, most = counts.sum(axis=1), counts.max(axis=1)
    of_one_class = totals[most >= ONE_CLASS * totals].sum()
    return (totals > 0).sum() > 1 and 2 * of_one_class <= totals.sum()


def fractions(votes: np.ndarray, units: int) -> np.ndarray:
    """The fraction of each class among the votes of each example, `(N, K)`; even for an example without one."""
    found, given = np.full((len(votes), units), 1.0 / units), (votes >= 0).any(axis=1)
    found[given] = aggregate(votes[given], units, "majority").probabilities
    return found


def _matrix(y: Any, name: str) -> np.ndarray | None:
    """Labels with two axes, an array of numbers or objects; None for one label for each example."""
    if isinstance(y, Encoded):
        return None
    given = np.asarray(y.to_numpy() if hasattr(y, "iloc") else as_numpy(check_dense(name, y)))
    if given.dtype.kind in "SU" and not hasattr(y, "dtype"):  # else nan would be a text
        given = np.array(y, object)
    if given.ndim != 2 or given.shape[1] == 1:
        return None
    if given.dtype.kind in "biuf" and are_vectors(given):
        return None
    return given


def _are_shares(given: np.ndarray, name: str) -> bool:
    """Whether a matrix is of distributions or counts: floats without a gap but in rows that have nothing else."""
    if given.dtype.kind != "f":
        return False
    gaps = np.isnan(given) | (given == -1)
    blank = gaps.all(axis=1)
    rest = given[~blank]
    if gaps[~blank].any() or not len(rest):
        return False
    if np.any(rest != np.floor(rest)) or np.allclose(rest.sum(axis=1), 1.0):
        return True
    if blank.any() or (rest.sum(axis=1) == 0).any():
        rule = "be integers for votes; or, for counts, have no row without any: leave those out, of `x`, too"
        raise refusal(name, rule, "floats that may be either")
    return True


def _of_shares(y: Any, given: np.ndarray, name: str) -> Labels:
    """Distributions, or counts of votes, as distributions; even for an example without one."""
    labelled = ~(np.isnan(given).all(axis=1) | (given == -1).all(axis=1))
    given = np.where(labelled[:, None], given, 1.0)
    totals = given.sum(axis=1, keepdims=True)
    rule = "be distributions or counts, not negative, with something in each row; integers are votes"
    refuse_if((given < 0).any() or not (np.isfinite(totals).all() and (totals > 0).all()), name, rule, "others")
    soft, classes = given / totals, getattr(y, "columns", np.arange(given.shape[1]))
    return Labels(np.asarray(classes), largest(soft), soft=soft, labelled=labelled)


def _of_table(y: Any, given: np.ndarray, name: str) -> Labels:
    """Votes of a matrix of integers or names."""
    blank = blanks(given)
    refuse_if(blank.all(), name, "have at least one label", "none")
    check_no_counts(given, name)
    values = given[~blank]
    integers = values.dtype.kind in "biuf" or all(isinstance(value, int | float | np.number) for value in values)
    classes, labels = encode(values.astype("float64") if integers else values, None, name, alone=True)
    votes = np.full(given.shape, -1, "int32")
    votes[~blank] = labels
    return _of_votes(votes, classes, getattr(y, "columns", None))


def _of_votes(votes: np.ndarray, classes: np.ndarray, annotators: Any) -> Labels:
    """Votes, and the most probable class by them."""
    names = None if annotators is None else np.asarray(annotators)
    y, labelled = largest(most_probable(votes, len(classes))), np.any(votes >= 0, axis=1)
    return Labels(np.asarray(classes), y, votes=votes, annotators=names, labelled=labelled)


def largest(p: np.ndarray) -> np.ndarray:
    """The most probable class of each example, `(N,)`; of equals one at random, for the first would have too many."""
    drawn = random_generator(0).random(p.shape)
    return np.where(p >= p.max(axis=1, keepdims=True) - EQUAL, drawn, -1.0).argmax(axis=1)


def _checked(found: Labels, name: str) -> Labels:
    """The labels, if they are of several classes."""
    refuse_if(len(found.classes) < 2, name, "be of at least two classes", 1)
    number = len(np.unique(found.y[found.labelled]))
    refuse_if(number < 2, name, "be of at least two classes", "votes that together name one")
    return dataclasses.replace(found, labelled=None) if np.all(found.labelled) else found
