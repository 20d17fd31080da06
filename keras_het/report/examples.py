"""The examples as a page of suspects and its table show them beside pictures: texts, and columns of a pandas frame."""

import numbers
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.batches import as_numpy, check_same_index
from keras_het.base.classes import is_missing
from keras_het.base.refusal import refusal, refuse_if

MOST_COLUMNS, MOST_SHOWN = 40, 5  # in all, and in the table itself, not behind an expander
SHORT, LONGEST = 160, 5000  # letters of a cell before it is expanded, and of the whole: 200 books are no page
NUMBERS = "biuf"  # kinds of a dtype


class Cell(NamedTuple):
    """A value of an example in the page.

    Attributes:
        short: its text, or the start of a long one; None where there is no value.
        whole: a long text, or as much of it as a page holds; "" where `short` is all.
        left: number of letters behind `whole`.
        exact: number with all its digits, as text; "" where `short` has them.
        order: number that sorts the column, as text; "" in a column of texts.
    """

    short: str | None
    whole: str = ""
    left: int = 0
    exact: str = ""
    order: str = ""


class Column(NamedTuple):
    """What all N examples have of one kind, such as a text or an age.

    Attributes:
        title: name of the column.
        values: N values, by index.
        is_numeric: boolean, whether they are numbers.
        is_text: boolean, whether they are the texts of the examples, which get more room.
    """

    title: str
    values: Any
    is_numeric: bool = False
    is_text: bool = False

    def cell(self, index: int) -> Cell:
        """The value of an example for the page."""
        text = _text(value := self.values[index])
        if self.is_numeric:  # the missing go last
            order = "Infinity" if text is None else str(float(value)).replace("inf", "Infinity")
            is_exact = text in (None, str(value)) or float(text or 0) == float(value)
            return Cell(text, exact="" if is_exact else str(value), order=order)
        if text is None or len(text) <= SHORT:
            return Cell(text)
        return Cell(f"{text[:SHORT].rstrip()}…", text[:LONGEST], max(0, len(text) - LONGEST))

    def written(self, index: int) -> Any:
        """The same for a spreadsheet: a number as it is, and at most `LONGEST` letters of a text."""
        if isinstance(value := self.values[index], numbers.Number):
            return value if value == value else ""
        return (_text(value) or "")[:LONGEST]


def columns_of(x: Any, y: Any, texts: Any = None, frame: Any = None) -> list[Column]:
    """The columns of the examples: their texts, then those of a frame, and its index before them if it is no count.

    Args:
        x: inputs of the model, shown where they are texts, or a frame, and the user gives none.
        y: labels, whose index of pandas that of the texts and of the frame must be.
        texts: argument of `report`.
        frame: argument of `report`.
    Raises:
        ValueError: for anything but N texts, and a frame of N rows in the order of the labels.
    """
    texts = x if texts is None and _is_texts(x) else texts
    frame = x if frame is None and _is_frame(x) else frame
    check_same_index(x=x, y=y, texts=texts, frame=frame)
    found = [] if texts is None else [Column("Text", _texts(texts, len(y)), is_text=True)]
    return found if frame is None else found + _columns(frame, len(y))


def check_number(name: str, given: Any, count: int) -> None:
    """Raises a ValueError if what the page shall show is not of all examples."""
    refuse_if(len(given) != count, name, f"have one for each of the {count} examples", len(given))


def _is_frame(x: Any) -> bool:
    return hasattr(x, "iloc") and hasattr(x, "columns")


def _is_texts(x: Any) -> bool:
    """Whether inputs are texts, and nothing else."""
    is_array = not isinstance(x, list | tuple)
    if is_array and (_is_frame(x) or getattr(getattr(x, "dtype", None), "kind", "none") not in "OSUT"):
        return False
    return all(isinstance(value, str | bytes) for value in (np.ravel(as_numpy(x)) if is_array else x))


def _texts(texts: Any, count: int) -> list:
    """The texts one by one; a list is never an array of text, in which the longest one sets the room of all."""
    found = texts if isinstance(texts, list | tuple) else np.asarray(as_numpy(texts), object)
    if isinstance(found, np.ndarray):
        is_column = found.ndim == 1 or found.shape[1:] == (1,)
        refuse_if(not is_column, "texts", "be a list, an array or a column of texts, one an example", kind=texts)
        found = found.ravel()
    check_number("texts", found, count)
    for place, value in enumerate(found):
        if not isinstance(value, str | bytes) and (hasattr(value, "__len__") or not is_missing(value)):
            rule = "be texts, and None where there is none (map(str, texts), for anything else)"
            raise refusal("texts", rule, f"a {type(value).__name__} at [{place}]")
    return list(found)


def _columns(frame: Any, count: int) -> list[Column]:
    refuse_if(not _is_frame(frame), "frame", "be a pandas frame: pandas.DataFrame(frame)", kind=frame)
    check_number("frame", frame, count)
    parts = [(name, frame.iloc[:, place]) for place, name in enumerate(frame.columns)]
    found = [Column(str(name)[:SHORT], _values(part), part.dtype.kind in NUMBERS) for name, part in parts]
    if np.array_equal(frame.index, np.arange(count)):
        return found
    return [Column(str(frame.index.name or "index")[:SHORT], frame.index), *found]


def _values(part: Any) -> Any:
    """The values of a Series, by place: those of NumPy are read faster than those of pandas."""
    return part.to_numpy() if isinstance(part.dtype, np.dtype) and part.dtype.kind in NUMBERS else part.array


def _text(value: Any) -> str | None:
    """A value as text; None where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):  # TensorFlow's texts are bytes
        return value.decode("utf-8", "replace")
    if not hasattr(value, "__len__") and is_missing(value):
        return None
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value).removesuffix(" 00:00:00")  # of a date
