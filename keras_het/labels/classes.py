"""Converts labels of any form (integers, names, vectors) to the integers 0 to K - 1."""

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from keras_het.base.batches import as_array
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import MAX_CLASSES, check_class_names, check_labels, missing_label_hint

MAX_NAMES_IN_ERROR = 5
MAX_CLASS_RATIO = 10  # classes per class that occurs: with an id as a label, K^2 numbers would fit no memory


class Encoded(NamedTuple):
    """Labels as integers.

    Attributes:
        classes: names of the K classes, sorted or in the order of a pandas Categorical; or the integers themselves.
        labels: `(N,)`, in [0, K).
    """

    classes: np.ndarray
    labels: np.ndarray


def encode(
    y: Any, count: int | None = None, name: str = "y", *, defines_classes: bool = False, categories: list | None = None
) -> Encoded:
    """Converts labels of exclusive classes to integers.

    Args:
        y: integers from 0 on, which do not change; names or booleans, numbered in sorted order or in the order of a
            Categorical; one-hot vectors, `(N, K)`; or an `Encoded`. Arrays, tensors, lists and pandas columns.
        count: N, or None.
        name: name of the argument, for errors.
        defines_classes: boolean, whether K comes from these labels alone; see `check_zero_based`.
        categories: order of the classes; None for the order of a Categorical, or sorted.
    Raises:
        ValueError: for missing labels, -1, fractions, vectors that are not one-hot, another number of labels than
            `count`, or labels of a single class.
    """
    encoded = y if isinstance(y, Encoded) else _encode(y, name, defines_classes, categories)
    if count is not None and len(encoded.labels) != count:
        raise refusal(name, f"have a label for each of the {count} examples", len(encoded.labels))
    refuse_if((number := len(np.unique(encoded.labels))) < 2, name, "have at least two classes", number)
    return encoded


def check_zero_based(labels: np.ndarray, name: str = "y") -> np.ndarray:
    """Returns integer labels, `(N,)`, if 0 occurs and none is an id, which would imply as many classes."""
    if len(labels) and labels.min() > 0:
        rule = f"begin with 0: use {name} - 1 if labels begin with 1, or strings if numbers are names"
        raise refusal(name, rule, f"integers from {labels.min()} to {labels.max()}")
    check_not_id(labels, name)
    return labels


def refuse_blank(index: int, name: str = "y") -> NoReturn:
    """Raises a ValueError for a -1 among labels, which always marks a missing label."""
    rule = "have a label for each example (or number the classes from 0, if -1 is a class)"
    raise refusal(name, rule, f"-1 at [{index}]{missing_label_hint(-1, name)}")


def _refuse_missing(labels: np.ndarray, name: str) -> None:
    """Raises a ValueError for the first missing label, `(N,)`."""
    if not (blank := blank_mask(labels)).any():
        return
    index = int(blank.argmax())
    if not is_missing(labels[index]) and labels[index] == -1:
        refuse_blank(index, name)
    remedy = "leave such examples out, inputs and labels"
    raise refusal(name, "have a label for each example", f"none at [{index}]: {remedy}")


def check_not_id(labels: np.ndarray, name: str = "y") -> None:
    """Raises a ValueError if the largest of integer labels, `(N,)`, implies far more classes than occur."""
    limit = MAX_CLASS_RATIO * len(np.unique(labels))
    if len(labels) and labels.max() >= limit:
        index = labels.argmax()
        rule = f"be in [0, {limit}), {MAX_CLASS_RATIO} times the number of classes that occur; pass ids as strings"
        raise refusal(name, rule, f"{labels[index]} at [{index}]")


def _encode(y: Any, name: str, defines_classes: bool, categories: list | None = None) -> Encoded:
    labels, categories = as_array(name, y), pandas_categories(y, name) if categories is None else categories
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim == 2 and labels.dtype.kind in "biuf":
        return _encode_vectors(labels, name)
    if labels.ndim == 1:
        _refuse_missing(labels, name)
        if labels.dtype.kind in "OSUb" or categories is not None:
            return _encode_names(labels, categories, name, defines_classes)
        if labels.dtype.kind == "f" and np.all(labels == np.floor(labels)):
            labels = labels.astype("int64")
    labels = check_labels(labels, MAX_CLASSES, None, name)
    labels = check_zero_based(labels, name) if defines_classes else labels
    return Encoded(np.arange(int(labels.max(initial=-1)) + 1), labels)


def encode_votes(votes: Any, name: str, defines_classes: bool = True) -> Encoded:
    """Converts votes for exclusive classes, `(N, M)`, to integers; -1, nan, None, NA and "" become -1, no vote.

    See `encode`. If `defines_classes` is false, all votes can be for one class.
    """
    table, categories = as_array(name, votes), pandas_categories(votes, name)
    blank = blank_mask(table)
    refuse_if(blank.all(), name, "have at least one label", "no label")
    values = table[~blank]
    are_numbers = values.dtype.kind in "iuf" or all(
        isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values
    )
    values = values.astype("float64") if are_numbers and categories is None else values
    if values.dtype.kind == "f" and (is_fraction := values != np.floor(values)).any():
        rule = "be integers or names, with -1, nan or None for a missing vote"
        raise refusal(name, rule, values[is_fraction][0])
    labels = np.full(table.shape, -1, "int32")
    encoded = _encode(values, name, defines_classes, categories)
    classes, labels[~blank] = encode(encoded, None, name) if defines_classes else encoded
    return Encoded(classes, labels)


def index_labels(y: Any, classes: np.ndarray, name: str, rule: str) -> np.ndarray:
    """Converts labels of any form that `encode` accepts to their indices in `classes`, `(N,)`.

    Raises:
        ValueError: for no label at all, or a label that is no class.
    """
    labels = as_array(name, y)
    if labels.ndim == 2 and labels.shape[1] > 1:
        labels = _encode_vectors(labels, name).labels
    values = labels.reshape(len(labels)).tolist()
    indices = {label: index for index, label in enumerate(classes.tolist())}
    unknown = [label for label in values if label not in indices]
    if unknown or not values:
        received = f"{unknown[0]!r}{missing_label_hint(unknown[0], name)}" if unknown else "no label"
        raise refusal(name, f"have at least one label, and {rule}", received)
    return np.array([indices[label] for label in values])


def ordered_names(
    classes: np.ndarray, class_names: Any, name: str = "y", allows_more: bool = False
) -> tuple[list, np.ndarray]:
    """Returns the class names in display order, and the index of each class in that order, `(K,)`.

    Args:
        classes: classes that `encode` returned.
        class_names: sequence or dict {class: name}. It names integer classes, and orders classes that are names. None
            changes nothing.
        name: name of the argument with the labels, for errors.
        allows_more: boolean, whether `class_names` can have names that do not occur among the labels.
    Raises:
        ValueError: for another number of names, or names that do not match the labels.
    """
    labels, indices = classes.tolist(), np.arange(len(classes))
    if class_names is None:
        return labels, indices
    class_names = class_names if hasattr(class_names, "__len__") else list(class_names)
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
    return not any(_is_number(text) and text != str(index) for index, text in enumerate(map(str, classes)))


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def order_columns(classes: Any, probabilities: Any, name: str = "probabilities") -> Any:
    """Returns probabilities with the columns of a frame in the order of the classes.

    Columns 0, 1, 2, ..., in any order, are indices of the classes. None for `classes` means 0, 1, 2, ... Any columns
    pass if the classes have no names. A ValueError is raised for columns that differ from the names, and for columns
    0, 1, 2, ... if the names are other numbers.
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


def _encode_vectors(vectors: np.ndarray, name: str) -> Encoded:
    if not (np.all((vectors == 0) | (vectors == 1)) and np.all(vectors.sum(axis=1) == 1)):
        raise refusal(name, "name one class for each example", "vectors that are not one-hot")
    return Encoded(np.arange(vectors.shape[1]), vectors.argmax(axis=1))


def _encode_names(labels: np.ndarray, categories: list | None, name: str, defines_classes: bool) -> Encoded:
    values = labels.tolist()
    kinds = sorted({"str" if isinstance(value, str) else type(value).__name__ for value in values})
    refuse_if(len(kinds) > 1, name, "have labels of one type", " and ".join(kinds))
    if categories is None and kinds in (["int"], ["float"]):
        return _encode(labels.astype(kinds[0]), name, defines_classes)
    names = set(values)
    order = sorted(names) if categories is None else [value for value in categories if value in names]
    indices = {value: index for index, value in enumerate(order)}
    return Encoded(np.array(order), np.array([indices[value] for value in values], "int64"))


def is_missing(value: Any) -> bool:
    """Returns whether a label is None, nan, or pandas' NA, which cannot be compared."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def blank_mask(table: np.ndarray) -> np.ndarray:
    """Returns booleans of the shape of `table`: which labels are None, nan, NA, -1 or an empty string."""
    if table.dtype.kind in "biuf":
        return np.isnan(table) | (table == -1)
    return np.array([is_missing(value) or value in (-1, "") for value in table.ravel()], bool).reshape(table.shape)


def pandas_categories(y: Any, name: str = "y") -> list | None:
    """Returns the categories of a pandas Categorical, Series or frame; None without categories in a common order.

    A ValueError is raised if the columns of a frame have ordered categories in different orders.
    """
    dtypes = list(y.dtypes) if hasattr(y, "columns") else [getattr(y, "dtype", None)]
    orders = [list(getattr(dtype, "categories", ())) for dtype in dtypes]
    longest = max(orders, key=len, default=[])
    if all(order and order == [label for label in longest if label in order] for order in orders):
        return longest
    rule = "have one order of categories in all columns: pandas.CategoricalDtype([...], ordered=True)"
    refuse_if(any(getattr(dtype, "ordered", False) for dtype in dtypes), name, rule, joined_names(longest))
    return None
