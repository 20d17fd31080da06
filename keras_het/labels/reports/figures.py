"""Figure of a report as data URLs, which contain the image."""

import io
from typing import NamedTuple

from keras_het.base.extras import import_extra
from keras_het.explain.reliability import Calibration
from keras_het.labels.reports.examples import data_url

STYLES = {"light": ["default"], "dark": ["default", "dark_background"]}  # without the user's Matplotlib style


class Picture(NamedTuple):
    """Figure of a page, as the data URL for a light page and for a dark page."""

    light: str
    dark: str


def reliability_diagram(calibration: Calibration) -> Picture:
    """Returns the figure of the calibration."""
    return Picture(*(_draw(calibration, style) for style in STYLES.values()))


def _draw(calibration: Calibration, style: list[str]) -> str:
    """Returns the data URL of a figure, independent of the user's style."""
    pyplot = import_extra("matplotlib.pyplot", "The report")
    with pyplot.style.context(style), pyplot.rc_context({"svg.hashsalt": "keras_het"}):
        figure = pyplot.Figure(figsize=(6.0, 4.6), layout="constrained")
        calibration.plot(figure.add_subplot())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, dpi=120, metadata={"Date": None})
    return data_url(buffer.getvalue(), "svg+xml")
