"""A figure of the noise during training."""

from typing import Any

import numpy as np

from keras_het.analysis.plots.canvas import axes_or_new, palette, without_frame

STYLES = ("-", "--", ":", "-.")
# The title of each panel, and how the names of its logs end.
PANELS = {
    "noise, in temperatures": ("noise_sd",),
    "share of the noise": ("off_diagonal_share", "diagonal_share"),
    "effective rank": ("effective_rank",),
    "calibration error": ("ece",),
}


def training(history: Any, ax: Any = None) -> Any:
    """The noise of the heads through training, as `callbacks.HeteroscedasticMonitor` logs it: a panel for each kind of
    number.

    Args:
        history: what `fit` returns, or its `history`, a dict of lists with a number for each epoch.
        ax: an array of Matplotlib axes, one for each panel that the history has numbers for; None makes a figure.
    Returns:
        the axes, an array.
    Raises:
        ImportError: without Matplotlib.
        ValueError: for a history without such numbers, or another number of axes.

    Example:
        >>> training({"head_noise_sd": [0.2, 0.3], "ece": [0.2, 0.1]}).shape
        (2,)
    """
    logs = getattr(history, "history", history)
    panels = {title: lines for title, endings in PANELS.items() if (lines := _lines(logs, endings))}
    if not panels:
        raise ValueError(
            f"`history` must have logs of HeteroscedasticMonitor, such as head_noise_sd. Received: {sorted(logs)}"
        )
    axes = np.ravel(
        axes_or_new(ax, ncols=len(panels), squeeze=False, figsize=(3.6 * len(panels), 3.4)) if ax is None else ax
    )
    if len(axes) != len(panels):
        raise ValueError(f"`ax` must be an array of axes, one for each of {len(panels)} panels. Received: {len(axes)}")
    for panel, (title, lines) in zip(axes, panels.items(), strict=True):
        _draw(panel, title, lines)
    return axes


def _lines(logs, endings):
    """Names and numbers of the logs with these endings."""
    return {
        name: values
        for name, values in logs.items()
        if any(name == ending or name.endswith(f"_{ending}") for ending in endings)
    }


def _draw(ax, title, lines):
    """One line for each log, over the epochs from 1."""
    for number, (name, values) in enumerate(lines.items()):
        epochs = np.arange(1, len(values) + 1)
        style = {
            "color": palette()[number % 3],
            "linestyle": STYLES[number // 3 % 4],
            "marker": "." if len(values) < 10 else None,
        }
        ax.plot(epochs, values, label=name, **style)
    ax.set(xlabel="epoch", title=title, ylim=(0, None))
    ax.legend(frameon=False, fontsize="small")
    without_frame(ax)
