"""Files of a report: a page with the labels to review, and the table of all labels."""

import base64
import dataclasses
import io
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
import pandas

from keras_het.base.batches import check_same_index
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names
from keras_het.labels.issues.corrections import TABLE, as_cell, read_corrections, safe_cell
from keras_het.labels.issues.ranking import LabelIssues
from keras_het.labels.training.stored import write_whole

PAGE, PREFIX = "report.html", "x: "  # of the columns of examples in the table
MAX_PAGE_ROWS, MAX_PAGE_COLUMNS, MAX_PAIRS = 200, 8, 10
THUMBNAIL_PIXELS = 56
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent), autoescape=True, trim_blocks=True
)


def report(
    issues: LabelIssues,
    path: str | os.PathLike = "report",
    *,
    class_names: Sequence | Mapping | None = None,
    examples: Any = None,
    images: Any = None,
    title: str = "Labels to review",
) -> pathlib.Path:
    """Writes a page with the labels that a model disagrees with, and a table for your corrections.

    The page, `report.html`, is self-contained. The table, `labels.csv`, has a line for each label. Write the correct
    class of a label into its column `corrected`. `apply_corrections` applies your corrections, and the next report into
    the folder keeps them.

    Args:
        issues: result of `find_issues`, or `result.issues` of `clean` and `choose`.
        path: folder for the files, which replace an earlier report.
        class_names: names of the K classes, a sequence or a dict {class: name}; None for `issues.class_names`.
        examples: texts or other values of the N examples: a list, a Series, or a frame, which has the index of the
            labels. The page shows the first 8 columns, the table all of them, with an index that is not 0, 1, 2, ...
        images: pictures of the examples, `(N, H, W)` or `(N, H, W, C)` with 1, 3 or 4 channels.
        title: title of the page.
    Returns:
        path of the page.
    Raises:
        ImportError: without Pillow, for images.

    Example:
        >>> import tempfile
        >>> from keras_het.labels import find_issues
        >>> issues = find_issues([[0.9, 0.1], [0.2, 0.8]], [0, 1])
        >>> page = report(issues, tempfile.mkdtemp(), class_names=["cat", "dog"], examples=["it purrs", "it barks"])
        >>> page.name, "cat" in page.read_text(), "purrs" in page.read_text()
        ('report.html', True, True)
    """
    if not isinstance(issues, LabelIssues):
        raise refusal("issues", "be the result of `find_issues`, or `result.issues`", kind=issues)
    folder, names = pathlib.Path(path), issues.class_names if class_names is None else class_names
    refuse_if(folder.is_file(), "path", "be a folder", f"{folder}, which is a file")
    size = int(max(issues.label.max(), issues.suggested.max())) + 1
    names = [*map(as_cell, check_class_names(names, size if names is None else max(size, len(names))))]
    for name, values in (("examples", examples), ("images", images)):
        size = len(issues.index) if values is None else len(values)
        rule = f"have a value for each of the {len(issues.index)} examples"
        refuse_if(size != len(issues.index), name, rule, size)
    table, columns = _label_columns(issues, folder / TABLE, names), _example_columns(examples, issues)
    template = TEMPLATES.get_template("page.html")
    page = template.render(_content(issues, names, table, columns, images), title=as_cell(title))
    cells = pandas.concat([table, columns], axis=1).rename(columns=safe_cell).map(safe_cell, na_action="ignore")
    # Without the mark of "utf-8-sig", spreadsheets would read another encoding.
    content = cells.to_csv(index=False, lineterminator="\r\n").encode("utf-8-sig")
    write_whole(folder / TABLE, lambda part: part.write_bytes(content))
    write_whole(folder / PAGE, lambda part: part.write_bytes(page.encode()))
    return folder / PAGE


def default_examples(x: Any) -> dict[str, Any]:
    """Returns inputs of a model as `images` or `examples` of a report, if a person can read them."""
    shape: tuple = getattr(x, "shape", ())
    values: Any = x if isinstance(x, list | tuple) else ()
    values = np.ravel(x) if getattr(getattr(x, "dtype", None), "kind", "") in "OSUT" else values
    if len(values) and all(isinstance(value, str | bytes) for value in values):
        return {"examples": values}
    return {"images": x} if len(shape) == 4 and shape[-1] in (1, 3, 4) else {}


def _label_columns(issues: LabelIssues, file: pathlib.Path, names: list) -> pandas.DataFrame:
    """Returns the columns of the labels, with the corrections of an earlier table in the file."""
    labels = np.empty_like(issues.label)
    labels[issues.index] = issues.label
    corrections = read_corrections(file, labels, names) if file.exists() else {}
    corrected = [names[corrections[row]] if row in corrections else "" for row in issues.index]
    table = dataclasses.replace(issues, class_names=names, example_names=None).to_frame().reset_index()
    return table.assign(is_issue=table.is_issue.astype(int), corrected=corrected)


def _example_columns(examples: Any, issues: LabelIssues) -> pandas.DataFrame:
    """Returns numbers and texts of the examples in the order of the issues, their index first if it has names."""
    default = pandas.RangeIndex(len(issues.index))
    index = default if issues.example_names is None else issues.example_names
    frame = pandas.DataFrame(index=index)
    if hasattr(examples, "iloc"):
        check_same_index(issues=pandas.Series(0, index if index is not default else examples.index), examples=examples)
        frame = examples if hasattr(examples, "columns") else examples.to_frame(examples.name or "text")
    elif examples is not None:
        frame = pandas.Series([*examples], index, dtype=object, name="text").to_frame()
    if not frame.index.equals(default):
        frame = pandas.concat([frame.index.to_series(name=frame.index.name or "example"), frame], axis=1)
    frame = frame.iloc[issues.index].reset_index(drop=True).astype(object).map(as_cell, na_action="ignore")
    return frame.set_axis([as_cell(f"{PREFIX}{name}") for name in frame.columns], axis=1)


def _content(
    issues: LabelIssues, names: list, table: pandas.DataFrame, columns: pandas.DataFrame, images: Any
) -> dict[str, Any]:
    """Returns the values of the template: numbers of labels, frequent disagreements, and the rows of the issues."""
    is_other = issues.label != issues.suggested
    pairs = pandas.DataFrame({"label": issues.label, "suggested": issues.suggested})[is_other].value_counts()
    shown = pandas.concat([table.drop(columns=["is_issue", "corrected"]), columns.iloc[:, :MAX_PAGE_COLUMNS]], axis=1)
    shown = (shown[issues.is_issue] if issues.is_issue.any() else shown).head(MAX_PAGE_ROWS)
    return {
        "count": len(table),
        "disagreements": int(is_other.sum()),
        "issues": int(issues.is_issue.sum()),
        "pairs": [(names[label], names[other], count) for (label, other), count in pairs.head(MAX_PAIRS).items()],
        "titles": [str(title).removeprefix(PREFIX) for title in shown.columns],
        "rows": [[*map(_shown, row)] for row in shown.itertuples(index=False)],
        "pictures": None if images is None else [_thumbnail(np.asarray(images[row])) for row in shown["index"]],
    }


def _shown(value: Any) -> str:
    """Returns a cell as text, with nothing for a missing value."""
    return "" if pandas.isna(value) else f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _thumbnail(image: np.ndarray) -> str:
    """Returns the data URL of a small picture.

    Bytes are shown as they are, numbers in [0, 1] are multiplied by 255, and other numbers are scaled to their range.
    """
    image = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    if image.ndim != 2 and (image.ndim != 3 or image.shape[-1] not in (3, 4)):
        raise refusal("images", "be (N, H, W) or (N, H, W, C) with C 1, 3 or 4", f"one of shape {image.shape}")
    if image.dtype != np.uint8:
        image = np.nan_to_num(image.astype("float64"))
        low, high = min(0.0, image.min(initial=0.0)), max(1.0, image.max(initial=1.0))
        image = (255 * (image - low) / (high - low)).round().astype("uint8")
    picture, buffer = import_extra("PIL.Image", "A report with images").fromarray(image), io.BytesIO()
    picture.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    picture.save(buffer, "png")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
