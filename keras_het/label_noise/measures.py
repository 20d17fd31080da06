"""Measures of a transition matrix, each a number."""

from typing import Any

import numpy as np

from keras_het.base.validation import check_square


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
        raise ValueError(
            f"`reference` must have the shape of `transition`, {transition.shape}. Received: shape {reference.shape}"
        )
    return float(np.mean(0.5 * np.sum(np.abs(transition - reference), axis=1)))


def trace(transition: Any) -> float:
    """sum_i T_ii: K for the identity; divided by K, the share of kept labels if classes are equally frequent.

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
