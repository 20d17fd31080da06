"""Labels that somebody has verified: a dict from the indices of examples to their classes."""

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_het.base.refusal import refuse_if


def verified_places(given: Mapping | None, count: int, index: Any = None) -> np.ndarray:
    """The places of the examples of which a label is verified, in the order of the dict, `(n,)`.

    Args:
        given: argument `verified_labels`; None for none.
        count: number of all examples.
        index: index of pandas that the examples came with, of which the keys are, if it does not count them; or None.
    Raises:
        ValueError: for anything but a dict, or keys that are no examples.

    Example:
        >>> verified_places({3: "cat", 0: "dog"}, 5).tolist()
        [3, 0]
    """
    if given is None:
        return np.zeros(0, "int64")
    refuse_if(
        not isinstance(given, Mapping),
        "verified_labels",
        "be a dict from the indices of examples to their labels",
        kind=given,
    )
    if index is not None and given and not np.array_equal(index, np.arange(count)):
        rows = index.get_indexer(list(given)) if index.is_unique else np.full(len(given), -1)
        rule = "have keys of the index of `x` or `y`, which must be unique"
        refuse_if((rows < 0).any(), "verified_labels", rule, repr(list(given)[int(rows.argmin())]))
        return rows
    wrong = [key for key in given if not _is_index(key, count)]
    refuse_if(wrong, "verified_labels", f"have indices in [0, {count}), integers", repr(wrong[0]) if wrong else "")
    return np.array([*given], "int64")


def _is_index(index: Any, count: int) -> bool:
    """Whether a key is the number of an example: 3.0 is none, for NumPy takes no fractions as indices."""
    return isinstance(index, numbers.Integral) and not isinstance(index, bool) and 0 <= int(index) < count
