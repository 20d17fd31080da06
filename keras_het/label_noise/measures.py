"""What one number says of a transition matrix."""

from typing import Any

import numpy as np

from keras_het.validation import check_square


def total_variation(transition: Any, reference: Any) -> float:
    """Mean over the rows of half the sum of |T[i] - reference[i]|: 0 where they are equal, 1 where no row has anything
    in common.

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
    """sum_i T_ii: K for the identity; over K, the share of kept labels where classes are equally frequent.

    Args:
        transition: T, shape `(K, K)`.

    Example:
        >>> trace([[0.75, 0.25], [0.25, 0.75]])
        1.5
    """
    return float(np.trace(check_square("transition", transition)))


def condition_number(transition: Any) -> float:
    """Largest over smallest singular value: 1 for a permutation, infinite if some true classes cannot be told apart by
    their labels.

    Errors of the noisy posterior are amplified by up to this factor on the way to the clean one. Not a number if T is
    not.

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
