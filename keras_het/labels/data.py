"""Examples with noisy labels, in the form that every call reads."""

import dataclasses
import functools
import warnings
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import (
    as_array,
    as_arrays,
    count_examples,
    is_data_set,
    read_index,
    select_rows,
)
from keras_het.base.refusal import outside_level, refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.tables import number_of
from keras_het.base.validation import check_integer, check_weights
from keras_het.labels.classes import Encoded, are_one_hot, encode, encode_votes, ordered_names
from keras_het.labels.estimation import check_distributions
from keras_het.labels.votes.aggregation import aggregate

TIE_TOLERANCE = 1e-9  # else rounding would break ties in favour of one class


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """Examples and their noisy labels.

    Attributes:
        x: examples: arrays of N rows, alone or in a list or dict.
        y: labels, integers in [0, K), `(N,)`; or distributions over the classes, `(N, K)`.
        classes: names of the K classes, or their numbers, `(K,)`.
        weight: weights of the examples, `(N,)`; None for equal ones.
        index: pandas index of the rows, for printed tables and frames; None for row numbers.
    """

    x: Any
    y: np.ndarray
    classes: np.ndarray
    weight: np.ndarray | None = None
    index: Any = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> "Data":
        """Returns the examples at these row numbers, or of this mask."""
        weight, index = (None if part is None else part[rows] for part in (self.weight, self.index))
        return Data(select_rows(self.x, rows), self.y[rows], self.classes, weight, index)

    @property
    def units(self) -> int:
        """Number of classes, K."""
        return len(self.classes)

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """Most probable class of each example, `(N,)`; ties are broken at random, with a fixed seed."""
        if self.y.ndim == 1:
            return self.y
        priorities = random_generator(0).random(self.y.shape)
        is_best = self.y >= self.y.max(axis=1, keepdims=True) - TIE_TOLERANCE
        return np.where(is_best, priorities, -1.0).argmax(axis=1)

    @property
    def distribution(self) -> np.ndarray:
        """Labels as distributions over the classes, `(N, K)`, float32."""
        return keras.utils.to_categorical(self.y, self.units) if self.y.ndim == 1 else self.y


def read(x: Any, y: Any = None, sample_weight: Any = None, class_names: Any = None, votes: Any = None) -> Data:
    """Reads examples and labels of any form.

    Args:
        x: examples: arrays, memory maps, a numeric pandas frame, or a data set of batches (x, y) in a fixed order.
        y: labels, `(N,)`: integers from 0 on, or names; or rows of probabilities, `(N, K)` floats. None for a data set,
            or for votes. A Series or frame must have the index of a frame x.
        sample_weight: weights of the examples, `(N,)`; None for equal ones or the data set's weights.
        class_names: names of the K classes, for integer labels; for labels that are names, their order.
        votes: labels of M annotators instead of `y`, `(N, M)`, as `aggregate` reads them. Dawid and Skene's model turns
            them into distributions.
    """
    refuse_if(y is not None and votes is not None, "votes", "be None if you pass `y`", "both")
    y, name, read_table = (y, "y", _read_labels) if votes is None else (votes, "votes", _read_votes)
    index = read_index(**{"x": x, name: y, "sample_weight": sample_weight})
    x, y, data_set_weight = as_arrays(_without_pandas(x), y, name)
    has_two = sample_weight is not None and data_set_weight is not None
    refuse_if(has_two, "sample_weight", "be None for a data set that has weights", "weights")
    classes, labels = read_table(y, count := count_examples(x))
    is_one_class = labels.ndim == 2 and np.ptp(labels.argmax(axis=1)) == 0
    refuse_if(is_one_class, name, "be of at least two classes", "labels of one class")
    names, places = ordered_names(classes, class_names, name)
    labels = places[labels] if labels.ndim == 1 else labels[:, np.argsort(places)]
    classes = classes if class_names is None else np.asarray(names)
    weight = check_weights(data_set_weight if sample_weight is None else sample_weight, count)
    return Data(x, labels, classes, weight, index)


def _read_labels(y: Any, count: int) -> Encoded:
    """Returns the classes, `(K,)`, and the labels, `(N,)`, or distributions, `(N, K)`, of a `y` that `read` accepts."""
    table = as_array("y", y)
    if table.ndim != 2 or table.shape[1] == 1 or are_one_hot(table):
        return encode(y, count, defines_classes=True)
    is_whole = table.dtype.kind != "f" or np.all((table == np.floor(table)) | np.isnan(table))
    division = "y.div(y.sum(axis=1), axis=0)" if hasattr(y, "columns") else "y / y.sum(axis=1, keepdims=True)"
    rule = (
        "have one label for each example, or a row of probabilities. For the labels of several annotators, pass "
        f"votes=y instead. For counts of each class, pass {division}"
    )
    refuse_if(is_whole, "y", rule, f"shape {table.shape}, dtype {table.dtype}")
    p = check_distributions(y, "y", count=count)
    return Encoded(np.asarray(getattr(y, "columns", np.arange(p.shape[1]))), p.astype("float32"))


def _read_votes(votes: Any, count: int) -> Encoded:
    """Returns the classes, `(K,)`, and distributions, `(N, K)`, of the labels of several annotators, `(N, M)`.

    For one annotator, and for rules as `aggregate` detects them, the probabilities are the fractions of the votes.
    """
    classes, labels = encode_votes(votes, "votes")
    refuse_if(labels.ndim != 2, "votes", "have a column for each annotator, (N, M)", shape=labels)
    transpose = " (np.transpose(votes), if rows are annotators)" if labels.shape[1] == count else ""
    refuse_if(len(labels) != count, "votes", f"have a row for each of the {count} examples{transpose}", len(labels))
    is_vote = labels >= 0
    if not is_vote.any(axis=1).all():
        unlabelled = np.flatnonzero(~is_vote.any(axis=1))
        rule = "have a label for each example. Leave out the other rows of `x` and `votes`"
        raise refusal("votes", rule, f"none in row {unlabelled[0]} ({number_of(len(unlabelled), 'such row')})")
    method = "dawid_skene" if is_vote.any(axis=0).sum() > 1 else "majority"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = aggregate(labels, len(classes), method).probabilities
    return Encoded(classes, p.astype("float32"))


def stratified_folds(labels: np.ndarray, folds: int, seed: int, classes: Any = None) -> np.ndarray:
    """Returns the fold of each label, `(N,)`; sizes of folds, and of each class in them, differ by at most one."""
    check_integer("folds", folds, 2, len(labels))
    counts = np.bincount(labels)
    rare = np.flatnonzero((counts > 0) & (counts < folds))
    if len(rare):
        name = int(rare[0]) if classes is None else classes.tolist()[rare[0]]
        warnings.warn(
            f"Class {name!r} has fewer examples ({counts[rare[0]]}) than folds ({folds}), so a model can miss it"
            f"{f' ({len(rare)} such classes)' if len(rare) > 1 else ''}. Use fewer folds or merge classes.",
            stacklevel=outside_level(),
        )
    shuffled = random_generator(seed).permutation(len(labels))
    rows = shuffled[np.argsort(labels[shuffled], kind="stable")]  # sorted by class
    fold_of = np.empty(len(labels), int)
    fold_of[rows] = np.arange(len(labels)) % folds
    return fold_of


def _without_pandas(x: Any) -> Any:
    """Returns a numeric frame as floats, a column of texts as an array of objects, and anything else unchanged."""
    if is_data_set(x) or not hasattr(x, "iloc"):
        return x
    if not hasattr(x, "columns") and np.asarray(x).dtype.kind in "OSUT":
        return x.to_numpy(object)
    try:
        values = x.to_numpy()  # float32 would round times in seconds before a warning sees them
        return values if values.dtype.kind == "f" else x.to_numpy("float64")
    except (TypeError, ValueError) as error:
        columns = f"columns of {sorted(map(str, getattr(x, 'dtypes', [])))}"
        raise refusal("x", "be a frame of numbers", columns) from error
