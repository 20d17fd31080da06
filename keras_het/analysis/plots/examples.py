"""A figure of the examples themselves."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_het.analysis.plots.canvas import axes_or_new, shortened
from keras_het.base.validation import check_integer


def gallery(images: Any, issues: Any, class_names: Sequence | None = None, count: int = 16) -> Any:
    """The images whose labels are most probably wrong, each with its label and the class that is suggested.

    Args:
        images: all of them, `(N, H, W)` or `(N, H, W, C)` with 1, 3 or 4 channels; numbers that are no bytes are scaled
            to their range.
        issues: of `find_label_issues`.
        class_names: a name for each class; None for numbers.
        count: how many, the worst first.
    Returns:
        the axes, an array of rows and columns.
    Raises:
        ImportError: without Matplotlib.
        ValueError: for arrays that are no images.

    Example:
        >>> from keras_het.analysis import find_label_issues
        >>> issues = find_label_issues([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])
        >>> gallery(np.zeros((3, 8, 8)), issues, ["cat", "dog"], count=1)[0, 0].get_title()
        'dog → cat'
    """
    shown = np.asarray(issues.index)[: check_integer("count", count, 1)]
    pictures = as_pictures(np.asarray(images)[shown])
    columns = max(1, math.ceil(math.sqrt(len(shown))))
    rows = max(1, math.ceil(len(shown) / columns))
    axes = axes_or_new(nrows=rows, ncols=columns, squeeze=False, figsize=(1.6 * columns, 1.9 * rows))
    for place, ax in enumerate(axes.flat):
        ax.set_axis_off()
        if place < len(shown):
            given, suggested = (
                shortened(_name(class_names, labels[place])) for labels in (issues.given, issues.suggested)
            )
            ax.imshow(pictures[place], cmap="gray" if pictures.ndim == 3 else None, vmin=0, vmax=1)
            ax.set_title(_lines(given, suggested), fontsize="small", parse_math=False)
    axes[0, 0].figure.suptitle("label → suggested class")
    return axes


def as_pictures(images: np.ndarray) -> np.ndarray:
    """Images as numbers in [0, 1], `(N, H, W)` or `(N, H, W, C)` with C 3 or 4.

    Bytes are divided by 255, numbers in [0, 1] stay as they are, and others are scaled to their range.

    Raises:
        ValueError: for another shape.
    """
    images = images[..., 0] if images.ndim == 4 and images.shape[-1] == 1 else images
    if images.ndim != 3 and (images.ndim != 4 or images.shape[-1] not in (3, 4)):
        raise ValueError(f"`images` must be (N, H, W) or (N, H, W, C) with C 1, 3 or 4. Received: shape {images.shape}")
    if images.dtype == np.uint8:
        return images / 255.0
    images = np.nan_to_num(images.astype("float64"))
    low, high = min(0.0, images.min(initial=0.0)), max(1.0, images.max(initial=1.0))
    return (images - low) / (high - low)


def _name(class_names, number):
    return number if class_names is None else class_names[number]


def _lines(given, suggested):
    """Both names in one line if they are short."""
    between = " → " if len(given) + len(suggested) <= 14 else "\n→ "
    return f"{given}{between}{suggested}"
