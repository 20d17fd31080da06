"""The table of all labels as a file for a spreadsheet, and the corrections that a person has written into it."""

import csv
import io
import numbers
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_het.analysis.label_quality import LabelIssues
from keras_het.base.batches import as_numpy
from keras_het.base.classes import encode, named
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names, check_labels

COLUMNS = ("index", "given", "suggested", "score", "is_issue", "kind", "corrected")
READ = ("index", "given", "corrected")
OF_EXAMPLE = "x:"  # before the names of further columns: texts and columns of the examples, which nobody fills in
MOST_NAMES = 5  # in an error
SEPARATORS = ",;\t"  # spreadsheets write another where a comma is the decimal point
# The start of a cell, for any usual separator, before a character that begins a formula: a spreadsheet would compute
# such a name. It begins with characters, for which the search in long texts is quick.
FORMULA = re.compile(r"([;,|\t\r\n]\s*+)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
UNSAFE = re.compile(r"([;,|\t\r\n]\s*+)'(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")


class Row(NamedTuple):
    """A line of a table that was read: its number in the file, and the cells as they are."""

    line: int
    index: str  # type: ignore[assignment]  # hides `tuple.index`
    given: str
    corrected: str


class Table(NamedTuple):
    """A table that was read: the names of all its columns, and its lines."""

    columns: list[str]
    rows: list[Row]


def table_of(
    issues: LabelIssues,
    class_names: list,
    corrections: Mapping[int, int],
    examples: Sequence[tuple[str, Callable[[int], Any]]] = (),
) -> bytes:
    """The content of the file: a line for each label, the worst first.

    Numbers are written as they are, and classes by name. No name or text can run as a formula.

    Args:
        issues: all labels.
        class_names: K names.
        corrections: `{index: class}`; the column is empty for all others.
        examples: further columns, their titles and functions of the index of an example.
    """
    names, file = [safe_cell(name) for name in class_names], io.StringIO(newline="")
    titles, values = [safe_cell(f"{OF_EXAMPLE} {title}") for title, _ in examples], [value for _, value in examples]
    writer = csv.writer(file)
    writer.writerow([*COLUMNS, *titles])
    for index, given, suggested, score, is_issue, kind in issues.rows():
        corrected = names[corrections[index]] if index in corrections else ""
        label = index, names[given], names[suggested], f"{score:.6g}", int(is_issue), kind, corrected
        writer.writerow([*label, *(safe_cell(value(index)) for value in values)])
    return file.getvalue().encode("utf-8-sig", "replace")  # with the mark by which spreadsheets know UTF-8


def safe_cell(name: Any) -> Any:
    """A name that a spreadsheet does not compute: a number, or a text with ' before signs that begin a formula."""
    if isinstance(name, numbers.Number):
        return name
    text = FORMULA.sub(r"\1'", f"\n{name}")[1:]
    return f"'{text}" if text.startswith(("\t", "\r", "\n")) else text


def cells_of(name: Any) -> set[str]:
    """The cells that stand for a name: as it is, and as the table has it, without spaces around."""
    return {str(cell).encode("utf-8", "replace").decode().strip() for cell in (name, safe_cell(name))}


def name_of_cell(cell: str) -> str:
    """The name that a cell stands for, where no list of names says which it may be: without the ' of `safe_cell`.

    Example:
        >>> name_of_cell(safe_cell("=1")), name_of_cell("'tis")
        ('=1', "'tis")
    """
    name = UNSAFE.sub(r"\1", f"\n{cell}")[1:]
    return name if safe_cell(name) == cell else cell


def read_table(path: str | os.PathLike) -> Table:
    """Reads a table as `table_of` makes it, or as a spreadsheet has saved it: by ; or tab, with quotes, or none.

    Raises:
        ValueError: for another file.
    """
    rule = f"be a table of labels in UTF-8, with the columns {', '.join(COLUMNS)}"
    columns, lines = table_lines(read_text(path, rule), path, READ, READ, rule)
    return Table(columns, [Row(line, *cells) for line, cells in lines])


def read_text(path: str | os.PathLike, rule: str) -> str:
    """The text of a file; a ValueError with the rule if there is none, or it is not in UTF-8."""
    refuse_if(not pathlib.Path(path).is_file(), "path", rule, f"{path}, which is no file")
    try:
        return pathlib.Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal("path", rule, f"{path}, which is none") from error


def table_lines(
    text: str, path: Any, needed: Sequence[str], names: Sequence[str], rule: str
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """All columns of a table, and of each line that is not empty the number and some cells.

    Args:
        text: content of the file.
        path: its path, for errors.
        needed: columns that it must have.
        names: columns whose cells are wanted, empty where there is none.
        rule: rule of the error.
    """
    try:
        lines, columns = _lines(text, needed)
        return columns, [(lines.line_num, _cells(columns, cells, names)) for cells in lines if any(cells)]
    except (csv.Error, StopIteration) as error:
        raise refusal("path", rule, f"{path}, which is none") from error


def _lines(text: str, needed: Sequence[str]) -> tuple[Any, list[str]]:
    """The reader of the lines behind the first, and the columns that the first names; StopIteration if none does."""
    readers = (csv.reader(io.StringIO(text, newline=""), delimiter=separator) for separator in SEPARATORS)
    headed = ((lines, [name.strip() for name in next(lines, [])]) for lines in readers)
    return next((lines, columns) for lines, columns in headed if all(columns.count(name) == 1 for name in needed))


def _cells(columns: list[str], cells: list[str], names: Sequence[str]) -> list[str]:
    """The cells of some columns of a line, empty where the line is too short; csv.Error for cells without a column."""
    if any(cells[len(columns) :]):
        raise csv.Error("a line has more cells than the first")
    line = dict(zip(columns, cells, strict=False))
    return [line.get(name, "").strip() for name in names]


def apply_corrections(
    labels: Any, path: str | os.PathLike, class_names: Sequence | Mapping | None = None
) -> np.ndarray | dict:
    """Labels with the corrections that a person has written into `labels.csv`, the table that `report` writes.

    The table has a line for each label, the worst first. A class in its column `corrected` is the right one; an empty
    cell leaves the label as it is. A spreadsheet may sort the lines, leave some out, or write ; or tabs for commas.

    Args:
        labels: integers in [0, K), or names, shape `(N,)`: the labels that the report was of, or those with the
            corrections. Or what `choose` or `clean_labels` returned, whose report it is; of several annotators always.
        path: the folder of the report, or the table itself.
        class_names: names of the K classes, as `report` was given them, a sequence or a dict {class: name}; None for
            the names that the labels are, or numbers, up to the largest of the labels.
    Returns:
        the labels, shape `(N,)`; the argument does not change. For a result, the corrections alone, `{index: label}`,
        as `verified_labels` takes them.
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
    path = pathlib.Path(path)
    path = path / "labels.csv" if path.is_dir() else path
    task = getattr(labels, "data", None)
    if hasattr(task, "own_classes"):
        return _verified(task, path)
    given = np.asarray(as_numpy(getattr(labels, "votes", labels)))
    of_several = given.ndim == 2 and given.shape[1] > 1 and (given.dtype.kind in "OSU" or np.any(given.sum(1) != 1))
    rule = "be one label for each example; for several annotators, the result of `choose` or `clean_labels` itself"
    refuse_if(of_several, "labels", rule, shape=given)
    if given.dtype.kind in "OSU":
        found = encode(labels, name="labels")
        names, places = named(found.classes, class_names, "labels", more=True)
        return np.asarray(names)[_corrected_labels(places[found.labels], path, names)]
    labels = check_labels(labels, np.inf)
    class_names = class_names if class_names is None or hasattr(class_names, "__len__") else list(class_names)
    names = check_class_names(class_names, labels.max(initial=0) + 1 if class_names is None else len(class_names))
    return _corrected_labels(labels, path, names)


def _corrected_labels(labels: np.ndarray, path: pathlib.Path, names: list) -> np.ndarray:
    """Labels with the corrections of a table."""
    corrected = check_labels(labels, len(names)).copy()
    for index, label in read_corrections(path, labels, names).items():
        corrected[index] = label
    return corrected


def _verified(task: Any, path: pathlib.Path) -> dict:
    """The corrections of a table of the labels of a `Task`, by the indices and the classes that the user gave."""
    index = np.arange(len(task.y)) if task.index is None else task.index
    keys, classes = index.tolist(), (task.classes if task.own_classes is None else task.own_classes).tolist()
    corrections = read_corrections(path, task.y, task.classes.tolist())
    return {keys[row]: classes[label] for row, label in corrections.items()}


def read_corrections(path: str | os.PathLike, labels: np.ndarray, class_names: list) -> dict[int, int]:
    """The corrections of a table, `{index: class}`.

    With a correction, the whole table must be of these labels: each must be as given or as corrected. Where a table has
    a correction as the given label, it was made with corrected labels, and any label is right.

    Args:
        path: path of the table.
        labels: labels of all N examples, `(N,)`.
        class_names: K names.
    Raises:
        ValueError: as `apply_corrections`.
    """
    rows = read_table(path).rows
    if not any(row.corrected for row in rows):
        return {}
    classes = classes_of_cells(class_names)
    seen: set[int] = set()
    corrections = {}
    for row in rows:
        try:
            index = _index(row.index, len(labels), seen)
            corrected = class_of_cell(row.corrected, classes, "corrected") if row.corrected else None
            _check_given(row.given, corrected, labels[index], classes)
        except ValueError as error:
            raise ValueError(f"{error} in line {row.line} of {path}") from error
        seen.add(index)
        if corrected is not None:
            corrections[index] = corrected
    return corrections


def classes_of_cells(class_names: list) -> dict[str, set[int]]:
    """The classes that each cell may stand for: one, unless two names are alike."""
    classes: dict[str, set[int]] = {}
    for label, name in enumerate(class_names):
        for cell in cells_of(name):
            classes.setdefault(cell, set()).add(label)
    return classes


def _index(cell: str, count: int, seen: set[int]) -> int:
    """The number of the example."""
    if not (cell.isascii() and cell.isdigit() and len(cell) < 20 and int(cell) < count):
        raise refusal("path", f"have an index in [0, {count}) in each line", f"{cell!r}")
    refuse_if(int(cell) in seen, "path", "have each index once", f"{cell!r} again")
    return int(cell)


def class_of_cell(cell: str, classes: dict[str, set[int]], column: str) -> int:
    """The class that a cell names; a ValueError, which names the column, for none or several."""
    found = classes.get(cell, set())
    if len(found) != 1:
        known = ", ".join(map(repr, [*classes][:MOST_NAMES])) + (", ..." if len(classes) > MOST_NAMES else "")
        raise refusal("path", f"have the name of one class as `{column}`, of {known}", f"{cell!r}")
    return next(iter(found))


def _check_given(cell: str, corrected: int | None, label: int, classes: dict[str, set[int]]) -> None:
    """Raises a ValueError if a label is neither as given nor as corrected; any is right if both are the same class."""
    given = classes.get(cell, set())
    if corrected not in given and label not in given | {corrected}:
        raise refusal("path", f"be a table of these labels, of which this is class {label}", f"{cell!r}")
