"""The report as files, a page that needs nothing else and the table of all labels, and the folder that they go to."""

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
from keras_het.explain.plots.drawing import EITHER, TOGETHER
from keras_het.labels.corrections import COLUMNS, EXAMPLE_PREFIX, read_corrections, read_table, table_of
from keras_het.labels.issues import LabelIssues
from keras_het.report.advice import NO_PAIR, next_steps, summary
from keras_het.report.examples import MOST_COLUMNS, MOST_SHOWN, Cell, Column, check_number, columns_of
from keras_het.report.figures import is_images, margin_curves, pictures, thumbnails
from keras_het.report.findings import Findings, collect

MOST_SUSPECTS, MOST_PAIRS = 200, 20
PAGE, TABLE = "report.html", "labels.csv"
MARK = '<meta name="generator" content="keras_het'  # in the head of every page


def check_folder(folder: pathlib.Path) -> None:
    """Raises a ValueError if the folder has a file of a report's names that may not be replaced."""
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
    """Whether the file is a table of a report, without columns that a person has added or taken away."""
    try:
        return sorted(name for name in read_table(path).columns if not name.startswith(EXAMPLE_PREFIX)) == sorted(
            COLUMNS
        )
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


class Suspect(NamedTuple):
    """A line of the table of suspects; `thumbnail` and `curve`, of its margins by epoch, are addresses or None.

    `cells` are its texts and columns.
    """

    index: int  # type: ignore[assignment]  # hides `tuple.index`
    given: Any
    suggested: Any
    score: float
    is_issue: bool
    kind: str
    thumbnail: str | None
    curve: str | None
    cells: list[tuple[Column, Cell]]


def report(
    model: keras.Model,
    x: Any,
    y: Any,
    class_names: Sequence | Mapping | None = None,
    path: str | os.PathLike = "report",
    *,
    probabilities: Any = None,
    dynamics: Any = None,
    issues: LabelIssues | None = None,
    images: Any = None,
    texts: Any = None,
    frame: Any = None,
    batch_size: int = 128,
    title: str | None = None,
) -> pathlib.Path:
    """Writes a page about probably wrong labels, confused classes, and how far the confidence can be trusted.

    The page, `report.html`, is one file that needs nothing from elsewhere; beside it is `labels.csv`, with a line for
    each label. Both have the texts and columns of the examples, as plain text. Write the right class of a wrong label
    into the column `corrected` of the table: `labels.apply_corrections` applies these corrections to labels, and the
    next report into the folder keeps them. No table is written where labels cannot be judged.

    A model that was trained on these examples knows their labels, wrong ones too, and looks better than it is. So give
    `probabilities` of models that were not trained on them, or other examples; or `dynamics` of that training, whose
    mean margins judge the labels better, and which show how each suspect was learned. The page leaves out sections that
    the model or the data do not allow, and says why.

    Args:
        model: model of exclusive classes, with one output `(N, K)`; with or without a head of this package.
        x: inputs of the model, arrays of N examples.
        y: their labels, integers in [0, K), `(N,)`; they may be wrong.
        class_names: names of the K classes, a sequence or a dict {class: name}; None for numbers.
        path: the folder for the files; it is made, and files of earlier reports in it are replaced.
        probabilities: out of sample, `(N, K)`, each row of sum 1; None takes the model's predictions.
        dynamics: a `callbacks.TrainingDynamics` that has seen the training of these examples: it judges the labels,
            also beside probabilities, and the page has a curve of the margin by epoch for each suspect. None for none.
        issues: a `LabelIssues`, of `labels.find_issues` or `labels.clean(...).issues`, whose suspects the page
            shall have, also beside dynamics; None finds them.
        images: pictures of the examples, to show the suspects, `(N, H, W)` or `(N, H, W, C)` with 1, 3 or 4 channels;
            None takes x if it has that last form.
        texts: texts of the examples, N of them, for the same, each str, bytes or None; None takes x if it is texts.
        frame: pandas frame of N rows, for the same: the first 40 of its columns, with its index if that is not 0, 1, 2,
            ...; None takes x if it is a frame. It and a Series of texts must have the index of y.
        batch_size: size of the batches of the predictions.
        title: title of the page, as plain text; None names the model.
    Returns:
        the path of the page.
    Raises:
        ImportError: without Matplotlib or Jinja.
        ValueError: for no example, labels out of range, predictions that are nan or not of exclusive classes, logits
            that nothing marks as such, arguments of other shapes, kinds or indices, a file of these names that no
            report wrote, or corrections of other labels.

    Example:
        >>> import numpy as np, tempfile
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((2,)), HeteroscedasticDense(2, num_factors=1)])
        >>> page = report(model, np.eye(2), [0, 1], ["cat", "dog"], tempfile.mkdtemp(), texts=["it purrs", "it barks"])
        >>> page.name, "cat" in page.read_text(), "purrs" in page.read_text()
        ('report.html', True, True)
    """
    given = {"probabilities": probabilities, "dynamics": dynamics, "issues": issues}
    shown = {"images": images, "texts": texts, "frame": frame, "title": title}
    return written(None, model, x, y, class_names, path, **shown, **given, batch_size=batch_size)


def written(
    annotators: list[list[str]] | None,
    model: keras.Model,
    x: Any,
    y: Any,
    class_names: Any,
    path: str | os.PathLike,
    *,
    images: Any = None,
    texts: Any = None,
    frame: Any = None,
    title: str | None = None,
    **given: Any,
) -> pathlib.Path:
    """The report, with a section on annotators, as `Findings` has them, or None; the others are its arguments."""
    import_extra("jinja2", "The report")
    folder = pathlib.Path(path)
    check_folder(folder)
    found = collect(model, x, y, class_names, **given)._replace(annotators=annotators)
    images = x if images is None and is_images(x) else images
    if images is not None:
        check_number("images", images, len(found.labels))
    columns = columns_of(x, y, texts, frame)
    table = _table(found, folder / TABLE, columns)
    replace_files(folder, table | {PAGE: render(found, images, columns, title).encode("utf-8", "replace")})
    return folder / PAGE


def _table(found: Findings, old: pathlib.Path, columns: Sequence[Column]) -> dict[str, bytes]:
    """The table of all labels as a file, with the corrections of the old one; none if labels cannot be judged."""
    corrections = read_corrections(old, found.labels, found.class_names) if old.exists() else {}
    examples = [(column.title, column.written) for column in columns[:MOST_COLUMNS]]
    return {} if found.issues is None else {old.name: table_of(found.issues, found.class_names, corrections, examples)}


def render(found: Findings, images: Any = None, columns: Sequence[Column] = (), title: str | None = None) -> str:
    """The page as text. Names and texts are shown as plain text, whatever they hold."""
    jinja = import_extra("jinja2", "The report")
    trusted = import_extra("markupsafe", "The report").Markup  # for this package's own files only
    environment = jinja.Environment(
        autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    files = resources.files("keras_het.report")
    style, script, template = ((files / name).read_text("utf-8") for name in ("style.css", "sort.js", "template.html"))
    rows = suspects(found, images, columns[:MOST_COLUMNS])
    return environment.from_string(template).render(
        found=found,
        title=title,
        summary=summary(found),
        steps=next_steps(found),
        pictures=pictures(found),
        suspects=rows,
        images=images is not None,
        columns=columns[:MOST_COLUMNS],
        columns_in_all=len(columns),
        most_shown=MOST_SHOWN,
        curves=found.margins is not None,
        pairs=(found.pairs or [])[:MOST_PAIRS],
        flips=found.flips[:MOST_PAIRS],
        no_pair=NO_PAIR,
        guess=math.log(len(found.class_names)),
        meaning={True: TOGETHER, False: EITHER},
        style=trusted(style),
        script=trusted(script),
        allowed=base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode(),
        version=__version__,
    )


def suspects(found: Findings, images: Any = None, columns: Sequence[Column] = ()) -> list[Suspect]:
    """The first labels of the table: the labels that are probably wrong, or, if there are none, the least probable."""
    if found.issues is None:
        return []
    likely = (row for row in found.issues.rows() if row[4] or not found.number_of_issues)
    rows = list(itertools.islice(likely, MOST_SUSPECTS))
    indices = [row[0] for row in rows]
    shown = [None] * len(rows) if images is None else thumbnails(images, indices)
    curves = [None] * len(rows) if found.margins is None else margin_curves(found.margins[:, indices])
    cells = [[(column, column.cell(index)) for column in columns] for index in indices]
    names = found.class_names
    return [
        Suspect(index, names[given], names[suggested], score, bool(is_issue), kind, thumbnail, curve, values)
        for (index, given, suggested, score, is_issue, kind), thumbnail, curve, values in zip(
            rows, shown, curves, cells, strict=True
        )
    ]
