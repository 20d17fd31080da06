"""Converts labels of any form (integers, names, vectors) to the integers 0 to K - 1."""

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas

from keras_het.base.batches import as_array
from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.base.validation import MAX_CLASSES, check_class_names, check_labels, missing_label_hint

MAX_NAMES_IN_ERROR = 5
NUMBERS = {"int", "float"}
MAX_CLASS_RATIO = 10  # classes per class that occurs: with an id as a label, K^2 numbers would fit no memory


class Encoded(NamedTuple):
    """Labels as integers.

    Attributes:
        classes: names of the K classes, sorted or in the order of a pandas Categorical; or the integers themselves.
        labels: `(N,)`, in [0, K).
    """

    classes: np.ndarray
    labels: np.ndarray


def encode(y: Any, count: int | None = None, name: str = "y", *, defines_classes: bool = False) -> Encoded:
    """Converts labels of exclusive classes to integers; refuses missing labels, fractions and a single class.

    Args:
        y: integers from 0 on, which do not change; names or booleans, numbered in sorted order or in the order of a
            Categorical; or one-hot vectors, `(N, K)`, whose columns name the classes. Arrays, tensors, lists and pandas
            objects.
        count: N, or None.
        name: name of the argument, for errors.
        defines_classes: boolean, whether K comes from these labels alone. Then 0 must occur, and no id.
    """
    labels = as_array(name, y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim == 2 and labels.dtype.kind in "biuf":
        refuse_if(not are_one_hot(labels), name, "name one class for each example", "vectors that are not one-hot")
        encoded = Encoded(np.array([*getattr(y, "columns", range(labels.shape[1]))]), labels.argmax(axis=1))
    else:
        _refuse_missing(labels, name)
        encoded = _encode(labels, pandas_categories(y, name), name, defines_classes)
    if count is not None and len(encoded.labels) != count:
        raise refusal(name, f"have a label for each of the {count} examples", len(encoded.labels))
    refuse_if((number := len(np.unique(encoded.labels))) < 2, name, "have at least two classes", number)
    return encoded


def encode_votes(votes: Any, name: str, defines_classes: bool = True) -> Encoded:
    """Converts votes for exclusive classes, `(N, M)`, to integers; -1, nan, None, NA and "" become -1, no vote.

    See `encode`. If `defines_classes` is false, all votes can be for one class.
    """
    table = as_array(name, votes)
    blank = blank_mask(table)
    refuse_if(blank.all(), name, "have at least one label", "no label")
    values = table[~blank]
    classes, numbers = _encode(values, pandas_categories(votes, name), name, defines_classes)
    number = len(np.unique(numbers))
    refuse_if(defines_classes and number < 2, name, "have at least two classes", number)
    labels = np.full(table.shape, -1, "int32")
    labels[~blank] = numbers
    return Encoded(classes, labels)


def are_one_hot(vectors: np.ndarray) -> bool:
    """Returns whether each row, `(N, K)`, is 1 for one class and 0 for all others."""
    is_number = vectors.dtype.kind in "biuf"
    return bool(is_number and np.isin(vectors, (0, 1)).all() and np.all(vectors.sum(axis=1) == 1))


def refuse_blank(index: int, name: str = "y") -> NoReturn:
    """Raises a ValueError for a -1 among labels, which always marks a missing label."""
    rule = "have a label for each example (or number the classes from 0, if -1 is a class)"
    raise refusal(name, rule, f"-1 at [{index}]{missing_label_hint(-1, name)}")


def _refuse_missing(labels: np.ndarray, name: str) -> None:
    """Raises a ValueError for the first missing label."""
    if labels.ndim == 1 and (blank := blank_mask(labels)).any():
        index = int(blank.argmax())
        if not pandas.isna(labels[index]) and labels[index] == -1:
            refuse_blank(index, name)
        remedy = "leave such examples out, inputs and labels"
        raise refusal(name, "have a label for each example", f"none at [{index}]: {remedy}")


def _encode(labels: np.ndarray, categories: list | None, name: str, defines_classes: bool) -> Encoded:
    """Converts labels, `(N,)`, none of which is missing."""
    if labels.ndim == 1 and (labels.dtype.kind in "OSUb" or categories is not None):
        values = [value.item() if isinstance(value, np.generic) else value for value in labels.tolist()]
        kinds = {type(value).__name__ for value in values}
        if categories is not None or not kinds <= NUMBERS:
            refuse_if(len(kinds) > 1, name, "have labels of one type", " and ".join(sorted(kinds)))
            names = set(values)
            order = sorted(names) if categories is None else [label for label in categories if label in names]
            indices = {label: index for index, label in enumerate(order)}
            return Encoded(np.array(order), np.array([indices[value] for value in values], "int64"))
        labels = np.array(values)
    if labels.dtype.kind == "f":
        refuse_first(labels != np.floor(labels), name, "be integers or names", labels)
        labels = labels.astype("int64")
    labels = check_labels(labels, MAX_CLASSES, None, name)
    if defines_classes:
        _check_zero_based(labels, name)
    return Encoded(np.arange(int(labels.max(initial=-1)) + 1), labels)


def _check_zero_based(labels: np.ndarray, name: str) -> None:
    """Raises a ValueError if 0 does not occur, or if the largest label implies far more classes than occur."""
    if len(labels) and labels.min() > 0:
        rule = f"begin with 0: use {name} - 1 if labels begin with 1, or strings if numbers are names"
        raise refusal(name, rule, f"integers from {labels.min()} to {labels.max()}")
    limit = MAX_CLASS_RATIO * len(np.unique(labels))
    rule = f"be in [0, {limit}), {MAX_CLASS_RATIO} times the number of classes that occur; pass ids as strings"
    refuse_first(labels >= limit, name, rule, labels)


def ordered_names(
    classes: np.ndarray, class_names: Any, name: str = "y", allows_more: bool = False
) -> tuple[list, np.ndarray]:
    """Returns the class names in display order, and the index of each class in that order, `(K,)`.

    `class_names`, a sequence or dict {class: name}, names integer classes, and orders classes that are names, as they
    are in the argument `name`. With `allows_more`, it can have names that do not occur among the labels.
    """
    labels, indices = classes.tolist(), np.arange(len(classes))
    if class_names is None:
        return labels, indices
    if classes.dtype.kind not in "OSU":
        return check_class_names(class_names, len(labels)), indices
    names = list(class_names.values() if isinstance(class_names, Mapping) else class_names)
    if set(labels) - set(names) or (set(names) != set(labels) and not allows_more):
        rule = f"be {joined_names(labels)} in any order, the names in `{name}`; to rename classes, change `{name}`"
        raise refusal("class_names", rule, joined_names(names))
    names = check_class_names(class_names, len(names))
    return names, np.array([names.index(label) for label in labels])


def is_index_unambiguous(classes: Any) -> bool:
    """Returns whether an integer can stand for the class at that index: no class has another number as its name."""
    texts = enumerate(map(str, classes))
    return all(text == str(index) or not text.lstrip("-").replace(".", "", 1).isdigit() for index, text in texts)


def order_columns(classes: Any, probabilities: Any, name: str = "probabilities") -> Any:
    """Returns probabilities with the columns of a frame in the order of the classes.

    Columns 0, 1, 2, ..., in any order, are indices of the classes, and None for `classes` means the same. Any columns
    pass if the classes have no names. Columns that differ from the names are refused, and indices if names are other
    numbers.
    """
    columns = getattr(probabilities, "columns", None)
    if columns is None:
        return probabilities
    classes = range(len(columns)) if classes is None else classes
    names, order = [str(column) for column in columns], [str(label) for label in classes]
    are_indices = set(columns) == set(range(len(columns)))
    if are_indices and is_index_unambiguous(order):
        return probabilities.iloc[:, np.argsort(columns)]
    if set(names) == set(order) and len(names) == len(order) and not are_indices:
        return probabilities.iloc[:, [names.index(label) for label in order]]
    rule = f"have the classes as columns, {joined_names(order)}; to_numpy() keeps the columns by position"
    refuse_if(np.asarray(classes).dtype.kind in "OSU", name, rule, joined_names(columns.tolist()))
    return probabilities


def joined_names(names: list) -> str:
    """Returns the first names as text, for an error."""
    more = len(names) - MAX_NAMES_IN_ERROR
    return ", ".join(map(repr, names[:MAX_NAMES_IN_ERROR])) + f" and {more} more" * (more > 0)


def blank_mask(table: np.ndarray) -> np.ndarray:
    """Returns booleans of the shape of `table`: which labels are None, nan, NA, -1 or an empty string."""
    is_blank = np.asarray(pandas.isna(table))
    if table.dtype.kind in "biuf":
        return is_blank | (table == -1)
    is_blank[~is_blank] = [value in (-1, "") for value in table[~is_blank].tolist()]
    return is_blank


def pandas_categories(y: Any, name: str = "y") -> list | None:
    """Returns the categories of a pandas Categorical, Series or frame; None without categories in a common order."""
    dtypes = list(y.dtypes) if hasattr(y, "columns") else [getattr(y, "dtype", None)]
    orders = {tuple(getattr(dtype, "categories", ())) for dtype in dtypes}
    is_unclear = len(orders) > 1 and any(getattr(dtype, "ordered", False) for dtype in dtypes)
    rule = "have one order of categories in all columns: pandas.CategoricalDtype([...], ordered=True)"
    refuse_if(is_unclear, name, rule, joined_names([*max(orders, key=len, default=())]))
    return [*orders.pop()] or None if len(orders) == 1 else None
