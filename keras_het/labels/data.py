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
    check_same_index,
    count_examples,
    is_data_set,
    read_index,
    select_rows,
)
from keras_het.base.refusal import outside_level, refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_integer, check_weights
from keras_het.labels.aggregation import aggregate
from keras_het.labels.classes import Encoded, blank_mask, encode, encode_votes, ordered_names

KAPPA_STANDARD_ERRORS, MIN_ANNOTATOR_KAPPA = 2.33, 0.1
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


def read(x: Any, y: Any = None, sample_weight: Any = None, class_names: Any = None) -> Data:
    """Reads examples and labels of any form.

    Args:
        x: examples: arrays, memory maps, a numeric pandas frame, or a data set of batches (x, y) in a fixed order.
        y: labels, `(N,)`: integers from 0 on, or names; distributions, `(N, K)` floats; or votes of M annotators,
            `(N, M)`, integers or names, with -1, nan or None for a missing vote. Dawid and Skene's model turns votes
            into distributions. None for a data set. A Series or frame must have the index of a frame x.
        sample_weight: weights of the examples, `(N,)`; None for equal ones or the data set's weights.
        class_names: names of the K classes, for integer labels; for labels that are names, their order.
    Raises:
        ValueError: for rows without a label, labels that start at 1, an id as the label, labels of one class, or
            arguments of different lengths or indices.
    """
    check_same_index(x=x, y=y, sample_weight=sample_weight)
    if hasattr(x, "iloc") and hasattr(y, "iloc") and len(x) != len(y):
        raise refusal("y", f"have a row for each of the {len(x)} rows of `x`: y.reindex(x.index)", len(y))
    index = read_index(x=x, y=y)
    x, y, data_set_weight = as_arrays(_without_pandas(x), y)
    refuse_if(
        sample_weight is not None and data_set_weight is not None,
        *("sample_weight", "be None for a data set that has weights", "weights"),
    )
    classes, labels = read_labels(y, count := count_examples(x))
    names, places = ordered_names(classes, class_names)
    labels = places[labels] if labels.ndim == 1 else labels[:, np.argsort(places)]
    classes = classes if class_names is None else np.asarray(names)
    weight = check_weights(data_set_weight if sample_weight is None else sample_weight, count)
    return Data(x, labels, classes, weight, index)


def read_labels(y: Any, count: int, name: str = "y") -> Encoded:
    """Returns the classes, `(K,)`, and the labels, `(N,)`, or distributions, `(N, K)`, of a `y` that `read` accepts."""
    table = label_table(y, name)
    if table is None:
        return encode(y, count, name, defines_classes=True)
    blank = blank_mask(table)
    if table.dtype.kind == "f" and not blank.any():
        totals = table.sum(axis=1, keepdims=True)
        _check_no_votes(table, y, name)
        rule = "be distributions: floats, not negative, each row of sum 1. Use integers for votes"
        is_wrong = (table < 0).any() or not np.isfinite(totals).all() or (totals <= 0).any()
        refuse_if(is_wrong, name, rule, "other floats")
        classes = np.asarray(getattr(y, "columns", np.arange(table.shape[1])))
        return _distributions(classes, table / totals, blank, count, name, "")
    _check_no_counts(table, y, name)
    classes, votes = encode_votes(y if hasattr(y, "columns") else table, name)
    has_vote = f"({name} >= 0)" if table.dtype.kind in "if" else f"pandas.DataFrame({name}).notna()"
    return _distributions(classes, most_probable(votes, len(classes)), blank, count, name, has_vote)


def most_probable(votes: np.ndarray, units: int) -> np.ndarray:
    """Returns the probabilities of the classes, `(N, K)`, by Dawid and Skene, from votes, `(N, M)`, -1 if missing.

    For one annotator, and for rules as `aggregate` detects them, the probabilities are the fractions of the votes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (votes >= 0).any(axis=0).sum() > 1:
            return aggregate(votes, units).probabilities
    fractions, has_vote = np.full((len(votes), units), 1.0 / units), (votes >= 0).any(axis=1)
    fractions[has_vote] = aggregate(votes[has_vote], units, "majority").probabilities
    return fractions


def stratified_folds(labels: np.ndarray, folds: int, seed: int, classes: Any = None) -> np.ndarray:
    """Returns the fold of each label, `(N,)`; sizes of folds, and of each class in them, differ by at most one.

    Warns: if a class has fewer examples than there are folds, with its name in `classes`.
    """
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


def _distributions(
    classes: np.ndarray, p: np.ndarray, blank: np.ndarray, count: int, name: str, has_vote: str
) -> Encoded:
    """Returns distributions, `(N, K)`, as labels, if each example has one and they name several classes.

    `blank` is the mask of missing votes, and `has_vote` the code of its opposite, for the error.
    """
    transpose = f" (np.transpose({name}), if rows are annotators)" if blank.shape[1] == count else ""
    refuse_if(len(p) != count, name, f"have a row for each of the {count} examples{transpose}", len(p))
    unlabelled = np.flatnonzero(blank.all(axis=1))
    if len(unlabelled):
        line = f"keep = {has_vote}.any(axis=1); x, {name} = x[keep], {name}[keep]"
        rule = f"have a label for each example; drop unlabelled rows: {line}"
        raise refusal(name, rule, f"none in row {unlabelled[0]}")
    refuse_if(len(classes) < 2, name, "be of at least two classes", len(classes))
    number = len(np.unique(p.argmax(axis=1)))
    refuse_if(number < 2, name, "be of at least two classes", "labels of one class")
    return Encoded(np.asarray(classes), p.astype("float32"))


def _without_pandas(x: Any) -> Any:
    """Returns a numeric frame as floats, a column of texts as an array of objects, and anything else unchanged."""
    if is_data_set(x) or not hasattr(x, "iloc"):
        return x
    if not hasattr(x, "columns") and np.asarray(x).dtype.kind in "OSUT":
        return x.to_numpy(object)
    try:
        values = x.to_numpy()  # float32 would round times in seconds before `warn_of_values` sees them
        return values if values.dtype.kind == "f" else x.to_numpy("float64")
    except (TypeError, ValueError) as error:
        columns = f"columns of {sorted(map(str, getattr(x, 'dtypes', [])))}"
        raise refusal("x", "be a frame of numbers", columns) from error


def label_table(y: Any, name: str) -> np.ndarray | None:
    """Returns labels with two axes, numbers or objects; None if each example has one label."""
    if isinstance(y, Encoded):
        return None
    table = as_array(name, y)
    if table.ndim != 2 or table.shape[1] == 1:
        return None
    are_numbers = table.dtype.kind in "biuf"
    if are_numbers and np.all((table == 0) | (table == 1)) and np.all(table.sum(axis=1) == 1):
        return None  # vectors with a single 1
    return table


def _check_no_counts(votes: np.ndarray, y: Any, name: str) -> None:
    """Raises a ValueError for complete integer tables that look like counts instead of votes.

    In a table of counts, all rows have the same sum, or columns agree no more than by chance. Then Conger's kappa is
    less than `KAPPA_STANDARD_ERRORS` above 0, and as many below `MIN_ANNOTATOR_KAPPA`. The standard error includes four
    rows of chance, so that few rows prove nothing. Votes that are at least half correct are refused in at most 3% of
    draws of ten or more examples, even if 97% are of one class. Counts are refused in 48% of draws of 20 examples, 85%
    of 60 and 96% of 200.

    Source: Conger 1980, "Integration and generalization of kappas for multiple raters".
    """
    if votes.dtype.kind not in "iu" or votes.min(initial=0) < 0 or not votes.size:
        return
    size, (rows, count) = int(votes.max()) + 1, votes.shape
    agreement = sum(np.square(n := (votes == k).sum(axis=1)) - n for k in range(size)) / (count * (count - 1))
    fractions = np.stack([(votes == k).mean(axis=0) for k in range(size)])
    chance = float(np.square(fractions.sum(axis=1)).sum() - np.square(fractions).sum()) / (count * (count - 1))
    excess, variance = agreement.mean() - chance, rows * agreement.var() + 4 * chance * (1 - chance)
    margin = KAPPA_STANDARD_ERRORS * (variance / (rows + 4) / rows) ** 0.5
    has_equal_sums = np.ptp(votes.sum(axis=1)) == 0
    evidence = "rows of equal sums" if has_equal_sums else "columns that agree no more than by chance"
    refuse_if(
        has_equal_sums or excess < min(margin, MIN_ANNOTATOR_KAPPA * (1 - chance) - margin),
        name,
        f"be votes, not counts. For votes write {name}.astype(str), for counts {_as_fractions(y, name)}",
        f"{evidence}, like counts",
    )


def _check_no_votes(table: np.ndarray, y: Any, name: str) -> None:
    """Raises a ValueError for whole floats whose rows have different sums, because they can be votes or counts."""
    totals = table.sum(axis=1)
    is_whole = np.isfinite(totals).all() and np.all((table == np.floor(table)) & (table >= 0))
    rule = (
        f"be integers for votes, a column for each annotator: {name}.astype(int). For counts, a column for each class, "
        f"use fractions without a row of zeros: {_as_fractions(y, name)}"
    )
    refuse_if(is_whole and np.ptp(totals), name, rule, "whole floats with rows of different sums")


def _as_fractions(y: Any, name: str) -> str:
    """Returns the code that divides the rows of an array or a frame by their sums."""
    division = ".div({}.sum(axis=1), axis=0)" if hasattr(y, "columns") else " / {}.sum(axis=1, keepdims=True)"
    return name + division.format(name)
