"""Labels that are drawn again, in blocks of draws, and how rare what was found is among them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

DRAWS, FEWEST = 1999, 199  # with what was found 2,000, or 200: the level .05 is a whole number of them
WORK = 1 << 25  # labels in all draws, beyond which there are fewer draws
BLOCK = 1 << 20  # labels that are held at once


def blocks(count: int) -> Iterator[int]:
    """Numbers of draws, of `count` labels each, that are made at once."""
    left = min(DRAWS, max(FEWEST, WORK // count))
    while left:
        size = min(left, max(1, BLOCK // count))
        yield size
        left -= size


def draw_of_rows(rows: np.ndarray, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A label by each of the distributions `rows[places]`, for rows `(R, K)`; of the shape of `places`."""
    ends = rows.cumsum(axis=1)
    ends = (ends / ends[:, -1:] + np.arange(len(rows))[:, None]).ravel()  # row r in [r, r + 1]: one search for all
    found = np.searchsorted(ends, places + rng.random(places.shape), side="right") - places * rows.shape[1]
    return np.minimum(found, rows.shape[1] - 1)  # r + u may be rounded to r + 1


def sum_at(table: np.ndarray, places: np.ndarray, labels: np.ndarray) -> Any:
    """The sum over n of table[places_n, labels_n], for labels `(N,)`, or `(D, N)` of D draws."""
    return table[places, labels].sum(axis=-1)


def sum_over_counts(keys: np.ndarray, function: Callable) -> np.ndarray:
    """For each row of `keys`, `(D, N)`, the sum of `function(how often it occurs)` over the keys that occur."""
    ordered = np.sort(keys, axis=1)
    last = np.ones(keys.shape, bool)
    last[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.flatnonzero(last)
    return np.bincount(ends // keys.shape[1], function(np.diff(ends, prepend=-1)), len(keys))


def p_values(statistics: np.ndarray) -> np.ndarray:
    """Of each statistic, `(D,)`, the share that is at least as large, itself included; sums in another order are equal.

    If the first is as the others are, its p-value is below a number a in a share a of all cases at most: the test is
    exact (Barnard 1963; Phipson and Smyth 2010, "Permutation p-values should never be zero").

    Example:
        >>> p_values(np.array([3.0, 1.0, 1.0, 2.0])).tolist()
        [0.25, 1.0, 1.0, 0.5]
    """
    finite = statistics[np.isfinite(statistics)]
    slack = 1e-9 * np.abs(finite).max(initial=0.0)
    smaller = np.searchsorted(np.sort(statistics), statistics - slack)
    return (len(statistics) - smaller) / len(statistics)
