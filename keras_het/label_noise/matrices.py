"""Transition matrices of known kinds of noise, NumPy float64, and measures of one, each a number."""

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


def outlier_class(num_classes: int, alpha: float = 0.0) -> np.ndarray:
    """T of K classes and a last one, the outliers: examples of no class, whose labels are of all classes equally.

    Classes keep their labels. A share alpha of the outliers is labelled as such.

    Args:
        num_classes: K >= 1, without the outliers.
        alpha: number in [0, 1].
    Returns:
        shape `(K + 1, K + 1)`.
    Raises:
        ValueError: for values outside these ranges.
    Source: Sukhbaatar et al. 2014, Eq. 8.

    Example:
        >>> outlier_class(2, 0.5).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    """
    check_integer("num_classes", num_classes, 1)
    check_fraction("alpha", alpha)
    transition = np.eye(num_classes + 1)
    transition[-1] = [(1.0 - alpha) / num_classes] * num_classes + [alpha]
    return transition


def _check_flips(num_classes, noise):
    check_integer("num_classes", num_classes, 2)
    check_fraction("noise", noise)


def total_variation(transition: Any, reference: Any) -> float:
    """Mean over the rows of half the sum of |T[i] - reference[i]|: 0 for equal rows, 1 for rows with nothing in common.

    Args:
        transition: T, shape `(K, K)`.
        reference: shape `(K, K)`.
    Returns:
        a number in [0, 1].
    Raises:
        ValueError: for matrices that are not square, or of different shapes.

    Example:
        >>> total_variation([[0.75, 0.25], [0.25, 0.75]], [[1, 0], [0, 1]])
        0.25
    """
    transition, reference = check_square("transition", transition), check_square("reference", reference)
    if transition.shape != reference.shape:
        raise refusal("reference", f"have the shape of `transition`, {transition.shape}", shape=reference)
    return float(np.mean(0.5 * np.sum(np.abs(transition - reference), axis=1)))


def trace(transition: Any) -> float:
    """sum_i T_ii: K for the identity; divided by K, the fraction of kept labels if classes are equally frequent.

    Args:
        transition: T, shape `(K, K)`.

    Example:
        >>> trace([[0.75, 0.25], [0.25, 0.75]])
        1.5
    """
    return float(np.trace(check_square("transition", transition)))


def condition_number(transition: Any) -> float:
    """Largest over smallest singular value: 1 for a permutation, infinite if labels cannot separate some true classes.

    Errors of the noisy posterior are up to this factor larger in the clean one. The result is nan if T is not finite.

    Args:
        transition: T, shape `(K, K)`.

    Example:
        >>> round(condition_number([[0.75, 0.25], [0.25, 0.75]]), 3)
        2.0
    """
    transition = check_square("transition", transition)
    if not np.isfinite(transition).all():
        return float("nan")
    singular = np.linalg.svd(transition, compute_uv=False)
    return float(singular[0] / singular[-1]) if singular[-1] > np.finfo("float64").eps * singular[0] else float("inf")
