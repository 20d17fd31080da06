"""Parts of every figure: axes, colours that differ on light and dark backgrounds, and texts that fit.

A figure is drawn on given axes or on a new figure. It opens no window and changes no setting of other figures. Texts
and edges follow the style in use.
"""

from typing import Any

import numpy as np

from keras_het.base.extras import import_extra

# Blue and orange of Okabe and Ito: colour-blind people can tell them apart. One pair for white, one for black.
ON_LIGHT, ON_DARK = ("#0072B2", "#D55E00"), ("#56B4E9", "#E69F00")
LONGEST = 16  # letters of a class name; longer names leave no room for the figure


def matplotlib(module: str = "") -> Any:
    """Returns Matplotlib, or a module of it.

    Raises:
        ImportError: without Matplotlib.
    """
    return import_extra(f"matplotlib{module}", "The figure")


def axes_or_new(ax: Any = None) -> Any:
    """Returns `ax`, or the axes of a new figure."""
    return matplotlib(".pyplot").subplots(layout="constrained")[1] if ax is None else ax


def is_light() -> bool:
    """Returns whether the style in use has a light background."""
    return bool(np.mean(matplotlib(".colors").to_rgb(matplotlib().rcParams["axes.facecolor"])) > 0.5)


def palette() -> tuple[str, str]:
    """Returns a blue and an orange that are visible on the background of the style in use."""
    return ON_LIGHT if is_light() else ON_DARK


def text_color() -> str:
    """Returns the colour of texts and lines that stand for no data."""
    return matplotlib().rcParams["text.color"]


def muted_color() -> tuple[float, ...]:
    """Returns a grey between the colours of the text and the background."""
    colors, params = matplotlib(".colors"), matplotlib().rcParams
    text, background = (np.array(colors.to_rgb(params[name])) for name in ("text.color", "axes.facecolor"))
    return tuple(0.5 * text + 0.5 * background)


def without_frame(ax: Any) -> None:
    """Removes the lines at the top and at the right."""
    ax.spines[["top", "right"]].set_visible(False)


def shortened(name: Any, longest: int = LONGEST) -> str:
    """Returns a name as one line of text that fits: its start and its end, by which long names differ.

    Characters that reverse the direction of text are removed.
    """
    text = "".join(letter for letter in " ".join(str(name).split()) if letter.isprintable())
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[1 - longest // 2 :]}"
