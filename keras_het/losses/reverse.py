"""Reverse crossentropy, in which labels and predictions swap places; a part of other losses."""

from typing import Any

from keras import ops

from keras_het.base.validation import check_number


def check_log_of_zero(log_of_zero: Any) -> float:
    """`log_of_zero` as a float, if it is a finite number below zero."""
    number = check_number("log_of_zero", log_of_zero)
    if number >= 0.0:
        raise ValueError(f"`log_of_zero` must be less than 0. Received: log_of_zero={log_of_zero}")
    return number


def reverse_crossentropy(targets: Any, log_probs: Any, log_of_zero: float) -> Any:
    """Crossentropy of the labels under the prediction, with a finite number for the logarithm of zero.

        -sum_k p_k max(log t_k, A),   which is -A (1 - p_y) for one label        (Wang et al. 2019, Section 3)

    The paper takes A only for log 0. Here A also replaces smaller logarithms, so the loss is continuous in the label
    vector.

    Args:
        targets: t, label vectors, `(..., K)`; no gradient passes to them.
        log_probs: log p, `(..., K)`.
        log_of_zero: A < 0.
    Returns:
        shape `(...)`.

    Example:
        >>> # 4 * 0.75
        >>> round(float(reverse_crossentropy(ops.array([1.0, 0.0]), ops.log(ops.array([0.25, 0.75])), -4.0)), 4)
        3.0
    """
    targets = ops.stop_gradient(targets)
    positive = ops.where(targets > 0, targets, 1.0)  # a label that is nan must give nan: `0.0 * targets` below
    log_targets = ops.where(targets > 0, ops.maximum(ops.log(positive), log_of_zero), log_of_zero + 0.0 * targets)
    return -ops.sum(ops.exp(log_probs) * log_targets, axis=-1)
