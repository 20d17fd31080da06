"""Figures of a report as data URLs, which contain the image."""

import functools
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

from keras_het.base.extras import import_extra
from keras_het.explain.covariance import NEGATIVE_MEANING, POSITIVE_MEANING
from keras_het.explain.drawing import is_light, matplotlib, shorten
from keras_het.labels.report.examples import data_url
from keras_het.labels.report.findings import Findings

STYLES = {"light": ["default"], "dark": ["default", "dark_background"]}  # without the user's Matplotlib style
RELIABILITY = (
    "Bars: fraction of the predictions with this confidence that agree with the labels. Orange: gap to the confidence. "
    "Top: number of predictions."
)
COVARIANCE = "Red: logits that vary together. Blue: logits that vary against each other. Similar classes are adjacent."

MAX_AXIS_NAMES = 30
OUTLIER_FRACTION = 1e-3  # pairs beyond the colour range; else a single pair would make all others white


class Picture(NamedTuple):
    """Figure of a page.

    Attributes:
        title: title of the figure.
        text: caption.
        light: data URL for a light page.
        dark: data URL for a dark page.
    """

    title: str
    text: str
    light: str
    dark: str


def pictures(findings: Findings) -> list[Picture]:
    """Returns the figures of the findings."""
    result = [_picture("Is the confidence calibrated?", RELIABILITY, findings.calibration.plot)]
    if pairs := findings.pairs:
        text = f"Positive: {POSITIVE_MEANING}. Negative: {NEGATIVE_MEANING}, so the label is one of the two."
        result.append(_picture("Which classes share noise in the head?", text, pairs.plot))
    if findings.noise is not None:
        covariance, names = findings.noise.covariance, [str(name) for name in findings.class_names]
        draw = functools.partial(draw_covariance, covariance, names)
        result.append(_picture("Noise of all classes in the head", COVARIANCE, draw, "png"))
    return result


def _picture(title: str, text: str, draw: Callable[[Any], Any], form: str = "svg") -> Picture:
    return Picture(title, text, *(_draw(draw, style, form) for style in STYLES.values()))


def _draw(draw: Callable[[Any], Any], style: list[str], form: str) -> str:
    """Returns the data URL of a figure, independent of the user's style."""
    pyplot = import_extra("matplotlib.pyplot", "The report")
    with pyplot.style.context(style), pyplot.rc_context({"svg.hashsalt": "keras_het"}):
        figure = pyplot.Figure(figsize=(6.0, 4.6), layout="constrained")
        draw(figure.add_subplot())
        buffer = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(buffer, format=form, transparent=True, dpi=120, metadata=metadata)
    return data_url(buffer.getvalue(), "svg+xml" if form == "svg" else "png")


def draw_covariance(matrix: np.ndarray, names: list[str], ax: Any) -> None:
    """Draws a covariance, `(K, K)`, as a heat map, with classes of similar correlations side by side.

    Variances are left out, because they are the largest entries and say nothing about two classes. Zero has the colour
    of the background.
    """
    order = cluster(matrix)
    values = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)[np.ix_(order, order)]
    sizes = np.abs(values[~np.isnan(values)])
    limit = float(np.quantile(sizes, 1 - OUTLIER_FRACTION)) if sizes.size else 0.0
    beyond = "both" if sizes.size and sizes.max() > limit * (1 + 1e-6) else "neither"
    image = ax.imshow(values, cmap=_diverging_map(), vmin=-(limit or 1.0), vmax=limit or 1.0, interpolation="none")
    _write_names(ax, [shorten(names[i]) for i in order])
    ax.set(xlabel="class", ylabel="class", title="Covariance of the noise of the logits")
    bar = ax.figure.colorbar(image, ax=ax, extend=beyond, shrink=0.85)
    bar.set_label("in temperatures, squared; grey: variances")


def cluster(matrix: np.ndarray) -> np.ndarray:
    """Returns an order of the classes, `(K,)`, that puts classes of similar correlations side by side."""
    if len(matrix) < 3:
        return np.arange(len(matrix))
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    scale = np.where(scale > 0, scale, np.inf)
    distance = 1.0 - matrix / np.outer(scale, scale)
    pairs = np.maximum(distance[np.triu_indices(len(matrix), k=1)], 0.0)
    is_small = len(matrix) <= 200  # the optimal order of more classes takes minutes
    return leaves_list(linkage(pairs, "average", optimal_ordering=is_small))


def _diverging_map() -> Any:
    """Returns a colour map whose middle, zero, is the background, light or dark; nan is grey."""
    name, nan_color = ("RdBu_r", "#c8c8c8") if is_light() else ("berlin", "#555555")
    return matplotlib().colormaps[name].with_extremes(bad=nan_color)


def _write_names(ax: Any, names: list[str]) -> None:
    """Writes the names at both axes, or every n-th of many names."""
    ticks = np.arange(0, len(names), -(-len(names) // MAX_AXIS_NAMES))
    size = "medium" if len(names) <= 12 else "x-small"
    options = {"fontsize": size, "parse_math": False}
    ax.set_yticks(ticks, [names[i] for i in ticks], **options)
    ax.set_xticks(ticks, [names[i] for i in ticks], rotation=90 if max(map(len, names)) > 2 else 0, **options)
