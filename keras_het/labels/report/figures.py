"""Figures of a report as data addresses, which hold the image itself."""

import io
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_het.base.extras import import_extra
from keras_het.explain import plots
from keras_het.explain.plots.drawing import EITHER, TOGETHER
from keras_het.labels.report.examples import address
from keras_het.labels.report.findings import Findings

STYLES = {"light": ["default"], "dark": ["default", "dark_background"]}  # the user's style would change the figures
RELIABILITY = (
    "Bars: of the predictions with this confidence, the fraction that agrees with the labels. Orange: the gap to the "
    "confidence. Top: number of predictions."
)
COVARIANCE = "Logits that vary together (red) or against each other (blue). Similar classes are next to each other."


class Picture(NamedTuple):
    """A figure in a page.

    Attributes:
        title: title of the figure.
        text: content in words.
        light: data address for a light page.
        dark: data address for a dark page.
    """

    title: str
    text: str
    light: str
    dark: str


def pictures(findings: Findings) -> list[Picture]:
    """Returns the figures of the findings."""
    drawn = [_picture("Is the confidence right?", RELIABILITY, lambda ax: plots.reliability(findings.calibration, ax))]
    if pairs := findings.pairs:
        text = f"Positive: {TOGETHER}. Negative: {EITHER}, so a label names one of the two."
        drawn.append(_picture("Which classes share noise in the head?", text, lambda ax: plots.pairs(pairs, ax)))
    if findings.noise is not None:
        covariance, names = findings.noise.covariance, [str(name) for name in findings.class_names]
        draw = lambda ax: plots.covariance(covariance, names, ax)  # noqa: E731
        drawn.append(_picture("Noise of all classes in the head", COVARIANCE, draw, "png"))
    return drawn


def _picture(title: str, text: str, draw: Callable[[Any], Any], form: str = "svg") -> Picture:
    return Picture(title, text, *(_drawn(draw, style, form) for style in STYLES.values()))


def _drawn(draw: Callable[[Any], Any], style: list[str], form: str) -> str:
    """Returns the data address of a figure, which depends on the numbers alone, not on the user's style."""
    matplotlib, pyplot = (import_extra(name, "The report") for name in ("matplotlib", "matplotlib.pyplot"))
    with pyplot.style.context(style), matplotlib.rc_context({"svg.hashsalt": "keras_het"}):
        figure = matplotlib.figure.Figure(figsize=(6.0, 4.6), layout="constrained")
        draw(figure.add_subplot())
        buffer = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(buffer, format=form, transparent=True, dpi=120, metadata=metadata)
    return address(buffer.getvalue(), "svg+xml" if form == "svg" else "png")
