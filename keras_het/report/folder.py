"""The folder of a report: files that a report wrote may be replaced, and no others."""

import os
import pathlib
import tempfile
from collections.abc import Mapping

from keras_het.analysis.corrections import COLUMNS, read_table

PAGE, TABLE = "report.html", "labels.csv"
MARK = '<meta name="generator" content="keras_het'  # in the head of every page


def check_folder(folder: pathlib.Path) -> None:
    """Raises a ValueError if the folder has a file of a report's names that may not be replaced."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`path` must be a folder. Received: {folder}, which is a file")
    for name, is_ours in {PAGE: _is_page, TABLE: _is_table}.items():
        path = folder / name
        if path.exists() and not is_ours(path):
            rule = f"be a folder where {name} is of an earlier report, or is not there"
            raise ValueError(f"`path` must {rule}. Received: {path}, which no report wrote as it is")


def _is_page(path: pathlib.Path) -> bool:
    return path.is_file() and MARK in path.read_text(encoding="utf-8", errors="replace")


def _is_table(path: pathlib.Path) -> bool:
    """Whether the file is a table of a report, without columns that a person has added or taken away."""
    try:
        return sorted(read_table(path).columns) == sorted(COLUMNS)
    except ValueError:
        return False


def replace_files(folder: pathlib.Path, contents: Mapping[str, bytes]) -> None:
    """Writes files beside the old ones, and replaces these at the end, so that an error leaves the old ones whole.

    Args:
        folder: it is made if it is not there.
        contents: `{name: content}`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".report-") as new:
        for name, content in contents.items():
            pathlib.Path(new, name).write_bytes(content)
        for name in contents:
            os.replace(pathlib.Path(new, name), folder / name)
