"""Table of labels for a spreadsheet, and the corrections that a person has written into it."""

import io
import numbers
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_het.base.batches import as_array
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names, check_labels
from keras_het.labels.classes import encode, joined_names, ordered_names

COLUMNS = ("index", "label", "suggested", "score", "is_issue", "kind", "corrected")
READ_COLUMNS = ("index", "label", "corrected")
EXAMPLE_PREFIX = "x:"  # marks columns of examples, which `apply_corrections` ignores
SEPARATORS = ",;\t"  # spreadsheets write ; or tabs in countries with a decimal comma
# Start of a cell before a character that begins a formula: a spreadsheet would run names or texts with it. The pattern
# begins with separators, so that the search in long texts is quick.
FORMULA = re.compile(r"([;,|\t\r\n]\s*+)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")


def table_of(
    issues: Any,
    class_names: list,
    corrections: Mapping[int, int],
    examples: Sequence[tuple[str, Callable[[int], Any]]] = (),
) -> bytes:
    """Returns the content of the file, with a line for each label, in which nothing can run as a formula."""
    names = np.array([str(safe_cell(name)) for name in class_names], object)
    scores = [f"{score:.6g}" for score in issues.score]
    corrected = [names[corrections[row]] if row in corrections else "" for row in issues.index]
    labels = names[issues.label], names[issues.suggested]
    values = issues.index, *labels, scores, issues.is_issue.astype(int), issues.kind, corrected
    frame = import_extra("pandas", "The table of labels").DataFrame(dict(zip(COLUMNS, values, strict=True)))
    for title, value in examples:
        cells = [safe_cell(value(row)) for row in issues.index]
        frame.insert(frame.shape[1], safe_cell(f"{EXAMPLE_PREFIX} {title}"), cells, allow_duplicates=True)
    # Without the mark of "utf-8-sig", spreadsheets would read another encoding.
    return frame.to_csv(index=False, lineterminator="\r\n").encode("utf-8-sig", "replace")


def safe_cell(name: Any) -> Any:
    """Returns a cell that a spreadsheet does not run: a number, or a text with ' before signs of a formula."""
    if isinstance(name, numbers.Number):
        return name
    text = FORMULA.sub(r"\1'", f"\n{name}")[1:]
    return f"'{text}" if text.startswith(("\t", "\r", "\n")) else text


def read_table(path: str | os.PathLike) -> Any:
    """Returns a table of `table_of`, perhaps saved by a spreadsheet, as a `pandas.DataFrame` of texts.

    The index of the frame has the row numbers that a spreadsheet shows.

    Raises:
        ValueError: for another file.
    """
    pandas = import_extra("pandas", "The table of labels")
    rule = f"be a table of labels in UTF-8, with the columns {', '.join(COLUMNS)}"
    refuse_if(not pathlib.Path(path).is_file(), "path", rule, f"{path}, which is not a file")
    options = {"header": None, "dtype": str, "keep_default_na": False, "skip_blank_lines": False}
    for separator in SEPARATORS:
        try:
            text = pathlib.Path(path).read_bytes().decode("utf-8-sig")
            frame = pandas.read_csv(io.StringIO(text, newline=""), sep=separator, **options).fillna("")
        except ValueError:  # also UnicodeDecodeError, ParserError and EmptyDataError
            continue
        frame = frame.apply(lambda column: column.str.strip())
        names = frame.iloc[0].tolist()
        if all(names.count(name) == 1 for name in READ_COLUMNS):
            frame.index += 1
            return frame.iloc[1:].set_axis(names, axis=1)[frame.iloc[1:].ne("").any(axis=1)]
    raise refusal("path", rule, f"{path}, which is another file")


def apply_corrections(
    labels: Any, path: str | os.PathLike, class_names: Sequence | Mapping | None = None
) -> np.ndarray:
    """Returns labels with the corrections that you have written into `labels.csv`, the table of `report`.

    Write the correct class of a label into the column `corrected`; an empty cell keeps the label. You can sort the
    lines in a spreadsheet, delete some, or save them with ; or tabs instead of commas.

    Args:
        labels: labels of the report, with or without corrections, integers in [0, K) or names, `(N,)`.
        path: folder of the report, or path of the table.
        class_names: names of the K classes, as passed to `report`, a sequence or a dict {class: name}; None if the
            labels are names, or for integers up to the largest label.
    Returns:
        corrected labels, `(N,)`, in a new array.
    Raises:
        ValueError: for another file, a table of other labels, an unknown class, or an index that repeats or is out of
            range. The error has the row.

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
    path = path / "labels.csv" if path.is_dir() else path
    values = as_array("labels", labels)
    class_names = class_names if class_names is None or hasattr(class_names, "keys") else list(class_names)
    refuse_if(values.ndim != 1, "labels", "be one label for each example, (N,)", shape=values)
    if values.dtype.kind in "OSU":
        encoded = encode(labels, name="labels")
        names, codes = ordered_names(encoded.classes, class_names, "labels", allows_more=True)
        return np.asarray(names)[_correct(codes[encoded.labels], path, names)]
    integers = check_labels(labels, np.inf)
    names = check_class_names(class_names, integers.max(initial=0) + 1 if class_names is None else len(class_names))
    return _correct(check_labels(integers, len(names)), path, names)


def _correct(labels: np.ndarray, path: pathlib.Path, names: list) -> np.ndarray:
    corrected = labels.copy()
    for row, label in read_corrections(path, labels, names).items():
        corrected[row] = label
    return corrected


def read_corrections(path: str | os.PathLike, labels: np.ndarray, class_names: list) -> dict[int, int]:
    """Returns the corrections of a table, `{row number: class}`.

    If there is a correction, each label must equal the table's label or its correction. A line whose correction equals
    its label comes from a report on corrected labels, and accepts any label. It raises the errors of
    `apply_corrections`.
    """
    table, classes, corrections = read_table(path), _classes_by_cell(class_names), {}
    seen: set[int] = set()
    lines = table[list(READ_COLUMNS)].itertuples() if table["corrected"].ne("").any() else []
    for line, row, name, cell in lines:
        try:
            row = _read_row_number(row, len(labels), seen)
            corrected = _read_class(cell, classes) if cell else None
            matches = classes.get(name, set())
            is_other = corrected not in matches and labels[row] not in matches | {corrected}
            rule = f"be a table of these labels. The label of example {row} is class {labels[row]}"
            refuse_if(is_other, "path", rule, f"{name!r}")
        except ValueError as error:
            raise ValueError(f"{error} in row {line} of {path}") from error
        seen.add(row)
        if corrected is not None:
            corrections[row] = corrected
    return corrections


def _classes_by_cell(class_names: list) -> dict[str, set[int]]:
    """Returns the classes that each cell can mean, as a name or in the form of `safe_cell`."""
    classes: dict[str, set[int]] = {}
    for label, name in enumerate(class_names):
        for cell in (name, safe_cell(name)):
            classes.setdefault(str(cell).encode("utf-8", "replace").decode().strip(), set()).add(label)
    return classes


def _read_row_number(cell: str, count: int, seen: set[int]) -> int:
    is_number = cell.isascii() and cell.isdigit() and len(cell) < 20 and int(cell) < count
    refuse_if(not is_number, "path", f"have an index in [0, {count}) in each line", f"{cell!r}")
    refuse_if(int(cell) in seen, "path", "have each index once", f"{cell!r} again")
    return int(cell)


def _read_class(cell: str, classes: dict[str, set[int]]) -> int:
    matches = classes.get(cell, set())
    rule = f"have the name of one class in the column `corrected`: {joined_names([*classes])}"
    refuse_if(len(matches) != 1, "path", rule, f"{cell!r}")
    return next(iter(matches))
