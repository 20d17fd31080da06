"""One table of labels for a spreadsheet, and the corrections that a person has written into it."""

import io
import numbers
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_het.base.batches import as_array
from keras_het.base.classes import encode, joined_names, ordered_names
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names, check_labels

COLUMNS = ("index", "given", "suggested", "score", "is_issue", "kind", "corrected")
READ_COLUMNS = ("index", "given", "corrected")
EXAMPLE_PREFIX = "x:"  # of the names of further columns, which nobody fills in
SEPARATORS = ",;\t"  # spreadsheets write another one if a comma is the decimal point
# The start of a cell, for any usual separator, before a character that begins a formula: a spreadsheet would compute
# such a name. It begins with characters, so that the search in long texts is quick.
FORMULA = re.compile(r"([;,|\t\r\n]\s*+)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")


def table_of(
    issues: Any,
    class_names: list,
    corrections: Mapping[int, int],
    examples: Sequence[tuple[str, Callable[[int], Any]]] = (),
) -> bytes:
    """Returns the content of the file: a line for each label, the worst first. No name or text can run as a formula.

    Args:
        issues: `LabelIssues` of all labels.
        class_names: K names.
        corrections: `{row number: class}`; the column is empty for all other labels.
        examples: titles of further columns, and functions of the row number.
    """
    names = np.array([str(safe_cell(name)) for name in class_names], object)
    judged = [f"{score:.6g}" for score in issues.score], issues.is_issue.astype(int), issues.kind
    corrected = [names[corrections[row]] if row in corrections else "" for row in issues.index]
    values = issues.index, names[issues.given], names[issues.suggested], *judged, corrected
    frame = import_extra("pandas", "The table of labels").DataFrame(dict(zip(COLUMNS, values, strict=True)))
    for title, value in examples:
        cells = [safe_cell(value(row)) for row in issues.index]
        frame.insert(frame.shape[1], safe_cell(f"{EXAMPLE_PREFIX} {title}"), cells, allow_duplicates=True)
    return frame.to_csv(index=False, lineterminator="\r\n").encode(
        "utf-8-sig", "replace"
    )  # with the mark by which spreadsheets know UTF-8


def safe_cell(name: Any) -> Any:
    """Returns a name that a spreadsheet does not compute: a number, or a text with ' before signs of a formula."""
    if isinstance(name, numbers.Number):
        return name
    text = FORMULA.sub(r"\1'", f"\n{name}")[1:]
    return f"'{text}" if text.startswith(("\t", "\r", "\n")) else text


def read_table(path: str | os.PathLike) -> Any:
    """Returns a table as `table_of` makes it, or as a spreadsheet has saved it, as a `pandas.DataFrame` of texts.

    The index of the frame has the numbers of the rows, as a spreadsheet shows them.

    Raises:
        ValueError: for another file.
    """
    pandas = import_extra("pandas", "The table of labels")
    rule = f"be a table of labels in UTF-8, with the columns {', '.join(COLUMNS)}"
    refuse_if(not pathlib.Path(path).is_file(), "path", rule, f"{path}, which is no file")
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
    raise refusal("path", rule, f"{path}, which is none")


def apply_corrections(
    labels: Any, path: str | os.PathLike, class_names: Sequence | Mapping | None = None
) -> np.ndarray:
    """Returns labels with the corrections that a person has written into `labels.csv`, the table of `report`.

    The table has a line for each label, the worst first. A class in its column `corrected` is the correct one; an empty
    cell leaves the label as it is. A spreadsheet can sort the lines, leave some out, or write ; or tabs for commas.

    Args:
        labels: integers in [0, K), or names, `(N,)`: the labels that the report was of, or these with the corrections.
        path: the folder of the report, or the table itself.
        class_names: names of the K classes, as `report` was given them, a sequence or a dict {class: name}; None for
            the names that the labels are, or numbers, up to the largest of the labels.
    Returns:
        the labels, `(N,)`; the argument does not change.
    Raises:
        ValueError: for another file, or a table of other labels; for a class without a name, an index out of range or
            twice: the error has the row.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = path.write_text("index,given,corrected\\n2,dog,cat\\n0,cat,\\n1,dog,\\n")
        >>> apply_corrections([0, 1, 1], path, ["cat", "dog"]).tolist()
        [0, 1, 0]
        >>> apply_corrections(["cat", "dog", "dog"], path).tolist()
        ['cat', 'dog', 'cat']
    """
    path = pathlib.Path(path)
    path = path / "labels.csv" if path.is_dir() else path
    given = as_array("labels", labels)
    class_names = class_names if class_names is None or hasattr(class_names, "keys") else list(class_names)
    refuse_if(given.ndim != 1, "labels", "be one label for each example, (N,)", shape=given)
    if given.dtype.kind in "OSU":
        found = encode(labels, name="labels")
        names, places = ordered_names(found.classes, class_names, "labels", allows_more=True)
        return np.asarray(names)[_corrected(places[found.labels], path, names)]
    numbers_of = check_labels(labels, np.inf)
    names = check_class_names(class_names, numbers_of.max(initial=0) + 1 if class_names is None else len(class_names))
    return _corrected(check_labels(numbers_of, len(names)), path, names)


def _corrected(labels: np.ndarray, path: pathlib.Path, names: list) -> np.ndarray:
    corrected = labels.copy()
    for row, label in read_corrections(path, labels, names).items():
        corrected[row] = label
    return corrected


def read_corrections(path: str | os.PathLike, labels: np.ndarray, class_names: list) -> dict[int, int]:
    """Returns the corrections of a table, `{row number: class}`.

    With a correction, the whole table must be of these labels: each must be as given or as corrected. If a correction
    is also the given label, the table was made with corrected labels, and any label is accepted.

    Args:
        path: path of the table.
        labels: labels of all N examples, `(N,)`.
        class_names: K names.
    Raises:
        ValueError: as `apply_corrections`.
    """
    table, classes, corrections = read_table(path), _classes_of_cells(class_names), {}
    seen: set[int] = set()
    lines = table[list(READ_COLUMNS)].itertuples() if table["corrected"].ne("").any() else []
    for line, row, given, cell in lines:
        try:
            row = _row_number(row, len(labels), seen)
            corrected = _class_of_cell(cell, classes) if cell else None
            known = classes.get(given, set())
            is_other = corrected not in known and labels[row] not in known | {corrected}
            refuse_if(
                is_other, "path", f"be a table of these labels, of which this is class {labels[row]}", f"{given!r}"
            )
        except ValueError as error:
            raise ValueError(f"{error} in row {line} of {path}") from error
        seen.add(row)
        if corrected is not None:
            corrections[row] = corrected
    return corrections


def _classes_of_cells(class_names: list) -> dict[str, set[int]]:
    """Returns the classes that each cell can stand for, as a name is or as the table has it: one, if names differ."""
    classes: dict[str, set[int]] = {}
    for label, name in enumerate(class_names):
        for cell in (name, safe_cell(name)):
            classes.setdefault(str(cell).encode("utf-8", "replace").decode().strip(), set()).add(label)
    return classes


def _row_number(cell: str, count: int, seen: set[int]) -> int:
    is_number = cell.isascii() and cell.isdigit() and len(cell) < 20 and int(cell) < count
    refuse_if(not is_number, "path", f"have an index in [0, {count}) in each line", f"{cell!r}")
    refuse_if(int(cell) in seen, "path", "have each index once", f"{cell!r} again")
    return int(cell)


def _class_of_cell(cell: str, classes: dict[str, set[int]]) -> int:
    found = classes.get(cell, set())
    rule = f"have the name of one class as `corrected`, of {joined_names([*classes])}"
    refuse_if(len(found) != 1, "path", rule, f"{cell!r}")
    return next(iter(found))
