"""Checks of several labels of each example."""

import numpy as np

from keras_het.base.classes import is_missing
from keras_het.base.refusal import refusal


def check_no_counts(given: np.ndarray, name: str) -> None:
    """Raises a ValueError for integers without a gap whose columns agree no more than by chance, as counts do."""
    if given.dtype.kind not in "iu" or given.min() < 0:
        return
    size, count = int(given.max()) + 1, given.shape[1]
    agree = sum(float(np.square(own := (given == k).sum(axis=1)).sum() - own.sum()) for k in range(size))
    shares = np.stack([(given == k).mean(axis=0) for k in range(size)])
    by_chance = len(given) * float((np.square(shares.sum(axis=1)) - np.square(shares).sum(axis=1)).sum())
    if agree <= by_chance:
        meant = f"are they counts of {count} classes? Give floats: {name}.astype(float)"
        rule = f"be votes whose {count} columns agree; {meant}"
        raise refusal(name, rule, "integers that agree no more than by chance")


def are_vectors(given: np.ndarray) -> bool:
    """Whether the rows of a matrix of numbers, `(N, K)`, each have a single 1, and else 0."""
    return bool(np.all((given == 0) | (given == 1)) and np.all(given.sum(axis=1) == 1))


def blanks(given: np.ndarray) -> np.ndarray:
    """Where a matrix has no label: None, nan, NA or -1."""
    if given.dtype.kind in "biu":
        return given == -1
    if given.dtype.kind == "f":
        return np.isnan(given) | (given == -1)
    return np.array([[is_missing(value) or value in (-1, "") for value in row] for row in given])
