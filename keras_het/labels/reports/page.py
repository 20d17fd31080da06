"""Files of a report: a self-contained page, and the table of all labels."""

import base64
import hashlib
import itertools
import math
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import keras

from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import number_of
from keras_het.base.version import __version__
from keras_het.labels.corrections import COLUMNS, EXAMPLE_PREFIX, read_corrections, read_table, table_of
from keras_het.labels.issues import LabelIssues
from keras_het.labels.reports.examples import Column, are_images, check_number, columns_of, thumbnails
from keras_het.labels.reports.figures import reliability_diagram
from keras_het.labels.reports.findings import Findings, collect, next_steps, summary

MAX_PAGE_ROWS, MAX_PAGE_FLIPS, MAX_PAGE_COLUMNS = 200, 20, 8
MAX_TABLE_COLUMNS = 40
PAGE, TABLE = "report.html", "labels.csv"
PAGE_MARK = '<meta name="generator" content="keras_het'


class Row(NamedTuple):
    """Row of the table of issues, with cells of (column, text, sort key), and a data URL as thumbnail."""

    row: int
    label: Any
    suggested: Any
    score: float
    kind: str
    thumbnail: str | None
    cells: list[tuple[Column, str | None, str]]


def report(
    model: keras.Model | None,
    x: Any,
    y: Any,
    class_names: Sequence | Mapping | None = None,
    path: str | os.PathLike = "report",
    *,
    probabilities: Any = None,
    issues: LabelIssues | None = None,
    images: Any = None,
    texts: Any = None,
    frame: Any = None,
    batch_size: int = 128,
    title: str = "Labels and probabilities",
) -> pathlib.Path:
    """Writes a page about label errors, the kind of label noise, and calibration.

    The page, `report.html`, is self-contained. The table, `labels.csv`, has a line for each label. Both show texts and
    columns of the examples as plain text. Write the correct class of a label into the column `corrected` of the table.
    `apply_corrections` applies your corrections, and the next report into the folder keeps them. There is no table if
    all labels are of one class.

    If the model was trained on these examples, it has memorised some label errors. Then pass out-of-sample
    `probabilities`, from cross-validation.

    Args:
        model: model of exclusive classes, with one output `(N, K)`; None to use `probabilities` only.
        x: inputs of the model, arrays of N examples; can be None if `model` is None.
        y: labels, integers in [0, K), `(N,)`.
        class_names: names of the K classes, a sequence or a dict {class: name}; None for numbers.
        path: folder for the files, which replace an earlier report.
        probabilities: out-of-sample probabilities, `(N, K)`, each row of sum 1; None uses the model's predictions.
        issues: `LabelIssues` of these labels; None computes them from the probabilities.
        images: pictures of the examples, `(N, H, W)` or `(N, H, W, C)` with 1, 3 or 4 channels; None shows an x of
            shape `(N, H, W, C)`.
        texts: N texts, each str, bytes or None; None shows x if it holds texts.
        frame: pandas frame of N rows with the index of y. The page shows the first 8 columns, the table the first 40,
            with the index unless it is 0, 1, 2, ... None shows x if it is a frame.
        batch_size: size of the batches of the predictions.
        title: title of the page, as plain text.
    Returns:
        path of the page.
    Raises:
        ImportError: without Matplotlib, Jinja or Pillow (for images).
        ValueError: for no example, labels out of range, predictions that are nan or not of exclusive classes, arguments
            of other shapes, types or indices, a file of these names that no report wrote, or corrections of other
            labels.

    Example:
        >>> import numpy as np, tempfile
        >>> p, texts = np.array([[0.9, 0.1], [0.2, 0.8]]), ["it purrs", "it barks"]
        >>> page = report(None, None, [0, 1], ["cat", "dog"], tempfile.mkdtemp(), probabilities=p, texts=texts)
        >>> page.name, "cat" in page.read_text(), "purrs" in page.read_text()
        ('report.html', True, True)
    """
    import_extra("jinja2", "The report")
    folder = pathlib.Path(path)
    check_folder(folder)
    findings = collect(model, x, y, class_names, probabilities=probabilities, issues=issues, batch_size=batch_size)
    images = x if images is None and are_images(x) else images
    if images is not None:
        check_number("images", images, len(findings.labels))
    columns = columns_of(x, y, texts, frame)[:MAX_TABLE_COLUMNS]
    table = _table(findings, folder / TABLE, columns)
    replace_files(folder, table | {PAGE: render(findings, images, columns, title).encode("utf-8", "replace")})
    return folder / PAGE


def check_folder(folder: pathlib.Path) -> None:
    """Raises a ValueError if the folder has a file with the name of a report's file that no report wrote."""
    page, table = folder / PAGE, folder / TABLE
    refuse_if(folder.exists() and not folder.is_dir(), "path", "be a folder", f"{folder}, which is a file")
    if page.exists() and not (page.is_file() and PAGE_MARK in page.read_text("utf-8", "replace")):
        raise _foreign_file(page)
    if table.exists() and not _is_table(table):
        raise _foreign_file(table)


def _foreign_file(path: pathlib.Path) -> ValueError:
    rule = f"be a folder without {path.name}, or with {path.name} of an earlier report"
    return refusal("path", rule, f"{path}, which no report wrote in this form")


def _is_table(path: pathlib.Path) -> bool:
    """Returns whether the file is a table of a report, with no column added or removed."""
    try:
        names = [name for name in read_table(path).columns if not name.startswith(EXAMPLE_PREFIX)]
        return sorted(names) == sorted(COLUMNS)
    except ValueError:
        return False


def replace_files(folder: pathlib.Path, contents: Mapping[str, bytes]) -> None:
    """Writes files, `{name: content}`, into a folder; an error leaves the old files unchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".report-") as new:
        for name, content in contents.items():
            pathlib.Path(new, name).write_bytes(content)
        for name in contents:
            os.replace(pathlib.Path(new, name), folder / name)


def _table(findings: Findings, old: pathlib.Path, columns: Sequence[Column]) -> dict[str, bytes]:
    """Returns the table of all labels, `{name: content}`, with the old corrections; empty for labels of one class."""
    corrections = read_corrections(old, findings.labels, findings.class_names) if old.exists() else {}
    if findings.issues is None:
        return {}
    examples = [(column.title, column.table_value) for column in columns]
    return {old.name: table_of(findings.issues, findings.class_names, corrections, examples)}


def render(findings: Findings, images: Any = None, columns: Sequence[Column] = (), title: str = "") -> str:
    """Returns the HTML of the page. Names and texts in it are escaped."""
    jinja = import_extra("jinja2", "The report")
    trusted = import_extra("markupsafe", "The report").Markup  # only for files of this package
    environment = jinja.Environment(
        autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    files = resources.files("keras_het.labels.reports")
    style, script, template = ((files / name).read_text("utf-8") for name in ("style.css", "sort.js", "template.html"))
    return environment.from_string(template).render(
        findings=findings,
        title=title,
        summary=summary(findings),
        steps=next_steps(findings),
        picture=reliability_diagram(findings.calibration),
        rows=flagged_rows(findings, images, columns[:MAX_PAGE_COLUMNS]),
        has_images=images is not None,
        columns=columns[:MAX_PAGE_COLUMNS],
        flips=findings.flips[:MAX_PAGE_FLIPS],
        uniform_nll=math.log(len(findings.class_names)),
        style=trusted(style),
        script=trusted(script),
        script_hash=base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode(),
        version=__version__,
        number_of=number_of,
    )


def flagged_rows(findings: Findings, images: Any = None, columns: Sequence[Column] = ()) -> list[Row]:
    """Returns rows of the issues, or of the least probable labels if there is no issue."""
    if findings.issues is None:
        return []
    suspects = (values for values in findings.issues.rows() if values[4] or not findings.flagged)
    shown = list(itertools.islice(suspects, MAX_PAGE_ROWS))
    urls = [None] * len(shown) if images is None else thumbnails(images, [values[0] for values in shown])
    return [_row(values, findings.class_names, columns, url) for values, url in zip(shown, urls, strict=True)]


def _row(values: tuple[Any, ...], names: list, columns: Sequence[Column], url: str | None) -> Row:
    row, label, suggested, score, _, kind = values
    cells = [(column, column.page_text(row), column.sort_key(row) if column.is_numeric else "") for column in columns]
    return Row(row, names[label], names[suggested], score, kind, url, cells)
