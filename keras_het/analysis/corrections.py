"""Corrections that a person has written into the table of labels."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_het.analysis.label_table import cells_of, read_table
from keras_het.base.batches import as_numpy
from keras_het.base.classes import encode
from keras_het.base.validation import check_class_names, check_labels

MOST_NAMES = 5  # in an error


def apply_corrections(
    labels: Any, path: str | os.PathLike, class_names: Sequence | Mapping | None = None
) -> np.ndarray:
    """Labels with the corrections that a person has written into `labels.csv`, the table that `report` writes.

    The table has a line for each label, the worst first. A class in its column `corrected` is the right one; an empty
    cell leaves the label as it is. A spreadsheet may sort the lines, leave some out, or write ; or tabs for commas.

    Args:
        labels: integers in [0, K), or names, shape `(N,)`: the labels that the report was of, or those with the
            corrections. Names are classes in sorted order, as for `clean_labels`.
        path: the folder of the report, or the table itself.
        class_names: names of the K classes, as `report` was given them, a sequence or a dict {class: name}; None for
            numbers, up to the largest of the labels.
    Returns:
        the labels, shape `(N,)`; the argument does not change.
    Raises:
        ValueError: for another file, or a table of other labels; for a class without a name, an index out of range or
            twice: the error names the line.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = path.write_text("index,given,corrected\\n2,dog,cat\\n0,cat,\\n1,dog,\\n")
        >>> apply_corrections([0, 1, 1], path, ["cat", "dog"]).tolist()
        [0, 1, 0]
        >>> apply_corrections(["cat", "dog", "dog"], path).tolist()
        ['cat', 'dog', 'cat']
    """
    if np.asarray(as_numpy(labels)).dtype.kind in "OSU":
        found = encode(labels, name="labels")
        names_of = found.classes.tolist() if class_names is None else class_names
        return found.classes[apply_corrections(found.labels, path, names_of)]
    labels = check_labels(labels, np.inf)
    class_names = class_names if class_names is None or hasattr(class_names, "__len__") else list(class_names)
    names = check_class_names(class_names, labels.max(initial=0) + 1 if class_names is None else len(class_names))
    corrected = check_labels(labels, len(names)).copy()
    path = pathlib.Path(path)
    for index, label in read_corrections(path / "labels.csv" if path.is_dir() else path, labels, names).items():
        corrected[index] = label
    return corrected


def read_corrections(path: str | os.PathLike, labels: np.ndarray, class_names: list) -> dict[int, int]:
    """The corrections of a table, `{index: class}`.

    With a correction, the whole table must be of these labels: each must be as given or as corrected. Where a table has
    a correction as the given label, it was made with corrected labels, and any label is right.

    Args:
        path: of the table.
        labels: of all N examples, `(N,)`.
        class_names: K names.
    Raises:
        ValueError: as `apply_corrections`.
    """
    rows = read_table(path).rows
    if not any(row.corrected for row in rows):
        return {}
    classes = _classes_of_cells(class_names)
    seen: set[int] = set()
    corrections = {}
    for row in rows:
        try:
            index = _index(row.index, len(labels), seen)
            corrected = _corrected(row.corrected, classes)
            _check_given(row.given, corrected, labels[index], classes)
        except ValueError as error:
            raise ValueError(f"{error} in line {row.line} of {path}") from error
        seen.add(index)
        if corrected is not None:
            corrections[index] = corrected
    return corrections


def _classes_of_cells(class_names: list) -> dict[str, set[int]]:
    """The classes that each cell may stand for: one, unless two names are alike."""
    classes: dict[str, set[int]] = {}
    for label, name in enumerate(class_names):
        for cell in cells_of(name):
            classes.setdefault(cell, set()).add(label)
    return classes


def _index(cell: str, count: int, seen: set[int]) -> int:
    """The number of the example."""
    if not (cell.isascii() and cell.isdigit() and len(cell) < 20 and int(cell) < count):
        raise ValueError(f"`path` must have an index in [0, {count}) in each line. Received: {cell!r}")
    if int(cell) in seen:
        raise ValueError(f"`path` must have each index once. Received: {cell!r} again")
    return int(cell)


def _corrected(cell: str, classes: dict[str, set[int]]) -> int | None:
    """The class that a correction names, None if the cell is empty."""
    if not cell:
        return None
    found = classes.get(cell, set())
    if len(found) != 1:
        known = ", ".join(map(repr, [*classes][:MOST_NAMES])) + (", ..." if len(classes) > MOST_NAMES else "")
        raise ValueError(f"`path` must have the name of one class as `corrected`, of {known}. Received: {cell!r}")
    return next(iter(found))


def _check_given(cell: str, corrected: int | None, label: int, classes: dict[str, set[int]]) -> None:
    """Raises a ValueError if a label is neither as given nor as corrected; any is right if both are the same class."""
    given = classes.get(cell, set())
    if corrected not in given and label not in given | {corrected}:
        raise ValueError(f"`path` must be a table of these labels, of which this is class {label}. Received: {cell!r}")
