"""Calibration of predicted probabilities."""

import dataclasses
from typing import Any

import numpy as np

from keras_het.base.batches import argmax_rows, check_same_index
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_integer, check_labels
from keras_het.explain.drawing import GREY, axes_or_new, palette, remove_frame


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Predictions in B bins of equal width, by their confidence: the largest probability.

    Attributes:
        edges: edges of the bins, `(B + 1,)`, from 0 to 1.
        count: number of examples in each bin, `(B,)`.
        confidence: mean confidence in each bin, `(B,)`, nan in an empty bin.
        accuracy: fraction of correct predictions in each bin, `(B,)`, nan in an empty bin.
        error: expected calibration error, the mean of |accuracy - confidence| over the examples.
    """

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    error: float

    def plot(self, ax: Any = None) -> Any:
        """Draws a reliability diagram: the accuracy in each bin, and its gap to the confidence.

        The bars of a calibrated model end at the dashed line. Bars below the line mean that the model is overconfident.
        The panel at the top shows the fraction of the predictions in each bin.

        Args:
            ax: Matplotlib axes; None makes a figure.
        Returns:
            the axes; the panel is their only child, `ax.child_axes[0]`.
        Raises:
            ImportError: without Matplotlib.

        Example:
            >>> calibration([[0.9, 0.1], [0.2, 0.8]], [0, 1]).plot().get_title()
            'Expected calibration error 0.150'
        """
        ax, (blue, orange) = axes_or_new(ax), palette()
        filled, centers, width = self.count > 0, (self.edges[:-1] + self.edges[1:]) / 2, self.edges[1] - self.edges[0]
        accuracy, gap = self.accuracy[filled], (self.confidence - self.accuracy)[filled]
        bars = {"width": width, "linewidth": 0.8}
        ax.bar(centers[filled], accuracy, color=blue, edgecolor=GREY, label="accuracy", **bars)
        bars |= {"bottom": accuracy, "edgecolor": orange, "label": "gap to the confidence"}
        ax.bar(centers[filled], gap, color=(orange, 0.45), **bars)
        ax.plot([0, 1], [0, 1], "--", color=ax.title.get_color(), linewidth=1)
        ax.set(xlim=(0, 1), ylim=(0, 1.3), yticks=np.linspace(0, 1, 6))
        ax.set(xlabel="confidence", ylabel="accuracy")
        ax.set_title(f"Expected calibration error {self.error:.3f}")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
        remove_frame(ax)
        ax.spines["left"].set_bounds(0, 1)
        panel = ax.inset_axes((0, 0.82, 1, 0.18), sharex=ax)
        _draw_fractions(panel, centers, self.count / max(1, self.count.sum()), width)
        return ax


def _draw_fractions(ax: Any, centers: np.ndarray, fractions: np.ndarray, width: float) -> None:
    ax.bar(centers, fractions, width=width, color=GREY, edgecolor="none")
    top = float(f"{max(fractions.max(), 1e-3):.1g}")
    ax.set(yticks=[top], ylim=(0, max(top, fractions.max())), facecolor="none")
    ax.set_yticklabels([f"{100 * top:g}% of all"], fontsize="small")
    ax.tick_params(labelbottom=False, bottom=False)
    ax.spines[["left", "right", "top"]].set_visible(False)


def calibration(probabilities: Any, labels: Any, num_bins: int = 15) -> Calibration:
    """Computes the accuracy for each level of confidence, as a reliability diagram shows it.

    `error` is the expected calibration error over bins of equal width:

        sum over bins b of |sum over i in b of 1[y_i = argmax p_i] - max p_i| / N    (Guo et al. 2017, Eq. 3)

    With noisy labels, the accuracy is the agreement with the noisy labels. A model that is calibrated for noisy labels
    is underconfident of the true classes.

    Args:
        probabilities: predicted probabilities, `(N, K)`.
        labels: integers, `(N,)`.
        num_bins: number of bins.
    Returns:
        `Calibration`.
    Raises:
        ValueError: for other shapes, labels out of range, no example, or no bin.
    Source: Guo, Pleiss, Sun and Weinberger 2017, "On calibration of modern neural networks", section 2; Naeini, Cooper
        and Hauskrecht 2015.

    Example:
        >>> result = calibration([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]], [0, 1, 1], num_bins=2)
        >>> result.count.tolist(), result.confidence.round(3).tolist(), result.accuracy.round(3).tolist()
        ([0, 3], [nan, 0.833], [nan, 0.667])
        >>> round(result.error, 4)  # |(.9 + .8 + .8) - 2| / 3
        0.1667
    """
    confidence, success = _confidence_and_success(probabilities, labels)
    num_bins = check_integer("num_bins", num_bins, 1)
    indices = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    count = np.bincount(indices, minlength=num_bins)
    filled = np.where(count, count, np.nan)
    mean_confidence, accuracy = (np.bincount(indices, values, num_bins) / filled for values in (confidence, success))
    gaps = np.bincount(indices, success - confidence, num_bins)
    return Calibration(
        np.linspace(0, 1, num_bins + 1), count, mean_confidence, accuracy, float(np.abs(gaps).sum() / len(success))
    )


def _confidence_and_success(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest probability of each example, and 1 if its class is the label, else 0; both `(N,)`."""
    check_same_index(probabilities=probabilities, labels=labels)
    p, y = np.asarray(probabilities), np.asarray(labels)  # stays float32: a float64 copy might not fit in memory
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(p):
        rule = "be (N, K), from keras_het.explain.predict_probabilities(model, x), and `labels` (N,), with N > 0"
        raise refusal("probabilities", rule, f"shapes {p.shape} and {y.shape}")
    low, high = p.min(), p.max()
    if not (low >= 0 and high <= 1 + 1e-5) or np.any(np.abs(p.sum(-1, dtype="float64") - 1) > 1e-2):
        rule = "be in [0, 1] with rows that sum to 1: use np.exp of the log-probabilities of a head"
        raise refusal("probabilities", rule, f"numbers from {low:.4g} to {high:.4g}")
    check_labels(y, p.shape[1])
    return p.max(axis=1).astype("float64"), (argmax_rows(p) == y).astype("float64")
