"""The pairs of classes of one matrix."""

from typing import Any

import numpy as np
from keras import ops


def top_pairs(covariance: Any, count: int = 10) -> list[tuple[int, int, float]]:
    """The pairs of classes whose covariance is largest in absolute value.

    Args:
        covariance: one matrix, shape `(K, K)`.
        count: the number of pairs, at least 0; at most K (K - 1) / 2 are returned.
    Returns:
        list of `(i, j, covariance)` with i < j, the largest first. Positive: the logits of i and j rise and fall
            together; negative: one rises where the other falls.
    Raises:
        ValueError: for another shape (average a batch of matrices first) or a negative count.

    Example:
        >>> top_pairs([[1.0, 0.5, 0.0], [0.5, 1.0, -0.7], [0.0, -0.7, 1.0]], count=2)
        [(1, 2, -0.7), (0, 1, 0.5)]
    """
    matrix = ops.convert_to_numpy(covariance)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"`covariance` must be one matrix of shape (K, K). Received: shape {tuple(matrix.shape)}")
    if count < 0:
        raise ValueError(f"`count` must be at least 0. Received: count={count}")
    rows, columns = np.triu_indices(len(matrix), k=1)
    values = matrix[rows, columns]
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return [(int(rows[i]), int(columns[i]), float(values[i])) for i in order]
