"""Examples of a report: pictures, texts, and columns of a pandas frame."""

import base64
import io
import numbers
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.batches import as_numpy, check_same_index
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.labels.classes import is_missing

MAX_CELL_LETTERS = 2000
MAX_TITLE_LETTERS = 160
THUMBNAIL_PIXELS = 56


class Column(NamedTuple):
    """Column of values of all N examples, such as texts or ages.

    Attributes:
        title: name of the column.
        values: N values, by position.
        is_numeric: boolean, whether the values are numbers.
        is_text: boolean, whether the values are the texts of the examples, which get more room.
    """

    title: str
    values: Any
    is_numeric: bool = False
    is_text: bool = False

    def page_text(self, row: int) -> str | None:
        """Returns the value as text for the page; None for a missing value."""
        text = _text(self.values[row])
        return text if text is None or len(text) <= MAX_CELL_LETTERS else f"{text[:MAX_CELL_LETTERS]}…"

    def sort_key(self, row: int) -> str:
        """Returns the number that sorts the column in JavaScript, with missing values last."""
        value = self.values[row]
        return "Infinity" if _text(value) is None else str(float(value)).replace("inf", "Infinity")

    def table_value(self, row: int) -> Any:
        """Returns the value for a spreadsheet, a number or text."""
        value = self.values[row]
        if isinstance(value, numbers.Number):
            return value if value == value else ""
        return (_text(value) or "")[:MAX_CELL_LETTERS]


def columns_of(x: Any, y: Any, texts: Any = None, frame: Any = None) -> list[Column]:
    """Returns the texts, then the columns of a frame, with its index first unless that is 0, 1, 2, ...

    Raises:
        ValueError: for anything but N texts, or a frame of N rows in the order of the labels.
    """
    texts = x if texts is None and _are_texts(x) else texts
    frame = x if frame is None and _is_frame(x) else frame
    check_same_index(x=x, y=y, texts=texts, frame=frame)
    columns = [] if texts is None else [Column("Text", _texts(texts, len(y)), is_text=True)]
    return columns if frame is None else columns + _columns(frame, len(y))


def check_number(name: str, values: Any, count: int) -> None:
    """Raises a ValueError unless there is a value for each example."""
    refuse_if(len(values) != count, name, f"have a value for each of the {count} examples", len(values))


def _is_frame(x: Any) -> bool:
    return hasattr(x, "iloc") and hasattr(x, "columns")


def _are_texts(x: Any) -> bool:
    is_list = isinstance(x, list | tuple)
    if not is_list and (_is_frame(x) or getattr(getattr(x, "dtype", None), "kind", "none") not in "OSUT"):
        return False
    return all(isinstance(value, str | bytes) for value in (x if is_list else np.ravel(as_numpy(x))))


def _texts(texts: Any, count: int) -> list:
    """Returns the texts as a list, because an array of strings has the width of the longest text."""
    values = texts if isinstance(texts, list | tuple) else np.asarray(as_numpy(texts), object)
    if isinstance(values, np.ndarray):
        is_column = values.ndim == 1 or values.shape[1:] == (1,)
        refuse_if(not is_column, "texts", "be a list, an array or a column, with a text for each example", kind=texts)
        values = values.ravel()
    check_number("texts", values, count)
    for row, value in enumerate(values):
        if not isinstance(value, str | bytes) and (hasattr(value, "__len__") or not is_missing(value)):
            rule = "be texts, or None for a missing text. Use map(str, texts) for other values"
            raise refusal("texts", rule, f"a {type(value).__name__} at [{row}]")
    return list(values)


def _columns(frame: Any, count: int) -> list[Column]:
    refuse_if(not _is_frame(frame), "frame", "be a pandas frame: pandas.DataFrame(frame)", kind=frame)
    check_number("frame", frame, count)
    columns = [_column(str(name), frame.iloc[:, number]) for number, name in enumerate(frame.columns)]
    has_default_index = np.array_equal(frame.index, np.arange(count))
    title = str(frame.index.name or "index")[:MAX_TITLE_LETTERS]
    return columns if has_default_index else [Column(title, frame.index), *columns]


def _column(name: str, series: Any) -> Column:
    """Returns a column of a frame, with NumPy numbers if possible, because pandas reads single numbers slowly."""
    is_numeric = series.dtype.kind in "biuf"
    is_numpy = isinstance(series.dtype, np.dtype) and is_numeric
    return Column(name[:MAX_TITLE_LETTERS], series.to_numpy() if is_numpy else series.array, is_numeric)


def _text(value: Any) -> str | None:
    """Returns a value as text; None if it is missing."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):  # texts of TensorFlow
        return value.decode("utf-8", "replace")
    if not hasattr(value, "__len__") and is_missing(value):
        return None
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value).removesuffix(" 00:00:00")  # of dates


def are_images(x: Any) -> bool:
    """Returns whether an input has the shape of images, `(N, H, W, C)` with 1, 3 or 4 channels."""
    shape: tuple = getattr(x, "shape", ())
    return len(shape) == 4 and shape[-1] in (1, 3, 4)


def thumbnails(images: Any, rows: Any) -> list[str]:
    """Returns data URLs of small pictures of the `rows` of images, `(N, H, W)` or `(N, H, W, C)`."""
    image = import_extra("PIL.Image", "The report")
    return [_thumbnail(image, as_picture(np.asarray(images[row]))) for row in rows]


def _thumbnail(image: Any, picture: np.ndarray) -> str:
    small, buffer = image.fromarray((picture * 255).round().astype("uint8")), io.BytesIO()
    small.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    small.save(buffer, "png")
    return data_url(buffer.getvalue(), "png")


def as_picture(image: np.ndarray) -> np.ndarray:
    """Returns an image as numbers in [0, 1], `(H, W)` or `(H, W, C)` with C 3 or 4.

    Bytes are divided by 255, numbers in [0, 1] stay as they are, and other numbers are scaled to their range.

    Raises:
        ValueError: for another shape.
    """
    image = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    if image.ndim != 2 and (image.ndim != 3 or image.shape[-1] not in (3, 4)):
        raise refusal("images", "be (N, H, W) or (N, H, W, C) with C 1, 3 or 4", f"one of shape {image.shape}")
    if image.dtype == np.uint8:
        return image / 255.0
    image = np.nan_to_num(image.astype("float64"))
    low, high = min(0.0, image.min(initial=0.0)), max(1.0, image.max(initial=1.0))
    return (image - low) / (high - low)


def data_url(content: bytes, subtype: str) -> str:
    """Returns the data URL of an image."""
    return f"data:image/{subtype};base64,{base64.b64encode(content).decode('ascii')}"
