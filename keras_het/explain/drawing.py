"""Parts that all figures share: axes, colours for light and dark backgrounds, and shortened texts.

Drawing opens no window and changes no setting of other figures. Texts and edges follow the active style.
"""

from typing import Any

import numpy as np

from keras_het.base.extras import import_extra

# Blue and orange of Okabe and Ito, which colour-blind people can tell apart.
LIGHT_PALETTE, DARK_PALETTE = ("#0072B2", "#D55E00"), ("#56B4E9", "#E69F00")
GREY = "0.5"  # visible on light and dark backgrounds
MAX_NAME_LENGTH = 16  # longer class names leave no room for the figure


def matplotlib(module: str = "") -> Any:
    """Returns Matplotlib, or a module of it; raises ImportError without Matplotlib."""
    return import_extra(f"matplotlib{module}", "The figure")


def axes_or_new(ax: Any = None) -> Any:
    """Returns `ax`, or the axes of a new figure."""
    return matplotlib(".pyplot").subplots(layout="constrained")[1] if ax is None else ax


def is_light() -> bool:
    """True if the active style has a light background."""
    return bool(np.mean(matplotlib(".colors").to_rgb(matplotlib().rcParams["axes.facecolor"])) > 0.5)


def palette() -> tuple[str, str]:
    """Returns a blue and an orange that are visible on the background of the active style."""
    return LIGHT_PALETTE if is_light() else DARK_PALETTE


def remove_frame(ax: Any) -> None:
    """Removes the lines at the top and at the right."""
    ax.spines[["top", "right"]].set_visible(False)


def shorten(name: Any, max_length: int = MAX_NAME_LENGTH) -> str:
    """Shortens a name to one line that keeps its start and its end, without characters that reverse text."""
    text = "".join(letter for letter in " ".join(str(name).split()) if letter.isprintable())
    return text if len(text) <= max_length else f"{text[: max_length // 2]}…{text[1 - max_length // 2 :]}"
