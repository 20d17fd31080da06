"""Results as text and as HTML for a notebook: tables with aligned columns, and lines with a title."""

import abc
import html
from collections.abc import Container, Iterable, Sequence
from typing import Any

from keras_het.base.extras import import_extra


def align_columns(cells: Sequence[Sequence[str]], left: Container[int] = ()) -> list[str]:
    """Returns the lines of a table with right-aligned columns, except for the indices in `left`.

    Example:
        >>> align_columns([["index", "p"], ["7", "0.25"]])
        ['index     p', '    7  0.25']
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [str.ljust if column in left else str.rjust for column in range(len(widths))]
    padded = ([pad(text, width) for pad, text, width in zip(sides, line, widths, strict=True)] for line in cells)
    return ["  ".join(line).rstrip() for line in padded]


def html_table(cells: Iterable[Sequence[str]]) -> str:
    """Returns the table as HTML, with the first line as its head."""
    head, *lines = (_row(line, "td" if number else "th") for number, line in enumerate(cells))
    return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{_cells(cells, tag)}</tr>"


def _cells(cells: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)


def number_of(count: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 label" or "1,200 labels"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


class TextTable(abc.ABC):
    """Result that prints as a table with a sentence above or below it, and converts to a pandas frame."""

    _left: Container[int] = (0,)  # indices of left-aligned columns
    _above = _below = ""

    @abc.abstractmethod
    def _cells(self) -> list[list[str]]:
        """Returns the cells as texts, the titles first."""

    @abc.abstractmethod
    def _columns(self) -> dict[str, Any]:
        """Returns the columns of the frame."""

    def to_frame(self) -> Any:
        """Returns the table as a `pandas.DataFrame`, with unrounded numbers; raises ImportError without pandas."""
        return import_extra("pandas", "The frame of a table").DataFrame(self._columns())

    def __str__(self) -> str:
        return "\n".join(filter(None, [self._above, *align_columns(self._cells(), self._left), self._below]))

    def _repr_html_(self) -> str:
        above, below = (text and f"<p>{html.escape(text)}</p>" for text in (self._above, self._below))
        return f"{above}{html_table(self._cells())}{below}"


class TitledLines(abc.ABC):
    """Result that prints as lines, each with a title and a text."""

    @abc.abstractmethod
    def lines(self) -> list[tuple[str, str]]:
        """Returns the title and the text of each line."""

    def __str__(self) -> str:
        return "\n".join(f"{title}: {text}" for title, text in self.lines())

    def _repr_html_(self) -> str:
        rows = (f"<tr>{_cells([title], 'th')}{_cells([text], 'td')}</tr>" for title, text in self.lines())
        return f"<table><tbody>{''.join(rows)}</tbody></table>"
