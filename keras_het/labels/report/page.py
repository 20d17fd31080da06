"""The report as files: a page that needs nothing else, and the table of all labels."""

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
from keras_het.base.refusal import refusal
from keras_het.base.version import __version__
from keras_het.labels.corrections import COLUMNS, EXAMPLE_PREFIX, read_corrections, read_table, table_of
from keras_het.labels.issues import LabelIssues
from keras_het.labels.report.examples import Column, are_images, check_number, columns_of, thumbnails
from keras_het.labels.report.figures import pictures
from keras_het.labels.report.findings import Findings, collect, next_steps, summary

MAX_ROWS, MAX_FLIPS = 200, 20  # of the tables in the page
MAX_COLUMNS, MAX_SHOWN = 40, 8  # columns of the examples in labels.csv, and in the page
PAGE, TABLE = "report.html", "labels.csv"
MARK = '<meta name="generator" content="keras_het'  # in the head of every page


class Row(NamedTuple):
    """A row of the table of flagged labels; `cells` are (column, text, order), `thumbnail` an address or None."""

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

    The page, `report.html`, is one file that needs nothing from elsewhere. Beside it is `labels.csv`, with a line for
    each label. Both show texts and columns of the examples as plain text. Write the correct class of a label into the
    column `corrected` of the table: `apply_corrections` applies it, and the next report into the folder keeps it. The
    table is not written if all labels are of one class.

    A model that was trained on these examples has memorised some label errors. Pass `probabilities` of models that were
    not trained on them, by cross-validation.

    Args:
        model: model of exclusive classes, with one output `(N, K)`, with or without a head of this package; None to use
            `probabilities` alone.
        x: inputs of the model, arrays of N examples; None is possible if `model` is None.
        y: labels, integers in [0, K), `(N,)`.
        class_names: names of the K classes, a sequence or a dict {class: name}; None for numbers.
        path: folder for the files; it is made, and files of earlier reports in it are replaced.
        probabilities: out of sample, `(N, K)`, each row of sum 1; None for the predictions of the model.
        issues: issues of the same labels; None finds them by the probabilities.
        images: pictures of the examples, `(N, H, W)` or `(N, H, W, C)` with 1, 3 or 4 channels; None shows x if it has
            the last form.
        texts: N texts, each str, bytes or None; None shows x if it is texts.
        frame: pandas frame of N rows, of which the page shows the first 8 columns and the table the first 40, with the
            index unless it is 0, 1, 2, ...; None shows x if it is a frame. It must have the index of y.
        batch_size: size of the batches of the predictions.
        title: title of the page, as plain text.
    Returns:
        the path of the page.
    Raises:
        ImportError: without Matplotlib, Jinja or Pillow (for images).
        ValueError: for no example, labels out of range, predictions that are nan or not of exclusive classes, arguments
            of other shapes, kinds or indices, a file of these names that no report wrote, or corrections of other
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
    columns = columns_of(x, y, texts, frame)[:MAX_COLUMNS]
    table = _table(findings, folder / TABLE, columns)
    replace_files(folder, table | {PAGE: render(findings, images, columns, title).encode("utf-8", "replace")})
    return folder / PAGE


def check_folder(folder: pathlib.Path) -> None:
    """Raises a ValueError if the folder has a file of a report's names that must not be replaced."""
    if folder.exists() and not folder.is_dir():
        raise refusal("path", "be a folder", f"{folder}, which is a file")
    for name, is_ours in {PAGE: _is_page, TABLE: _is_table}.items():
        path = folder / name
        if path.exists() and not is_ours(path):
            rule = f"be a folder where {name} is of an earlier report, or is not there"
            raise refusal("path", rule, f"{path}, which no report wrote as it is")


def _is_page(path: pathlib.Path) -> bool:
    return path.is_file() and MARK in path.read_text(encoding="utf-8", errors="replace")


def _is_table(path: pathlib.Path) -> bool:
    """Returns whether the file is a table of a report, without columns that a person has added or removed."""
    try:
        names = [name for name in read_table(path).columns if not name.startswith(EXAMPLE_PREFIX)]
        return sorted(names) == sorted(COLUMNS)
    except ValueError:
        return False


def replace_files(folder: pathlib.Path, contents: Mapping[str, bytes]) -> None:
    """Writes files beside the old ones, and replaces these at the end, so that an error leaves the old files whole.

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


def _table(findings: Findings, old: pathlib.Path, columns: Sequence[Column]) -> dict[str, bytes]:
    """Returns the table of all labels as a file, with the corrections of the old one; none for labels of one class."""
    corrections = read_corrections(old, findings.labels, findings.class_names) if old.exists() else {}
    if findings.issues is None:
        return {}
    examples = [(column.title, column.written) for column in columns]
    return {old.name: table_of(findings.issues, findings.class_names, corrections, examples)}


def render(findings: Findings, images: Any = None, columns: Sequence[Column] = (), title: str = "") -> str:
    """Returns the page as text. Names and texts are shown as plain text, whatever they hold."""
    jinja = import_extra("jinja2", "The report")
    trusted = import_extra("markupsafe", "The report").Markup  # for this package's own files only
    environment = jinja.Environment(
        autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    files = resources.files("keras_het.labels.report")
    style, script, template = ((files / name).read_text("utf-8") for name in ("style.css", "sort.js", "template.html"))
    return environment.from_string(template).render(
        findings=findings,
        title=title,
        summary=summary(findings),
        steps=next_steps(findings),
        pictures=pictures(findings),
        rows=flagged_rows(findings, images, columns[:MAX_SHOWN]),
        has_images=images is not None,
        columns=columns[:MAX_SHOWN],
        flips=findings.flips[:MAX_FLIPS],
        uniform_nll=math.log(len(findings.class_names)),
        style=trusted(style),
        script=trusted(script),
        allowed=base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode(),
        version=__version__,
    )


def flagged_rows(findings: Findings, images: Any = None, columns: Sequence[Column] = ()) -> list[Row]:
    """Returns the flagged labels, the worst first, or the least probable labels if none is flagged."""
    if findings.issues is None:
        return []
    likely = (row for row in findings.issues.rows() if row[4] or not findings.flagged)
    judged = list(itertools.islice(likely, MAX_ROWS))
    pictures_of = [None] * len(judged) if images is None else thumbnails(images, [row[0] for row in judged])
    return [_row(row, findings.class_names, columns, picture) for row, picture in zip(judged, pictures_of, strict=True)]


def _row(judged: tuple[Any, ...], names: list, columns: Sequence[Column], picture: str | None) -> Row:
    row, label, suggested, score, _, kind = judged
    cells = [(column, column.shown(row), column.order(row) if column.is_numeric else "") for column in columns]
    return Row(row, names[label], names[suggested], score, kind, picture, cells)
