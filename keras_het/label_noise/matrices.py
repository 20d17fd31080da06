"""Transition matrices of known kinds of noise, NumPy float64."""

from typing import Any

import numpy as np

from keras_het.base.refusal import refusal
from keras_het.base.validation import check_fraction, check_integer, check_not_negative, check_square


def symmetric(num_classes: int, noise: float) -> np.ndarray:
    """T of flips to all other classes equally: 1 - noise on the diagonal, noise / (K - 1) elsewhere.

    Args:
        num_classes: K >= 2.
        noise: fraction of flipped labels, in [0, 1].
    Returns:
        shape `(K, K)`.
    Raises:
        ValueError: for values outside these ranges.

    Example:
        >>> symmetric(3, 0.5).tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    _check_flips(num_classes, noise)
    return (1.0 - noise) * np.eye(num_classes) + noise / (num_classes - 1) * (1.0 - np.eye(num_classes))


def pair_flip(num_classes: int, noise: float) -> np.ndarray:
    """T of flips to the next class: 1 - noise on the diagonal, noise from class i to i + 1 and from last to first.

    Args:
        num_classes: K >= 2.
        noise: fraction of flipped labels, in [0, 1].
    Returns:
        shape `(K, K)`.
    Raises:
        ValueError: for values outside these ranges.

    Example:
        >>> pair_flip(3, 0.25).tolist()
        [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
    """
    _check_flips(num_classes, noise)
    return (1.0 - noise) * np.eye(num_classes) + noise * np.roll(np.eye(num_classes), 1, axis=1)


def from_confusion(counts: Any) -> np.ndarray:
    """T from counts[i, j], how many examples of true class i carry the label j.

    Args:
        counts: shape `(K, K)`, at least 0, with an example of every class.
    Returns:
        shape `(K, K)`.
    Raises:
        ValueError: for another shape, a negative count, or a class without examples.

    Example:
        >>> from_confusion([[3, 1], [0, 2]]).tolist()
        [[0.75, 0.25], [0.0, 1.0]]
    """
    counts = check_not_negative("counts", check_square("counts", counts))
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(empty):
        raise refusal("counts", "have an example of every class", f"none of class {empty[0]}")
    return counts / counts.sum(axis=1, keepdims=True)


def _check_flips(num_classes, noise):
    check_integer("num_classes", num_classes, 2)
    check_fraction("noise", noise)
