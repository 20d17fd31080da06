"""Figures of how far the confidence of predictions can be trusted."""

from typing import Any

import numpy as np

from keras_het.analysis.plots.canvas import axes_or_new, muted_color, palette, text_color, without_frame

FEWEST = 0.02  # one error among a smaller share would make the rest of the curve look flat

MOST_POINTS = 1000  # of a curve; more points make a file of megabytes and look the same


def reliability(calibration: Any, ax: Any = None) -> Any:
    """The share of right predictions by confidence, and the gap between the two; the panel above shows their numbers.

    The bars of a calibrated model end at the dashed line. A gap below the line is confidence that is too high.

    Args:
        calibration: of `analysis.calibration`.
        ax: Matplotlib axes; None makes a figure.
    Returns:
        the axes; the panel above is its only child, `ax.child_axes[0]`.
    Raises:
        ImportError: without Matplotlib.

    Example:
        >>> from keras_het.analysis import calibration
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
    """The share of predictions in each bin."""
    ax.bar(centers, share, width=width, color=muted_color(), edgecolor="none")
    top = float(f"{max(share.max(), 1e-3):.1g}")
    ax.set(yticks=[top], ylim=(0, max(top, share.max())), facecolor="none")
    ax.set_yticklabels([f"{100 * top:g}% of all"], fontsize="small")
    ax.tick_params(labelbottom=False, bottom=False)
    ax.spines[["left", "right", "top"]].set_visible(False)


def risk_coverage(curve: Any, ax: Any = None) -> Any:
    """The share of errors among the most confident predictions, by the share of predictions that is kept.

    A model that knows when it is wrong has a curve far below the dashed line, the curve of predictions kept at random.

    Args:
        curve: of `analysis.risk_coverage`.
        ax: Matplotlib axes; None makes a figure.
    Returns:
        the axes.
    Raises:
        ImportError: without Matplotlib.

    Example:
        >>> from keras_het.analysis import risk_coverage as risk_of
        >>> risk_coverage(risk_of([[0.9, 0.1], [0.6, 0.4]], [0, 1])).get_title()
        'Area under the curve 0.25'
    """
    ax, (blue, *_) = axes_or_new(ax), palette()
    coverage, risk, area = curve.coverage, curve.risk, curve.area
    ax.axhline(
        risk[-1], linestyle="--", color=muted_color(), linewidth=1, label=f"kept at random: {risk[-1]:.1%} errors"
    )
    shown = np.unique(np.linspace(0, len(risk) - 1, MOST_POINTS).astype(int))
    ax.plot(coverage[shown], risk[shown], color=blue, linewidth=2, label="kept by confidence")
    ax.fill_between(coverage[shown], risk[shown], color=blue, alpha=0.15, linewidth=0)
    top = max(float(np.max(risk[coverage >= FEWEST])), 1e-3)
    ax.set(xlim=(0, 1), ylim=(0, 1.25 * top), title=f"Area under the curve {area:.3g}")
    ax.set(xlabel="share of predictions that is kept, the most confident first", ylabel="share of errors among them")
    ax.legend(loc="upper left", frameon=False)
    without_frame(ax)
    return ax
