"""The figures of a report as data addresses, which hold the image itself."""

import base64
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal
from keras_het.explain import plots
from keras_het.explain.plots.drawing import EITHER, TOGETHER
from keras_het.report.findings import Findings

STYLES = {"light": ["default"], "dark": ["default", "dark_background"]}  # a user's own style would change the figures
THUMBNAIL = 56  # pixels
WIDTH, HEIGHT, EDGE = 120, 32, 3  # of a curve of margins, pixels
MOST_POINTS = 60  # of a curve: of a longer training each is a mean
COLOR, AXIS = "#c7651b", "#8a94a3"  # seen on light and dark pages


class Picture(NamedTuple):
    """A figure in a page.

    Attributes:
        title: its title.
        text: its content, in words.
        light: its data address for a light page.
        dark: its data address for a dark page.
    """

    title: str
    text: str
    light: str
    dark: str


def pictures(found: Findings) -> list[Picture]:
    """The figures that the findings have numbers for."""
    names = [str(name) for name in found.class_names]
    drawn = [
        _picture(
            "Can the confidence be trusted?",
            "Bars: of the predictions with this confidence, the share that agrees with the labels. Orange: the gap to "
            "the confidence. On top: how many predictions are so confident.",
            lambda ax: plots.reliability(found.calibration, ax),
        ),
        _picture(
            "What if only confident predictions are kept?",
            "The fraction of errors among the predictions that are kept, the most confident first. The further below "
            "the dashed line, the better the confidence tells right predictions from wrong ones.",
            lambda ax: plots.risk_coverage(found.curve, ax),
        ),
    ]
    if found.pairs:
        text = f"Positive: {TOGETHER}. Negative: {EITHER}, so that the label goes to one of the two."
        drawn.append(_picture("Which classes share noise?", text, lambda ax: plots.pairs(found.pairs or [], ax)))
    covariance = None if found.noise is None else found.noise.covariance
    if covariance is not None:
        text = (
            "Which classes' logits vary together (red) or against each other (blue). Classes that behave alike are "
            "beside each other."
        )
        drawn.append(
            _picture("The noise of all classes", text, lambda ax: plots.covariance(covariance, names, ax), "png")
        )
    return drawn


def _picture(title: str, text: str, draw: Callable[[Any], Any], form: str = "svg") -> Picture:
    return Picture(title, text, *(_drawn(draw, style, form) for style in STYLES.values()))


def _drawn(draw: Callable[[Any], Any], style: list[str], form: str) -> str:
    """The data address of a figure; it depends on the numbers alone, not on the user's style."""
    matplotlib, pyplot = (import_extra(name, "The report") for name in ("matplotlib", "matplotlib.pyplot"))
    with pyplot.style.context(style), matplotlib.rc_context({"svg.hashsalt": "keras_het"}):
        figure = matplotlib.figure.Figure(figsize=(6.0, 4.6), layout="constrained")
        draw(figure.add_subplot())
        buffer = io.BytesIO()
        figure.savefig(
            buffer, format=form, transparent=True, dpi=120, metadata={"Date": None} if form == "svg" else None
        )
    return address(buffer.getvalue(), "svg+xml" if form == "svg" else "png")


def address(content: bytes, form: str) -> str:
    """A data address of an image."""
    return f"data:image/{form};base64,{base64.b64encode(content).decode('ascii')}"


def is_images(x: Any) -> bool:
    """Whether an input is surely one of images: `(N, H, W, C)` with 1, 3 or 4 channels."""
    shape: tuple = getattr(x, "shape", ())
    return len(shape) == 4 and shape[-1] in (1, 3, 4)


def thumbnails(images: Any, indices: Any) -> list[str]:
    """The addresses of small pictures of some of `(N, H, W)` or `(N, H, W, C)` images."""
    image = import_extra("PIL.Image", "The report")
    return [_thumbnail(image, as_pictures(np.asarray(images[index])[None])[0]) for index in indices]  # one at a time


def _thumbnail(image: Any, picture: np.ndarray) -> str:
    small, buffer = image.fromarray((picture * 255).round().astype("uint8")), io.BytesIO()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    small.save(buffer, "png")
    return address(buffer.getvalue(), "png")


def as_pictures(images: np.ndarray) -> np.ndarray:
    """Images as numbers in [0, 1], `(N, H, W)` or `(N, H, W, C)` with C 3 or 4.

    Bytes are divided by 255, numbers in [0, 1] stay as they are, and others are scaled to their range.

    Raises:
        ValueError: for another shape.
    """
    images = images[..., 0] if images.ndim == 4 and images.shape[-1] == 1 else images
    if images.ndim != 3 and (images.ndim != 4 or images.shape[-1] not in (3, 4)):
        raise refusal("images", "be (N, H, W) or (N, H, W, C) with C 1, 3 or 4", shape=images)
    if images.dtype == np.uint8:
        return images / 255.0
    images = np.nan_to_num(images.astype("float64"))
    low, high = min(0.0, images.min(initial=0.0)), max(1.0, images.max(initial=1.0))
    return (images - low) / (high - low)


def margin_curves(margins: np.ndarray) -> list[str]:
    """The addresses of curves of margins by epoch, a picture for each example.

    All have the same scale, sign(m) log(1 + |m|), which shows large and small margins m, with a line at 0.

    Args:
        margins: `(epochs, number of examples)`.
    """
    margins = margins.astype("float64")
    parts = np.array_split(margins, min(len(margins), MOST_POINTS))
    means = np.array([part.mean(axis=0) for part in parts])
    heights = np.sign(means) * np.log1p(np.abs(means))
    limit = max(np.abs(heights).max(initial=0.0), 1e-6)
    return [_curve(curve / limit) for curve in heights.T]


def _curve(values: np.ndarray) -> str:
    """The address of a curve of values in [-1, 1]; a single value is drawn as a level line."""
    values = np.repeat(values, 2) if len(values) == 1 else values
    x = np.linspace(EDGE, WIDTH - EDGE, len(values))
    y = HEIGHT / 2 - (HEIGHT / 2 - EDGE) * values
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<path d="M{EDGE} {HEIGHT / 2}H{WIDTH - EDGE}" stroke="{AXIS}" stroke-dasharray="3 3"/>'
        f'<polyline points="{points}" fill="none" stroke="{COLOR}" stroke-width="2" stroke-linejoin="round"/></svg>'
    )
    return address(drawn.encode(), "svg+xml")
