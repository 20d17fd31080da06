"""Figures of classes: how the noise ties them to each other."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

from keras_het.analysis.plots.canvas import (
    axes_or_new,
    diverging_map,
    palette,
    shortened,
    text_color,
    without_frame,
)
from keras_het.base.validation import check_class_names, check_square

MOST_LABELS, MOST_PAIRS = 30, 20
TOGETHER, EITHER = "rise and fall together", "one or the other"
OUTLIERS = 1e-3  # this share of the pairs may go beyond the colours, so that one pair does not make all others white


def covariance(matrix: Any, class_names: Sequence | Mapping | None = None, ax: Any = None) -> Any:
    """A covariance as a heat map; classes of similar correlations are beside each other, by clustering.

    Variances are left out: they are the largest, and say nothing of two classes. Zero has the colour of the background.

    Args:
        matrix: `(K, K)`, of `analysis.covariance`.
        class_names: K names, a sequence or a dict {class: name}; None for numbers. With many classes only
            some are written.
        ax: Matplotlib axes; None makes a figure.
    Returns:
        the axes; the covariances are `ax.images[0].get_array()`.
    Raises:
        ImportError: without Matplotlib.
        ValueError: for a matrix that is not square or not finite, or another number of names.

    Example:
        >>> covariance([[1.0, 0.5], [0.5, 1.0]], ["cat", "dog"]).get_xlabel()
        'class'
    """
    matrix = check_square("matrix", matrix)
    if not np.isfinite(matrix).all() or not len(matrix):
        raise ValueError(f"`matrix` must have at least one class, and finite entries. Received: shape {matrix.shape}")
    names, order = check_class_names(class_names, len(matrix)), clustered(matrix)
    ax = axes_or_new(ax)
    drawn = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)[np.ix_(order, order)]
    sizes = np.abs(drawn[~np.isnan(drawn)])
    limit = float(np.quantile(sizes, 1 - OUTLIERS)) if sizes.size else 0.0
    beyond = "both" if sizes.size and sizes.max() > limit * (1 + 1e-6) else "neither"
    image = ax.imshow(drawn, cmap=diverging_map(), vmin=-(limit or 1.0), vmax=limit or 1.0, interpolation="none")
    _class_ticks(ax, [shortened(names[i]) for i in order])
    ax.set(xlabel="class", ylabel="class", title="Covariance of the noise of the logits")
    bar = ax.figure.colorbar(image, ax=ax, extend=beyond, shrink=0.85)
    bar.set_label("in temperatures, squared; grey: variances")
    return ax


def clustered(matrix: np.ndarray) -> np.ndarray:
    """An order of the classes of a covariance, `(K,)`, in which classes of similar correlations are side by side."""
    if len(matrix) < 3:
        return np.arange(len(matrix))
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    scale = np.where(scale > 0, scale, np.inf)
    distance = 1.0 - matrix / np.outer(scale, scale)
    rows, columns = np.triu_indices(len(matrix), k=1)
    pairs = np.maximum(distance[rows, columns], 0.0)
    return leaves_list(
        linkage(pairs, "average", optimal_ordering=len(matrix) <= 200)
    )  # for more classes the best order takes minutes


def _class_ticks(ax, names):
    """Writes names at both axes; of many, only every n-th."""
    places = np.arange(0, len(names), -(-len(names) // MOST_LABELS))
    size = "medium" if len(names) <= 12 else "x-small"
    written = {"fontsize": size, "parse_math": False}
    ax.set_yticks(places, [names[i] for i in places], **written)
    ax.set_xticks(places, [names[i] for i in places], rotation=90 if max(map(len, names)) > 2 else 0, **written)


def pairs(pairs: Sequence, ax: Any = None) -> Any:
    """The covariances of pairs of classes as bars, the first on top; the colour shows the meaning of the sign.

    Args:
        pairs: `ConfusedPair`s of `analysis.confused_pairs`; the first 20 are drawn.
        ax: Matplotlib axes; None makes a figure.
    Returns:
        the axes.
    Raises:
        ImportError: without Matplotlib.

    Example:
        >>> from keras_het.analysis.covariance import ConfusedPair
        >>> len(pairs([ConfusedPair("cat", "dog", -0.5, -0.9)]).patches)
        1
    """
    ax, drawn = axes_or_new(ax), list(pairs)[:MOST_PAIRS]
    ax.set(
        title="Pairs of classes that share noise"
        + (f", {len(drawn)} of {len(pairs)}" if len(pairs) > len(drawn) else "")
    )
    if not drawn:
        ax.set_axis_off()
        ax.text(0.5, 0.5, "no pair of classes is beyond chance", ha="center", transform=ax.transAxes)
        return ax
    blue, orange, _ = palette()
    for sign, color, meaning in ((1, orange, TOGETHER), (-1, blue, EITHER)):  # the colours of the heat map
        places = [place for place, pair in enumerate(drawn) if np.sign(pair.covariance) == sign]
        ax.barh(places, [drawn[place].covariance for place in places], color=color, label=meaning if places else None)
    names = [f"{shortened(pair.first)} - {shortened(pair.second)}" for pair in drawn]
    ax.set_yticks(range(len(drawn)), names, parse_math=False)
    ax.set(ylim=(max(4, len(drawn)) - 0.4, -0.6), xlabel="covariance, in temperatures, squared")
    ax.axvline(0, color=text_color(), linewidth=0.8)
    ax.legend(loc="upper right", bbox_to_anchor=(1, -0.14), ncols=2, frameon=False)
    without_frame(ax)
    return ax
