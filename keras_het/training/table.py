"""The table of what was compared: its lines, and how they are printed and drawn."""

import dataclasses
import math
from typing import Any

import numpy as np

SCALES = {"accuracy": (100, 1)}  # of differences that are printed, and their digits: points


@dataclasses.dataclass(frozen=True)
class Score:
    """A line of the table: a candidate of `choose`, a value of `tune`, or the model of `clean_labels`.

    Attributes:
        name: title of the candidate, with its strength if it has several; or the value as text.
        value: strength of the candidate, or value; None for neither.
        score: mean of the criterion over the held-out labels, wrong ones among them, at the chosen epoch.
        difference: gain over the plain training, on the same examples: accuracy, or mean log p(label); nan
            where nothing is compared so.
        error: paired standard error of the difference.
        epoch: chosen epoch, counted from 1.
        trainings: number of trainings.
        seconds: time of all trainings.
        dropped: boolean, whether it fell behind before all folds were measured.
    """

    name: str
    value: Any
    score: float
    difference: float = math.nan
    error: float = math.nan
    epoch: int = 1
    trainings: int = 1
    seconds: float = 0.0
    dropped: bool = False


def compares(table: list[Score]) -> bool:
    """Whether the table has differences from its first line."""
    return not math.isnan(table[0].difference)


def cells_of(table: list[Score], best: Score, criterion: str, title: str) -> list[tuple[str, ...]]:
    """The table as texts, below its titles; without differences where nothing is compared.

    Args:
        table: its lines.
        best: line that was chosen.
        criterion: name of what the scores measure.
        title: title of the lines, such as "value".
    """
    is_compared, (scale, digits) = len(table) > 1 and compares(table), SCALES.get(criterion, (1, 3))
    over = (f"{'' if scale > 1 else 'log p '}over {table[0].name}",) if is_compared else ()
    lines: list[tuple[str, ...]] = [(title, criterion, *over, "epoch", "trainings", "seconds", "")]
    for score in table:
        mark = "<- chosen" if score is best and len(table) > 1 else "dropped" if score.dropped else ""
        above = f"{scale * score.difference:+.{digits}f} +- {scale * score.error:.{digits}f}"
        cells = ("" if score is table[0] else above,) if is_compared else ()
        numbers = str(score.epoch), str(score.trainings), f"{score.seconds:.1f}"
        lines.append((score.name, f"{score.score:.4f}", *cells, *numbers, mark))
    return lines


def drawn(table: list[Score], best: Score, criterion: str, title: str) -> Any:
    """The table as a `matplotlib.figure.Figure`, for the same arguments."""
    from matplotlib.figure import Figure

    is_compared = compares(table)
    figure = Figure(figsize=(7, 0.8 + 0.45 * len(table)) if is_compared else (6, 4), layout="constrained")
    axes = figure.subplots()
    if is_compared:
        _draw_differences(axes, table, best, criterion)
    else:
        _draw_scores(axes, table, best, criterion, title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_differences(axes: Any, table: list[Score], best: Score, criterion: str) -> None:
    """The differences from the first line of the table, with their errors."""
    scale, unit = (100, "points of held-out labels predicted") if criterion == "accuracy" else (1, "mean log p")
    for place, score in enumerate(reversed(table)):
        color = "#d1495b" if score is best else "#1f5f99"
        axes.errorbar(scale * score.difference, place, xerr=scale * score.error, fmt="o", color=color, capsize=3)
    axes.axvline(0.0, color="#999999", linewidth=1)
    axes.set_yticks(range(len(table)), [score.name for score in reversed(table)])
    axes.set_xlabel(f"{unit}, over {table[0].name}")


def _draw_scores(axes: Any, table: list[Score], best: Score, criterion: str, title: str) -> None:
    """The scores over the values, on a logarithmic scale where they are positive numbers."""
    values = [score.value for score in table]
    numeric = are_positive(values)
    places = values if numeric else list(range(len(values)))
    axes.plot(places, [score.score for score in table], "o-" if numeric else "o", color="#1f5f99")
    index = table.index(best)
    axes.plot(places[index], best.score, "o", color="#d1495b", markersize=10, label=f"chosen: {best.name}")
    axes.set_xscale("log" if numeric else "linear")
    axes.set_xticks(places, [score.name for score in table])
    axes.minorticks_off()
    axes.set(xlabel=title, ylabel=f"{criterion} of the held-out labels")
    axes.legend(frameon=False)


def are_positive(values: list[Any]) -> bool:
    """Whether all are positive finite numbers, which a logarithmic scale can show."""
    numbers = all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values)
    return numbers and all(0 < float(value) < math.inf for value in values)


def text(value: Any) -> str:
    """A value as short text."""
    return f"{value:.4g}" if are_positive([value]) else str(value)
