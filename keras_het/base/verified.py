"""Verified labels: a dict from the indices of examples to what somebody has found to be true."""

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_het.base.classes import encode_among
from keras_het.base.refusal import refusal


def verified_places(given: Any, count: int, index: Any = None, name: str = "verified_labels") -> np.ndarray:
    """Places of the keys of a dict among N examples, in their order, `(n,)`.

    Args:
        given: dict from the indices of examples to anything; None for none.
        count: N.
        index: index of a pandas frame, whose entries are the keys then; None for numbers.
        name: name of the argument, for errors.
    Raises:
        ValueError: for no dict, or a key that is no index.

    Example:
        >>> verified_places({3: "cat", 0: "dog"}, 4).tolist()
        [3, 0]
    """
    if given is None:
        return np.zeros(0, "int64")
    if not isinstance(given, Mapping):
        raise refusal(name, "be a dict from the indices of examples to their labels", kind=given)
    if index is not None and given and not np.array_equal(index, np.arange(count)):
        rows = index.get_indexer(list(given)) if index.is_unique else np.full(len(given), -1)
        if (rows < 0).any():
            rule = "have keys of the index of `x` or `y`, which must be unique"
            raise refusal(name, rule, repr(list(given)[int(rows.argmin())]))
        return rows
    wrong = [key for key in given if not _is_index(key, count)]
    if wrong:
        raise refusal(name, f"have indices in [0, {count}), integers", repr(wrong[0]))
    return np.array([int(key) for key in given], "int64")


def read_verified(given: Any, count: int, classes: np.ndarray, index: Any = None) -> np.ndarray:
    """Verified labels as integers, -1 where there is none, `(N,)`; for arguments as in `verified_places`.

    Args:
        given: dict from the indices of examples to labels; None or an empty one for none.
        count: N.
        classes: labels of the K classes, as given, `(K,)`.
        index: index of a pandas frame; None for numbers.

    Example:
        >>> read_verified({3: "cat"}, 4, np.array(["cat", "dog"])).tolist()
        [-1, -1, -1, 0]
    """
    found = np.full(count, -1)
    if given is None or (isinstance(given, Mapping) and not given):
        return found
    places = verified_places(given, count, index)
    found[places] = encode_among(list(given.values()), classes, "verified_labels")
    return found


def _is_index(index: Any, count: int) -> bool:
    """Whether a key is the number of an example: 3.0 is none, for NumPy takes no fractions as indices."""
    return isinstance(index, numbers.Integral) and not isinstance(index, bool) and 0 <= int(index) < count
