"""Labels of any form, integers, names or vectors, as the integers 0 to K - 1, and back."""

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from keras_het.base.batches import as_array
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import MAX_CLASSES, check_class_names, check_labels, no_label

MOST_NAMES = 5  # in an error
LEFT_OUT = ": leave such examples out, inputs and labels"
MOST_EMPTY = 10  # classes for each one that occurs: with more, an integer is an id, and K^2 numbers fit no memory


class Encoded(NamedTuple):
    """Labels as integers.

    Attributes:
        classes: the K classes: names, sorted or in the order of a pandas Categorical, or the integers themselves.
        labels: `(N,)`, in [0, K).
    """

    classes: np.ndarray
    labels: np.ndarray


def encode(
    y: Any, count: int | None = None, name: str = "y", *, alone: bool = False, categories: list | None = None
) -> Encoded:
    """Reads labels of exclusive classes.

    Args:
        y: integers from 0 on, which stay as they are; names or booleans, which are numbered in sorted order, or in that
            of a Categorical; vectors with a single 1, `(N, K)`; as an array, a tensor, a list, or a column of pandas;
            or `Encoded` ones.
        count: N, or None.
        name: name of the argument, for errors.
        alone: boolean, whether nothing but the labels says how many classes there are: see `check_zero_based`.
        categories: order of the classes; None for that of a Categorical, or sorted.
    Raises:
        ValueError: for missing labels, -1 among them, fractions, several ones in a vector, another number of labels, or
            one class.

    Example:
        >>> found = encode(["dog", "cat", "dog"])
        >>> found.classes.tolist(), found.labels.tolist()
        (['cat', 'dog'], [1, 0, 1])
    """
    found = y if isinstance(y, Encoded) else _encoded(y, name, alone, categories)
    if count is not None and len(found.labels) != count:
        raise refusal(name, f"have a label for each of the {count} examples", len(found.labels))
    refuse_if((number := len(np.unique(found.labels))) < 2, name, "be of at least two classes", number)
    return found


def check_zero_based(labels: np.ndarray, name: str = "y") -> np.ndarray:
    """Integer labels, `(N,)`, if 0 is among them, and no id, which would ask for as many classes.

    Example:
        >>> check_zero_based(np.array([0, 2, 5])).tolist()
        [0, 2, 5]
    """
    if len(labels) and labels.min() > 0:
        rule = f"begin with 0 ({name} - 1, for labels that begin with 1; texts, for names that are numbers)"
        raise refusal(name, rule, f"integers from {labels.min()} to {labels.max()}")
    check_not_id(labels, name)
    return labels


def refuse_blank(place: int, name: str = "y") -> NoReturn:
    """Raises a ValueError for a -1 among labels, which means everywhere that there is none."""
    rule = "have a label for each example (or number the classes from 0, if -1 is one)"
    raise refusal(name, rule, f"-1 at [{place}]{no_label(-1, name)}")


def check_not_id(labels: np.ndarray, name: str = "y") -> None:
    """Raises a ValueError if the largest of integer labels, `(N,)`, asks for far more classes than occur."""
    most = MOST_EMPTY * len(np.unique(labels))
    if len(labels) and labels.max() >= most:
        place = labels.argmax()
        rule = f"be in [0, {most}), {MOST_EMPTY} times as many as the classes that occur; is it an id? Make names texts"
        raise refusal(name, rule, f"{labels[place]} at [{place}]")


def _encoded(y: Any, name: str, alone: bool, categories: list | None = None) -> Encoded:
    given, categories = as_array(name, y), categories_of(y, name) if categories is None else categories
    given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    if given.ndim == 2 and given.dtype.kind in "biuf":
        return _of_vectors(given, name)
    if given.ndim == 1 and (given.dtype.kind in "OSUb" or categories is not None):
        return _of_names(given, categories, name, alone)
    given = _whole(given, name)
    if given.dtype.kind == "i" and (given == -1).any():
        refuse_blank(int((given == -1).argmax()), name)
    labels = check_labels(given, MAX_CLASSES, None, name)
    labels = check_zero_based(labels, name) if alone else labels
    return Encoded(np.arange(int(labels.max(initial=-1)) + 1), labels)


def encode_votes(votes: Any, name: str, alone: bool = True) -> Encoded:
    """Reads votes of M annotators for exclusive classes.

    Args:
        votes: integers from 0 on, or names, `(N, M)`, with -1, nan, None, NA or "" for none; a frame of pandas or an
            array.
        name: name of the argument, for errors.
        alone: argument of `encode`; if it is false, all votes may be of one class.
    Returns:
        the classes, `(K,)`, and the votes, integers `(N, M)`, -1 for none.
    Raises:
        ValueError: for no vote, or the errors of `encode`.

    Example:
        >>> found = encode_votes([["dog", None], ["cat", "dog"]], "y")
        >>> found.classes.tolist(), found.labels.tolist()
        (['cat', 'dog'], [[1, -1], [0, 1]])
    """
    table, categories = as_array(name, votes), categories_of(votes, name)
    blank = blank_mask(table)
    refuse_if(blank.all(), name, "have at least one label", "none")
    values = table[~blank]
    are_numbers = values.dtype.kind in "iuf" or all(
        isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values
    )
    values = values.astype("float64") if are_numbers and categories is None else values
    labels = np.full(table.shape, -1, "int32")
    encoded = _encoded(values, name, alone, categories)
    classes, labels[~blank] = encode(encoded, None, name) if alone else encoded
    return Encoded(classes, labels)


def index_labels(y: Any, classes: np.ndarray, name: str, rule: str = "only those of `y`") -> np.ndarray:
    """Reads labels of classes that are known from other labels, as `encode` returned them.

    Args:
        y: labels of any form that `encode` takes.
        classes: classes of the other labels.
        name: name of the argument, for errors.
        rule: text of what its labels must be, for errors.
    Returns:
        the places of the labels among the classes, `(N,)`.
    Raises:
        ValueError: for no label at all, or one that is none of the classes.

    Example:
        >>> index_labels(["dog", "dog"], encode(["dog", "cat"]).classes, "y").tolist()
        [1, 1]
    """
    given = as_array(name, y)
    if given.ndim == 2 and given.shape[1] > 1:
        given = _of_vectors(given, name).labels
    values = given.reshape(len(given)).tolist()
    places = {label: place for place, label in enumerate(classes.tolist())}
    wrong = [label for label in values if label not in places]
    if wrong or not values:
        rule = f"have at least one label, and {rule}"
        found = f"{wrong[0]!r}{no_label(wrong[0], name)}" if wrong else "none"
        raise refusal(name, rule, found)
    return np.array([places[label] for label in values])


def ordered_names(
    classes: np.ndarray, class_names: Any, name: str = "y", more: bool = False
) -> tuple[list, np.ndarray]:
    """Returns the names of the classes in the order that is wanted, and the place of each class in it, `(K,)`.

    Args:
        classes: classes of labels, as `encode` returned them.
        class_names: a sequence or a dict {class: name}. Integers get these names; of names it is the order. None leaves
            both as they are.
        name: name of the argument with the labels, for errors.
        more: boolean, whether there may be further names than those of the labels.
    Raises:
        ValueError: for another number of names, or other names than those of the labels.

    Example:
        >>> ordered_names(np.array(["cat", "dog"]), ["dog", "cat"])[1].tolist(), ordered_names(np.arange(2), ["dog", "cat"])[1].tolist()
        ([1, 0], [0, 1])
    """
    own, places = classes.tolist(), np.arange(len(classes))
    if class_names is None:
        return own, places
    given = class_names if hasattr(class_names, "__len__") else list(class_names)
    if classes.dtype.kind not in "OSU":
        return check_class_names(given, len(own)), places
    names = list(given.values() if isinstance(given, Mapping) else given)
    if set(own) - set(names) or (set(names) != set(own) and not more):
        rule = f"be {joined_names(own)}, the names in `{name}`, in any order (for other names, rename them in `{name}`)"
        raise refusal("class_names", rule, joined_names(names))
    names = check_class_names(given, len(names))
    return names, np.array([names.index(label) for label in own])


def is_index_unambiguous(classes: Any) -> bool:
    """Returns whether an integer can stand for the class at this place: no class has another number as its name.

    Example:
        >>> is_index_unambiguous(["cat", "dog"]), is_index_unambiguous(["0", "1"]), is_index_unambiguous(["1", "10", "2"])
        (True, True, False)
    """
    return not any(_is_number(text) and text != str(place) for place, text in enumerate(map(str, classes)))


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def order_columns(classes: Any, probabilities: Any, name: str = "probabilities") -> Any:
    """Returns probabilities with their columns in the order of the classes, if the columns of a frame name these.

    None means the classes 0, 1, 2, ... A frame with these columns stays as it is, and so do any other columns if the
    classes have no names. Columns that are not the names raise a ValueError, and so do 0, 1, 2, ... if the names are
    other numbers.
    """
    columns = getattr(probabilities, "columns", None)
    if columns is None:
        return probabilities
    classes = range(len(columns)) if classes is None else classes
    own, order = [str(column) for column in columns], [str(label) for label in classes]
    are_places = columns.tolist() == list(range(len(columns)))
    if are_places and is_index_unambiguous(order):
        return probabilities
    if set(own) == set(order) and len(own) == len(order) and not are_places:
        return probabilities.iloc[:, [own.index(label) for label in order]]
    rule = f"have the classes as columns, {joined_names(order)} (to_numpy() gives them by place)"
    refuse_if(np.asarray(classes).dtype.kind in "OSU", name, rule, joined_names(columns.tolist()))
    return probabilities


def joined_names(names: list) -> str:
    """Names for an error."""
    more = len(names) - MOST_NAMES
    return ", ".join(map(repr, names[:MOST_NAMES])) + f" and {more} more" * (more > 0)


def _of_vectors(given: np.ndarray, name: str) -> Encoded:
    if not (np.all((given == 0) | (given == 1)) and np.all(given.sum(axis=1) == 1)):
        raise refusal(name, "name one class for each example", "vectors of other numbers")
    return Encoded(np.arange(given.shape[1]), given.argmax(axis=1))


def _of_names(given: np.ndarray, categories: list | None, name: str, alone: bool) -> Encoded:
    values = given.tolist()
    missing = [index for index, value in enumerate(values) if is_missing(value) or value == ""]
    if missing:
        raise refusal(name, "have a label for each example", f"none at [{missing[0]}]{LEFT_OUT}")
    if -1 in values:
        refuse_blank(values.index(-1), name)
    kinds = sorted({"str" if isinstance(value, str) else type(value).__name__ for value in values})
    refuse_if(len(kinds) > 1, name, "have labels of one type", " and ".join(kinds))
    if categories is None and kinds in (["int"], ["float"]):
        return _encoded(given.astype(kinds[0]), name, alone)
    occurring = set(values)
    order = sorted(occurring) if categories is None else [value for value in categories if value in occurring]
    places = {value: place for place, value in enumerate(order)}
    return Encoded(np.array(order), np.array([places[value] for value in values], "int64"))


def _whole(given: np.ndarray, name: str) -> np.ndarray:
    """Numbers without a fraction as integers; anything else as it is."""
    if given.dtype.kind != "f" or given.ndim != 1:
        return given
    missing = np.flatnonzero(np.isnan(given))
    if len(missing):
        raise refusal(name, "have a label for each example", f"none at [{missing[0]}]{LEFT_OUT}")
    return given.astype("int64") if np.all(given == np.floor(given)) else given


def is_missing(value: Any) -> bool:
    """Returns whether a label is None, nan, or NA of pandas, which cannot be compared."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def blank_mask(table: np.ndarray) -> np.ndarray:
    """Returns where a table of labels has none: None, nan, NA, -1 or an empty text."""
    if table.dtype.kind in "biuf":
        return np.isnan(table) | (table == -1)
    return np.array([[is_missing(value) or value in (-1, "") for value in row] for row in table])


def categories_of(y: Any, name: str = "y") -> list | None:
    """Returns the categories of a pandas Categorical, a Series or a frame of them; None if there are none in one order.

    Ordered categories whose order differs among the columns of a frame raise a ValueError.
    """
    dtypes = list(y.dtypes) if hasattr(y, "columns") else [getattr(y, "dtype", None)]
    orders = [list(getattr(dtype, "categories", ())) for dtype in dtypes]
    most = max(orders, key=len, default=[])
    if all(own and own == [label for label in most if label in own] for own in orders):
        return most
    rule = "have one order of categories in all columns (pandas.CategoricalDtype([...], ordered=True))"
    refuse_if(any(getattr(dtype, "ordered", False) for dtype in dtypes), name, rule, joined_names(most))
    return None
