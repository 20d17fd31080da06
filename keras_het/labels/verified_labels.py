"""Verified labels: a dict from the indices of examples to the labels that a person confirmed."""

import numbers
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np

from keras_het.base.refusal import refusal, refuse_if
from keras_het.labels.classes import is_missing, joined_names


def verified_indices(verified_labels: Any, count: int, index: Any = None) -> np.ndarray:
    """Returns the row indices of the verified examples, `(n,)`, in the order of the dict; none for None.

    The keys are entries of the pandas index, or row numbers in [0, count) without one.
    """
    if verified_labels is None:
        return np.zeros(0, "int64")
    if not isinstance(verified_labels, Mapping):
        raise refusal("verified_labels", "be a dict from the indices of examples to their labels", kind=verified_labels)
    labels = ((key, label) for key, label in verified_labels.items() if isinstance(label, Hashable))
    blank = [key for key, label in labels if is_missing(label) or label == ""]
    rule = (
        "have a label for each key. Leave out keys without a label. For `verify_accuracy` and `errors_left`, keep them "
        "in `draw_order`"
    )
    refuse_if(blank, "verified_labels", rule, f"no label for {blank[:1]}")
    return row_numbers(verified_labels, count, index, "verified_labels")


def row_numbers(keys: Collection, count: int, index: Any, name: str) -> np.ndarray:
    """Returns the row numbers of keys, `(n,)`; `count` and `index` are arguments of `verified_indices`."""
    if index is not None and len(keys) and not np.array_equal(index, np.arange(count)):
        rows = index.get_indexer(list(keys))
        if (rows < 0).any():
            key = list(keys)[int(rows.argmin())]
            hint = (
                f"; example number {key} has the name {_python_scalar(index[key])!r}" if _is_index(key, count) else ""
            )
            raise refusal(name, "have only names of the pandas index", f"{key!r}{hint}")
        return rows
    wrong = [key for key in keys if not _is_index(key, count)]
    if wrong:
        raise refusal(name, f"have integer indices in [0, {count})", repr(wrong[0]))
    return np.array([int(key) for key in keys], "int64")


def encode_verified(verified_labels: Mapping, *classes: np.ndarray, allows_unknown: bool = False) -> np.ndarray:
    """Converts verified labels to indices of `classes`, `(n,)`; with several lists, the first with the label counts.

    With `allows_unknown`, a label can be no class, and gives -1. It must be a name if the classes are names, and a
    number if they are numbers.
    """
    indices: dict[Any, int] = {}
    for labels in reversed(classes):
        indices |= {label: index for index, label in enumerate(labels.tolist())}
    are_names = {isinstance(label, str) for label in indices}
    are_verdicts = any(isinstance(label, bool) for label in indices)  # the classes are False and True
    for key, label in verified_labels.items():
        is_verdict = isinstance(label, bool | np.bool_) and not are_verdicts
        rule = "have correct labels, not verdicts such as True"
        refuse_if(is_verdict, "verified_labels", rule, f"{label!r} of example {key!r}")
        if _python_scalar(label) not in indices and not (allows_unknown and isinstance(label, str) in are_names):
            hint = f", not the text {str(label)!r}" if str(label) in indices else ""
            rule = f"have only the classes {joined_names(classes[0].tolist())}"
            raise refusal("verified_labels", rule, f"{label!r} of example {key!r}{hint}")
    return np.array([indices.get(_python_scalar(label), -1) for label in verified_labels.values()], "int64")


def _python_scalar(label: Any) -> Any:
    """Returns the label as a plain Python value; None if it is not hashable."""
    label = label.item() if isinstance(label, np.generic) else label
    return label if isinstance(label, Hashable) else None


def _is_index(index: Any, count: int) -> bool:
    """Returns whether a key is a row number; 3.0 is not, because NumPy accepts no floats as indices."""
    return isinstance(index, numbers.Integral) and not isinstance(index, bool) and 0 <= int(index) < count
