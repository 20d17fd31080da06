"""The temperature that maximises the likelihood of held-out labels, in float64."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops
from scipy.optimize import brentq
from scipy.special import expit, softmax

from keras_het.base.validation import as_float64, check_labels

LOWEST, HIGHEST = 0.05, 20.0


def best_temperature(outputs: np.ndarray, labels: Any, activation: str) -> float:
    """The T with the least mean negative log-likelihood, which is convex in 1 / T: the root of its slope.

    Args:
        outputs: log-probabilities or logits, float64, `(..., K)`.
        labels: integers `(...)`; for a sigmoid, vectors `(..., K)`.
        activation: "softmax" or "sigmoid".
    Returns:
        a number in [0.05, 20].
    Raises:
        ValueError: for no example, numbers that are not finite, other shapes, or labels out of range.
    Warns: if the best T is outside these bounds, or if all T are equally good, because the outputs of each example are
        equal.

    Example:
        >>> round(best_temperature(np.log([[0.9, 0.1]] * 3), [0, 0, 1], "softmax"), 4)  # log(9) / log(2)
        3.1699
    """
    slope_of = _slope_of_sigmoid if activation == "sigmoid" else _slope_of_softmax
    rows = _rows(outputs)
    slope = slope_of(rows, labels, outputs.shape[:-1])
    if not (rows if activation == "sigmoid" else rows - rows[:, :1]).any():
        warnings.warn(
            "The temperature is 1, for no other changes the likelihood: the outputs of each example are equal.",
            stacklevel=3,
        )
        return 1.0
    return _best(slope)


def _rows(outputs: np.ndarray) -> np.ndarray:
    """Outputs `(..., K)` as rows, `(N, K)`."""
    if outputs.ndim < 2 or not outputs.size:
        raise ValueError(f"`outputs` must be (..., K), with at least one example. Received: shape {outputs.shape}")
    rows = outputs.reshape(-1, outputs.shape[-1])
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        raise ValueError(f"`outputs` must be finite. Received: {rows[tuple(wrong[0])]} in row {wrong[0][0]}")
    return rows


def _slope_of_softmax(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """The slope of the mean NLL of integer labels by 1 / T, a function of T: mean (E[logit] - logit of the label)."""
    labels, count = np.asarray(ops.convert_to_numpy(labels)), len(logits)
    if labels.shape not in (shape, (*shape, 1)):
        raise ValueError(f"`labels` must be integers of shape {shape}. Received: shape {labels.shape}")
    labels = check_labels(labels.ravel(), logits.shape[-1])
    logits = logits - logits.max(axis=-1, keepdims=True)
    observed = logits[np.arange(count), labels].mean()
    return lambda temperature: np.einsum("nk,nk->", softmax(logits / temperature, axis=-1), logits) / count - observed


def _slope_of_sigmoid(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """The same for label vectors: mean of logit (p - y)."""
    labels, units = as_float64(labels), logits.shape[-1]
    if labels.shape != (*shape, units):
        raise ValueError(f"`labels` must be vectors, of shape {(*shape, units)}. Received: shape {labels.shape}")
    labels = labels.reshape(logits.shape)
    wrong = np.argwhere(~((labels >= 0) & (labels <= 1)))
    if len(wrong):
        raise ValueError(f"`labels` must be in [0, 1]. Received: {labels[tuple(wrong[0])]} in row {wrong[0][0]}")
    return lambda temperature: np.mean(logits * (expit(logits / temperature) - labels))


def _best(slope: Callable[[float], float]) -> float:
    """T where the slope is zero; the slope rises with 1 / T."""
    if slope(LOWEST) <= 0.0:
        why = "no label, or hardly one, is predicted wrong. Fit it to more examples, which the model was not trained on"
        warnings.warn(
            f"The temperature is {LOWEST:g}, the least, and the likelihood still grows below it: {why}.", stacklevel=4
        )
        return LOWEST
    if slope(HIGHEST) >= 0.0:
        why = (
            "the outputs say nothing of these labels. Are the labels in the order of the examples, and is the model "
            "trained?"
        )
        warnings.warn(
            f"The temperature is {HIGHEST:g}, the largest, and the likelihood still grows above it: {why}", stacklevel=4
        )
        return HIGHEST
    return math.exp(
        brentq(
            lambda log_temperature: slope(math.exp(log_temperature)), math.log(LOWEST), math.log(HIGHEST), xtol=1e-12
        )
    )
