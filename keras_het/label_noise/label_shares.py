"""Several labels of each example, as votes, counts or a distribution, in one form."""

from typing import Any, NamedTuple

import numpy as np

from keras_het.base.batches import as_numpy
from keras_het.base.classes import is_missing, some
from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.label_noise.dawid_skene import majority_vote


class LabelShares(NamedTuple):
    """How much the labels of each example speak for each class.

    Attributes:
        shares: fractions of the labels, `(N, K)`, each row of sum 1.
        totals: number of labels, `(N,)`; None for distributions.
    """

    shares: np.ndarray
    totals: np.ndarray | None

    def votes(self) -> np.ndarray:
        """The labels one by one, in no order, integers `(N, M)` with -1 where an example has fewer than M."""
        if self.totals is None:
            raise ValueError("`labels` must be counts or votes, for T is of single labels. Received: distributions")
        counts = np.rint(self.shares * self.totals[:, None]).astype(int)
        ends, places = np.cumsum(counts, axis=1), np.arange(int(self.totals.max()))
        found = (places[None, :, None] >= ends[:, None, :]).sum(axis=2)
        return np.where(places < self.totals[:, None], found, -1)


def label_shares(labels: Any, units: int, name: str = "labels", classes: np.ndarray | None = None) -> LabelShares:
    """Reads several labels of each example.

    Args:
        labels: votes `(N, M)`, integers, -1 for none, or names, or `label_noise.Votes`; or floats `(N, K)`: counts,
            whole numbers, or distributions of sum 1; or vectors with a single 1, `(N, K)`, of any type.
        units: K.
        name: name of the argument, for errors.
        classes: labels of the K classes, `(K,)`, for votes that are names; or None.
    Raises:
        ValueError: for other shapes or values, or an example without any label.

    Example:
        >>> label_shares([[2.0, 0.0], [1.0, 3.0]], 2).votes().tolist()
        [[0, 0, -1, -1], [0, 1, 1, 1]]
    """
    given = np.asarray(as_numpy(getattr(labels, "votes", labels)))
    rule = "be votes (N, M), integers or names, or counts or distributions (N, K) of floats"
    refuse_if(given.ndim != 2 or given.dtype.kind not in "iufOSU", name, rule, shape=given)
    if given.dtype.kind in "OSU":
        given = _numbered(given, units, classes, name)
    if given.shape[1] == units and are_vectors(given):
        return LabelShares(given.astype("float64"), np.ones(len(given), int))
    if given.dtype.kind != "f":
        if given.shape[1] == units:
            check_no_counts(given, name)
        return LabelShares(majority_vote(given, units, shares=True), (given >= 0).sum(axis=1))
    refuse_if(given.shape[1] != units, name, f"have {units} columns, one for each class", shape=given)
    given = given.astype("float64")
    refuse_first(~((given >= 0) & np.isfinite(given)), name, "be counts or fractions, at least 0", given)
    totals = given.sum(axis=1)
    empty = np.flatnonzero(totals == 0)
    refuse_if(len(empty), name, "have at least one label of every example", f"none of example {empty[:1]}")
    are_counts = np.all(given == np.rint(given))
    wrong = np.flatnonzero(np.abs(totals - 1.0) > 1e-3)
    if len(wrong) and not are_counts:
        raise refusal(name, "be whole numbers, or have rows of sum 1", f"row {wrong[0]} sums to {totals[wrong[0]]:.6g}")
    return LabelShares(given / totals[:, None], totals.astype(int) if are_counts else None)


def _numbered(given: np.ndarray, units: int, classes: np.ndarray | None, name: str) -> np.ndarray:
    """Votes that are names, or integers among None, as integers."""
    blank = blanks(given)
    values = given[~blank].tolist()
    known = np.arange(units) if classes is None else classes
    places = {label: place for place, label in enumerate(known.tolist())}
    wrong = [value for value in values if value not in places]
    rule = f"have only the classes {some(known.tolist())}" + "; give `class_names` for names" * (classes is None)
    refuse_if(wrong, name, rule, repr(wrong[0]) if wrong else "")
    votes = np.full(given.shape, -1)
    votes[~blank] = [places[value] for value in values]
    return votes


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
