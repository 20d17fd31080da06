"""The table of all labels as a file for a spreadsheet: a person writes the right class into its column `corrected`."""

import csv
import io
import numbers
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_het.analysis.label_quality import LabelIssues

COLUMNS = ("index", "given", "suggested", "score", "is_issue", "kind", "corrected")
READ = ("index", "given", "corrected")
SEPARATORS = ",;\t"  # spreadsheets write another where a comma is the decimal point
# The start of a cell, for any usual separator, before a character that begins a formula: a spreadsheet would compute
# such a name.
FORMULA = re.compile(r"(^|[;,|\t\r\n])(\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=[\t\r\n])")


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


def table_of(issues: LabelIssues, class_names: list, corrections: Mapping[int, int]) -> bytes:
    """The content of the file: a line for each label, the worst first.

    Numbers are written as they are, and classes by name. No name can run as a formula.

    Args:
        issues: all labels.
        class_names: K names.
        corrections: `{index: class}`; the column is empty for all others.
    """
    names, file = [safe_cell(name) for name in class_names], io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for index, given, suggested, score, is_issue, kind in issues.rows():
        corrected = names[corrections[index]] if index in corrections else ""
        writer.writerow([index, names[given], names[suggested], f"{score:.6g}", int(is_issue), kind, corrected])
    return file.getvalue().encode("utf-8-sig", "replace")  # with the mark by which spreadsheets know UTF-8


def safe_cell(name: Any) -> Any:
    """A name that a spreadsheet does not compute: a number, or a text with ' before signs that begin a formula."""
    if isinstance(name, numbers.Number):
        return name
    return FORMULA.sub(lambda found: f"{found[1] or ''}{found[2] or ''}'", str(name))


def cells_of(name: Any) -> set[str]:
    """The cells that stand for a name: as it is, and as the table has it, without spaces around."""
    return {str(cell).encode("utf-8", "replace").decode().strip() for cell in (name, safe_cell(name))}


def read_table(path: str | os.PathLike) -> Table:
    """Reads a table as `table_of` makes it, or as a spreadsheet has saved it: by ; or tab, with quotes, or none.

    Raises:
        ValueError: for another file.
    """
    rule = f"be a table of labels in UTF-8, with the columns {', '.join(COLUMNS)}"
    if not pathlib.Path(path).is_file():
        raise ValueError(f"`path` must {rule}. Received: {path}, which is no file")
    try:
        text = pathlib.Path(path).read_bytes().decode("utf-8-sig")
        lines, columns = _lines(text)
        rows = [Row(lines.line_num, *_cells(columns, cells)) for cells in lines if any(cells)]
    except (UnicodeDecodeError, csv.Error, StopIteration) as error:
        raise ValueError(f"`path` must {rule}. Received: {path}, which is none") from error
    return Table(columns, rows)


def _lines(text: str) -> tuple[Any, list[str]]:
    """The reader of the lines behind the first, and the columns that the first names; StopIteration if none does."""
    readers = (csv.reader(io.StringIO(text, newline=""), delimiter=separator) for separator in SEPARATORS)
    headed = ((lines, [name.strip() for name in next(lines, [])]) for lines in readers)
    return next((lines, columns) for lines, columns in headed if all(columns.count(name) == 1 for name in READ))


def _cells(columns: list[str], cells: list[str]) -> list[str]:
    """The cells of `READ` of a line, empty where the line is too short; csv.Error for cells without a column."""
    if any(cells[len(columns) :]):
        raise csv.Error("a line has more cells than the first")
    line = dict(zip(columns, cells, strict=False))
    return [line.get(name, "").strip() for name in READ]
