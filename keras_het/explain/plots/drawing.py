"""The figures, and parts of all of them: axes, colours distinct on light and dark backgrounds, and texts that fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_class_names, check_square

# Blue, orange and green of Okabe and Ito: colour-blind people can tell them apart. One set for white, one for black.
ON_LIGHT, ON_DARK = ("#0072B2", "#D55E00", "#009E73"), ("#56B4E9", "#E69F00", "#009E73")
LONGEST = 16  # letters of a class name; longer ones leave no room for the figure
MOST_LABELS, MOST_PAIRS = 30, 20
TOGETHER, EITHER = "rise and fall together", "one or the other"
OUTLIERS = 1e-3  # this fraction of the pairs may go beyond the colours, so that one pair does not make all others white


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


def covariance(matrix: Any, class_names: Sequence | Mapping | None = None, ax: Any = None) -> Any:
    """A covariance as a heat map; classes of similar correlations are beside each other, by clustering.

    Variances are left out: they are the largest, and say nothing of two classes. Zero has the colour of the background.

    Args:
        matrix: `(K, K)`, of `explain.covariance`.
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
        raise refusal("matrix", "have at least one class, and finite entries", shape=matrix)
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
        pairs: `ConfusedPair`s of `explain.confused_pairs`; the first 20 are drawn.
        ax: Matplotlib axes; None makes a figure.
    Returns:
        the axes.
    Raises:
        ImportError: without Matplotlib.

    Example:
        >>> from keras_het.explain.covariance import ConfusedPair
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


def reliability(calibration: Any, ax: Any = None) -> Any:
    """The share of right predictions by confidence, and the gap between the two; the panel above shows their
    numbers.

    The bars of a calibrated model end at the dashed line. A gap below the line is confidence that is too high.

    Args:
        calibration: result of `explain.calibration`.
        ax: Matplotlib axes; None makes a figure.
    Returns:
        the axes; the panel above is its only child, `ax.child_axes[0]`.
    Raises:
        ImportError: without Matplotlib.

    Example:
        >>> from keras_het.explain import calibration
        >>> reliability(calibration([[0.9, 0.1], [0.2, 0.8]], [0, 1])).get_ylabel()
        'share of right predictions'
    """
    ax, (blue, orange, _) = axes_or_new(ax), palette()
    edges, count, confidence = calibration.edges, calibration.count, calibration.confidence
    accuracy, error = calibration.accuracy, calibration.error
    filled, centers, width = count > 0, (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
    right, gap = accuracy[filled], (confidence - accuracy)[filled]
    frame = {"width": width, "linewidth": 0.8}
    ax.bar(centers[filled], right, color=blue, edgecolor=muted_color(), label="share that is right", **frame)
    ax.bar(
        centers[filled],
        gap,
        bottom=right,
        color=(orange, 0.45),
        edgecolor=orange,
        label="gap to the confidence",
        **frame,
    )
    ax.plot([0, 1], [0, 1], "--", color=text_color(), linewidth=1)
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1.3),
        yticks=np.linspace(0, 1, 6),
        xlabel="confidence",
        ylabel="share of right predictions",
    )
    ax.set_title(f"Expected calibration error {error:.3f}")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    without_frame(ax)
    ax.spines["left"].set_bounds(0, 1)
    _density(ax.inset_axes((0, 0.82, 1, 0.18), sharex=ax), centers, count / max(1, count.sum()), width)
    return ax


def _density(ax, centers, share, width):
    """The fraction of predictions in each bin."""
    ax.bar(centers, share, width=width, color=muted_color(), edgecolor="none")
    top = float(f"{max(share.max(), 1e-3):.1g}")
    ax.set(yticks=[top], ylim=(0, max(top, share.max())), facecolor="none")
    ax.set_yticklabels([f"{100 * top:g}% of all"], fontsize="small")
    ax.tick_params(labelbottom=False, bottom=False)
    ax.spines[["left", "right", "top"]].set_visible(False)
