"""What is said about the noise beside what was planted, and how right the wrong labels are that are named."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_het.label_noise.estimation import systematic_flips


class Flip(NamedTuple):
    """Labels of one class that are said to be of another.

    Attributes:
        true: the class that they are of.
        label: the class that they name.
        count: how many; of those that are said, among the examples of which the class is clear.
    """

    true: int
    label: int
    count: int  # type: ignore[assignment]  # hides `tuple.count`


class Diagnosis(NamedTuple):
    """What is said of the noise.

    Attributes:
        share: of the labels that the model disagrees with; of wrong ones, where the right ones are known.
        flips: those that are too frequent for chance.
    """

    share: float
    flips: list[Flip]


def said(diagnosis):
    """The share and the flips of a `NoiseDiagnosis`; the share is that of the labels that its model disagrees with."""
    return Diagnosis(diagnosis.disputed, [Flip(flip.true, flip.label, flip.count) for flip in diagnosis.flips])


def planted(data):
    """The `Diagnosis` by somebody who knows the right labels."""
    counts = confusions(data)
    found = np.argwhere(systematic_flips(counts)).tolist()
    return Diagnosis(float(data.wrong.mean()), [Flip(i, j, int(counts[i, j])) for i, j in found])


def confusions(data):
    """How many examples of class i have the label j, `(K, K)`."""
    size = max(data.true.max(), data.labels.max()) + 1
    return np.bincount(data.true * size + data.labels, minlength=size * size).reshape(size, size)


def planted_pairs(data, count):
    """The pairs of classes that the noise swaps most, both ways added, as (i, j)."""
    counts = confusions(data)
    np.fill_diagonal(counts, 0)
    return [(i, j) for i, j, flips in top_pairs(counts + counts.T, count) if flips]


class Quality(NamedTuple):
    """How right the wrong labels are that are named.

    Attributes:
        named: how many are named.
        precision: the share of these that are wrong; nan if none is named.
        recall: the share of all wrong labels that are named; nan if none is wrong.
    """

    named: int
    precision: float
    recall: float


def quality(issues, wrong):
    """The `Quality` of `LabelIssues`, by whether each label is wrong, `(N,)`."""
    hits = wrong[issues.index[issues.is_issue]]
    share_of = [float(hits.sum() / total) if total else float("nan") for total in (len(hits), wrong.sum())]
    return Quality(len(hits), *share_of)


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
