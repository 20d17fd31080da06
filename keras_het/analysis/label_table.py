"""The table of all labels as a file for a spreadsheet."""

import csv
import numbers
import os
import re
from typing import Any

from keras_het.analysis.label_quality import LabelIssues

COLUMNS = ("index", "given", "suggested", "score", "is_issue", "kind")
# The start of a cell, for any usual separator, before a character that begins a formula: a spreadsheet would compute
# such a name.
FORMULA = re.compile(r"(^|[;,|\t\r\n])(\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])|^(?=[\t\r\n])")


def write_labels(path: str | os.PathLike, issues: LabelIssues, class_names: list) -> None:
    """Writes a line for each label, the worst first.

    Numbers are written as they are, and classes by name. No name can run as a formula.
    """
    names = [safe_cell(name) for name in class_names]
    with open(path, "w", newline="", encoding="utf-8", errors="replace") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for index, given, suggested, score, is_issue, kind in issues.rows():
            writer.writerow([index, names[given], names[suggested], f"{score:.6g}", int(is_issue), kind])


def safe_cell(name: Any) -> Any:
    """A name that a spreadsheet does not compute: a number, or a text with ' before signs that begin a formula."""
    if isinstance(name, numbers.Number):
        return name
    return FORMULA.sub(lambda found: f"{found[1] or ''}{found[2] or ''}'", str(name))
