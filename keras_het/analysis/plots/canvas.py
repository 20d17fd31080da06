"""Parts of all figures: axes, colours that are distinct on a light and on a dark background, and texts that fit."""

from typing import Any

import numpy as np

from keras_het.base.extras import import_extra

# Blue, orange and green of Okabe and Ito: colour-blind people can tell them apart. One set for white, one for black.
ON_LIGHT, ON_DARK = ("#0072B2", "#D55E00", "#009E73"), ("#56B4E9", "#E69F00", "#009E73")
LONGEST = 16  # letters of a class name; longer ones leave no room for the figure


def matplotlib(module: str = "") -> Any:
    """Matplotlib, or a module of it.

    Raises:
        ImportError: if it is missing; the error says which package to install.
    """
    return import_extra(f"matplotlib{module}", "The figure")


def axes_or_new(ax: Any = None, **subplots: Any) -> Any:
    """`ax`, or the axes of a new figure with these arguments of `subplots`."""
    return matplotlib(".pyplot").subplots(layout="constrained", **subplots)[1] if ax is None else ax


def is_light() -> bool:
    """Whether the style in use has a light background."""
    return bool(np.mean(matplotlib(".colors").to_rgb(matplotlib().rcParams["axes.facecolor"])) > 0.5)


def palette() -> tuple[str, str, str]:
    """A blue, an orange and a green that are visible on the background of the style in use."""
    return ON_LIGHT if is_light() else ON_DARK


def text_color() -> str:
    """The colour of texts and lines that stand for no data."""
    return matplotlib().rcParams["text.color"]


def muted_color() -> tuple[float, ...]:
    """A grey between the colours of the text and the background."""
    colors, params = matplotlib(".colors"), matplotlib().rcParams
    text, background = (np.array(colors.to_rgb(params[name])) for name in ("text.color", "axes.facecolor"))
    return tuple(0.5 * text + 0.5 * background)


def diverging_map() -> Any:
    """A colour map whose middle, zero, is the background, light or dark; nan is grey."""
    name, of_nan = ("RdBu_r", "#c8c8c8") if is_light() else ("berlin", "#555555")
    return matplotlib().colormaps[name].with_extremes(bad=of_nan)


def without_frame(ax: Any) -> None:
    """Removes the lines at the top and at the right."""
    ax.spines[["top", "right"]].set_visible(False)


def shortened(name: Any, longest: int = LONGEST) -> str:
    """A name as one line of text that fits: its start and its end, by which long names differ.

    Characters that reverse the direction of text are removed.
    """
    text = "".join(letter for letter in " ".join(str(name).split()) if letter.isprintable())
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[1 - longest // 2 :]}"
