"""Table of labels for a spreadsheet, and the corrections that a person has written into it."""

import numbers
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas

from keras_het.base.batches import as_array
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names, check_labels
from keras_het.labels.classes import encode, joined_names, ordered_names

TABLE, READ_COLUMNS = "labels.csv", ["index", "label", "corrected"]
SEPARATORS = ",;\t"  # spreadsheets write ; or tabs in countries with a decimal comma
MAX_CELL_LETTERS = 2000
# Start of a cell before a character that begins a formula: a spreadsheet would run names or texts with it. The pattern
# begins with separators, so that the search in long texts is quick.
FORMULA = re.compile(r"([;,|\t\r\n]\s*+)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")


def as_cell(value: Any) -> Any:
    """Returns a number, or the start of a text; a lone surrogate, which no file can hold, becomes a question mark."""
    if isinstance(value, numbers.Number):
        return value
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:MAX_CELL_LETTERS].encode("utf-8", "replace").decode()


def safe_cell(value: Any) -> Any:
    """Returns a cell that a spreadsheet does not run: a number, or a text with ' before signs of a formula."""
    if isinstance(cell := as_cell(value), numbers.Number):
        return cell
    text = FORMULA.sub(r"\1'", f"\n{cell}")[1:]
    return f"'{text}" if text.startswith(("\t", "\r", "\n")) else text


def apply_corrections(
    labels: Any, path: str | os.PathLike, class_names: Sequence | Mapping | None = None
) -> np.ndarray:
    """Returns labels with the corrections that you have written into `labels.csv`, the table of `report`.

    Write the correct class of a label into the column `corrected`; an empty cell keeps the label. You can sort the
    lines in a spreadsheet, delete some, or save them with ; or tabs instead of commas.

    Args:
        labels: labels of the report, with or without corrections, integers in [0, K) or names, `(N,)`.
        path: folder of the report, or path of the table.
        class_names: names of the K classes in the report, a sequence or a dict {class: name}; None if the labels are
            names, or for integers up to the largest label.
    Returns:
        corrected labels, `(N,)`, in a new array.
    Raises:
        ValueError: for another file, other labels, or a wrong class or index, with the row of the table.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = path.write_text("index,label,corrected\\n2,dog,cat\\n0,cat,\\n1,dog,\\n")
        >>> apply_corrections([0, 1, 1], path, ["cat", "dog"]).tolist()
        [0, 1, 0]
        >>> apply_corrections(["cat", "dog", "dog"], path).tolist()
        ['cat', 'dog', 'cat']
    """
    path = pathlib.Path(path)
    path = path / TABLE if path.is_dir() else path
    values = as_array("labels", labels)
    class_names = class_names if class_names is None or hasattr(class_names, "keys") else list(class_names)
    refuse_if(values.ndim != 1, "labels", "be one label for each example, (N,)", shape=values)
    is_named = values.dtype.kind in "OSU"
    if is_named:
        encoded = encode(labels, name="labels")
        names, codes = ordered_names(encoded.classes, class_names, "labels", allows_more=True)
        corrected = codes[encoded.labels]
    else:
        corrected = check_labels(labels, np.inf).copy()
        count = int(corrected.max(initial=0)) + 1 if class_names is None else len(class_names)
        names = check_class_names(class_names, count)
        check_labels(corrected, len(names))
    for row, label in read_corrections(path, corrected.copy(), names).items():
        corrected[row] = label
    return np.asarray(names)[corrected] if is_named else corrected


def read_corrections(path: pathlib.Path, labels: np.ndarray, class_names: list) -> dict[int, int]:
    """Returns the corrections of a table, `{row number: class}`.

    If there is a correction, each label must equal the table's label or its correction. A line whose correction equals
    its label comes from a report on corrected labels, and accepts any label.
    """
    table = _read_table(path)
    classes: dict[str, list[int]] = {}
    corrections: dict[int, int] = {}
    for label, name in enumerate(class_names):
        for cell in {str(as_cell(name)).strip(), str(safe_cell(name)).strip()}:
            classes.setdefault(cell, []).append(label)
    rows = {str(row): row for row in range(len(labels))}
    for line, index, name, cell in table.itertuples() if table.corrected.ne("").any() else ():
        received, matches = f"in row {line} of {path}", classes.get(cell, [])
        is_index, is_class = index in rows, not cell or len(matches) == 1
        refuse_if(not is_index, "path", f"have each index in [0, {len(labels)}) once", f"{index!r} {received}")
        rule = f"have the name of one class in the column `corrected`: {joined_names([*classes])}"
        refuse_if(not is_class, "path", rule, f"{cell!r} {received}")
        row, own = rows.pop(index), classes.get(name, [])
        is_other = labels[row] not in [*own, *matches] and not set(own) & set(matches)
        rule = f"be a table of these labels. The label of example {row} is class {labels[row]}"
        refuse_if(is_other, "path", rule, f"{name!r} {received}")
        if cell:
            corrections[row] = matches[0]
    return corrections


def _read_table(path: pathlib.Path) -> pandas.DataFrame:
    """Returns the read columns of a table, perhaps saved by a spreadsheet, as texts, by the row of the spreadsheet."""
    rule = f"be a table of labels in UTF-8, with the columns {', '.join(READ_COLUMNS)}"
    refuse_if(not path.is_file(), "path", rule, f"{path}, which is not a file")
    options: dict[str, Any] = {"header": None, "dtype": str, "keep_default_na": False, "skip_blank_lines": False}
    for separator in SEPARATORS:
        try:
            table = pandas.read_csv(path, sep=separator, encoding="utf-8-sig", **options).fillna("")
        except ValueError:  # also UnicodeDecodeError, ParserError and EmptyDataError
            continue
        table = table.apply(lambda column: column.str.strip()).set_axis(table.index + 1)
        names = table.iloc[0].tolist()
        if all(names.count(name) == 1 for name in READ_COLUMNS):
            return table[1:][table[1:].ne("").any(axis=1)].set_axis(names, axis=1)[READ_COLUMNS]
    raise refusal("path", rule, f"{path}, which is another file")
