"""Verified labels: a dict from the indices of examples to what somebody has found to be true."""

import numbers
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np

from keras_het.base.classes import is_missing, some
from keras_het.base.refusal import refusal, refuse_if


def verified_places(given: Any, count: int, index: Any = None) -> np.ndarray:
    """Places of the keys of a dict among N examples, in their order, `(n,)`.

    Args:
        given: dict from the indices of examples to anything; None for none.
        count: N.
        index: index of a pandas frame, whose entries are the keys then; None for numbers.
    Raises:
        ValueError: for no dict, a key that is no index, or one without a label.

    Example:
        >>> verified_places({3: "cat", 0: "dog"}, 4).tolist()
        [3, 0]
    """
    if given is None:
        return np.zeros(0, "int64")
    if not isinstance(given, Mapping):
        raise refusal("verified_labels", "be a dict from the indices of examples to their labels", kind=given)
    blank = [key for key, label in given.items() if isinstance(label, Hashable) and (is_missing(label) or label == "")]
    rule = "have a label for each key. Leave out keys without a label, and pass all keys as `draw_order`"
    refuse_if(blank, "verified_labels", rule, f"none for {blank[:1]}")
    return row_numbers(given, count, index, "verified_labels")


def row_numbers(keys: Collection, count: int, index: Any, name: str) -> np.ndarray:
    """Returns the row numbers of the indices of examples, `(n,)`; `count` and `index` as of `verified_places`."""
    if index is not None and len(keys) and not np.array_equal(index, np.arange(count)):
        rows = index.get_indexer(list(keys))
        if (rows < 0).any():
            key = list(keys)[int(rows.argmin())]
            meant = f"; the name of example number {key} is {_plain(index[key])!r}" if _is_index(key, count) else ""
            raise refusal(name, "have names of the pandas index, no other keys", f"{key!r}{meant}")
        return rows
    wrong = [key for key in keys if not _is_index(key, count)]
    if wrong:
        raise refusal(name, f"have indices in [0, {count}), integers", repr(wrong[0]))
    return np.array([int(key) for key in keys], "int64")


def encode_verified(given: Mapping, *classes: np.ndarray, others: bool = False) -> np.ndarray:
    """Verified labels as places among the classes, `(n,)`.

    Args:
        given: dict from the indices of examples to labels.
        classes: labels of the K classes, `(K,)`, or several lists of them, of which the first counts that has a label.
        others: boolean, whether a label may be none of the classes, which is -1: a name only where they are names, a
            number only where they are numbers.
    Raises:
        ValueError: for another label: it names the example.

    Example:
        >>> encode_verified({3: "cat", 0: 1}, np.array(["cat", "dog"]), np.arange(2)).tolist()
        [0, 1]
    """
    places: dict[Any, int] = {}
    for each in reversed(classes):
        places |= {label: place for place, label in enumerate(each.tolist())}
    are_names = {isinstance(label, str) for label in places}
    for key, label in given.items():
        if _plain(label) not in places and not (others and isinstance(label, str) in are_names):
            text = f", not the text {str(label)!r}" if str(label) in places else ""
            rule = f"have only the classes {some(classes[0].tolist())}"
            raise refusal("verified_labels", rule, f"{label!r} of example {key!r}{text}")
    return np.array([places.get(_plain(label), -1) for label in given.values()], "int64")


def _plain(label: Any) -> Any:
    """A label as Python has it; what cannot be a key is none."""
    label = label.item() if isinstance(label, np.generic) else label
    return label if isinstance(label, Hashable) else None


def _is_index(index: Any, count: int) -> bool:
    """Whether a key is the number of an example: 3.0 is none, for NumPy takes no fractions as indices."""
    return isinstance(index, numbers.Integral) and not isinstance(index, bool) and 0 <= int(index) < count
