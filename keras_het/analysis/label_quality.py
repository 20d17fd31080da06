"""Which labels are probably wrong, by what a model predicts out of sample."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.analysis.covariance import ConfusedPair
from keras_het.label_noise.estimation import check_probabilities, confident_counts, systematic_flips
from keras_het.predictions import exclusive_probabilities
from keras_het.validation import check_labels


class LabelIssues(NamedTuple):
    """Labels, those of the least score first, issues or not; arrays of shape `(N,)`.

    Printed, it is a table of the first of them.

    index: of the example.
    given: the label that it has.
    suggested: the class of the largest probability, of those that have a label.
    score: the probability of the given label, in [0, 1]: the less, the worse.
    is_issue: whether it is probably wrong: so many labels of its class, given and suggested, as are, and the worst of
    them. kind: of an issue, "confusable" if its two classes are taken for each other more often than others, so that a
    person may err, too, and
        look twice; "wrong" if they are not, so that the label is plainly wrong. Else "".
    """

    index: np.ndarray  # type: ignore[assignment]  # not that of a tuple
    given: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    is_issue: np.ndarray
    kind: np.ndarray

    def __str__(self) -> str:
        cells = [["index", "given", "suggested", "score", "kind"]]
        for index, given, suggested, score, _, kind in list(zip(*self, strict=True))[:20]:
            cells.append([str(index), str(given), str(suggested), f"{score:.4f}", kind])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
        ]
        count, confusable = int(self.is_issue.sum()), int((self.kind == "confusable").sum())
        return "\n".join(
            [
                *lines,
                f"{count} of {len(self.index)} labels are probably wrong, {confusable} of them of confusable classes",
            ]
        )


def find_label_issues(
    probabilities: Any, labels: Any, x: Any = None, *, pairs: Iterable | None = None, batch_size: int = 128
) -> LabelIssues:
    """The labels that are probably wrong, worst first, by the probabilities that a model gives to examples it was not
    trained on.

    By confident learning: an example counts for class j if p_j is at least the mean p_j of the examples labelled j, and
        the largest such.
    The counts for each pair (given label i, class j), scaled so that every label has its share, say how many labels i
    should be j; those with the largest p_j - p_i are the issues. A label that is the most probable class is never one.

    Which classes are confusable, the counts say: those that have more than chance would give
    (`label_noise.systematic_flips`); of two classes nobody can tell. With planted pairs and random flips in digits that
    is right for every issue whose suggestion is right, as is a learned T; the covariance of a head is right for 7 of
    10, for it has more pairs than those that are swapped (`benchmarks/README.md`). What a model was trained on, it
    predicts too well: prefer `cross_val_probabilities`.

    Args:
        probabilities: of examples that were not trained on, shape `(N, K)`, each row of sum 1; or a model of exclusive
            classes.
        labels: integers in [0, K), shape `(N,)`; those of a class that nobody has are never suggested.
        x: what a model predicts from, arrays; None beside probabilities.
        pairs: classes that are confusable, each (i, j), or a `ConfusedPair` of numbers, of which those of a positive
            covariance do not count; None asks the counts.
        batch_size: of the predictions of a model.
    Returns:
        `LabelIssues`.
    Raises:
        ValueError: for other shapes or values, or a model without `x`.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", sections 3.1 and 3.2 (prune by noise rate); the
        scores are those of cleanlab's `self_confidence`.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]]
        >>> print(find_label_issues(p, [0, 0, 1, 1, 1, 1]))
        index  given  suggested   score   kind
            2      1          0  0.0500  wrong
            1      0          0  0.8000
            3      1          1  0.8000
            0      0          0  0.9000
            4      1          1  0.9000
            5      1          1  0.9500
        1 of 6 labels are probably wrong, 0 of them of confusable classes
    """
    model = probabilities if isinstance(probabilities, keras.Model) else None
    if (model is None) != (x is None):
        rule = "be given for a model, and only for a model"
        raise ValueError(f"`x` must {rule}. Received: {'a model without x' if x is None else 'x beside probabilities'}")
    p = _distributions(probabilities if model is None else exclusive_probabilities(model, x, batch_size))
    labels = check_labels(labels, p.shape[1], len(p))
    counts = confident_counts(labels, p)
    suggested = np.where(np.bincount(labels, minlength=p.shape[1]) > 0, p, -1.0).argmax(axis=1)
    is_issue = _issues(labels, p, _joint(labels, counts)) & (suggested != labels)
    score = p[np.arange(len(p)), labels]
    confusable = systematic_flips(counts) if pairs is None else _both_ways(pairs, p.shape[1])
    kind = np.where(is_issue, np.where(confusable[suggested, labels], "confusable", "wrong"), "")
    order = np.argsort(score, kind="stable")
    return LabelIssues(order, *(part[order] for part in (labels, suggested, score, is_issue, kind)))


def _distributions(probabilities: Any) -> np.ndarray:
    """Probabilities as NumPy, if every row sums to 1."""
    p = check_probabilities(probabilities)
    wrong = np.flatnonzero(np.abs(p.sum(axis=1) - 1.0) > 1e-3)
    if len(wrong):
        raise ValueError(
            f"`probabilities` must have rows of sum 1. Received: row {wrong[0]} sums to {p[wrong[0]].sum():.6g}"
        )
    return p


def _issues(labels: np.ndarray, p: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Whether each label is an issue: for each pair (label i, class j) the `joint[i, j]` of the largest p_j - p_i."""
    is_issue = np.zeros(len(p), bool)
    for i in np.unique(labels):
        of_label = np.flatnonzero(labels == i)
        for j in np.flatnonzero(joint[i]):
            if j != i:
                margin = p[of_label, j] - p[of_label, i]
                is_issue[of_label[np.argsort(-margin, kind="stable")[: joint[i, j]]]] = True
    return is_issue


def _joint(labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How many examples have the label i and are of class j, `(K, K)`: the confident ones, scaled to all that have the
    label.
    """
    counts = counts.T.copy()
    empty = counts.sum(axis=1) == 0
    counts[empty, empty] = 1.0  # nobody is confident of these: their labels stand
    totals = np.bincount(labels, minlength=len(counts))
    exact = counts / counts.sum(axis=1, keepdims=True) * totals[:, None]
    whole = np.floor(exact).astype(int)
    missing = totals - whole.sum(axis=1)  # the largest remainders are rounded up
    ranks = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    return whole + (ranks < missing[:, None])


def _both_ways(pairs: Iterable, size: int) -> np.ndarray:
    found = np.zeros((size, size), bool)
    for pair in pairs:
        first, second = check_labels(pair[:2], size, name="pairs")
        if (
            not isinstance(pair, ConfusedPair) or pair.covariance < 0
        ):  # else they are not taken for each other, but together for others
            found[first, second] = found[second, first] = True
    return found
