"""Which labels are probably wrong, by what a model predicts out of sample."""

from typing import Any, NamedTuple

import numpy as np

from keras_het.label_noise.estimation import check_probabilities, confident_counts
from keras_het.validation import check_every_class, check_labels


class LabelIssues(NamedTuple):
    """Labels, those that are most probably wrong first; arrays of shape `(N,)`.

    Printed, it is a table of the first of them.

    index: of the example.
    given: the label that it has.
    suggested: the class of the largest probability.
    score: the probability of the given label, in [0, 1]: the less, the worse.
    is_issue: whether it is so many labels of its class, given and suggested, as are probably wrong, and one of the worst of them.
    """

    index: np.ndarray  # type: ignore[assignment]  # not that of a tuple
    given: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    is_issue: np.ndarray

    def __str__(self) -> str:
        cells = [["index", "given", "suggested", "score", "is_issue"]]
        for index, given, suggested, score, is_issue in list(zip(*self, strict=True))[:20]:
            cells.append([str(index), str(given), str(suggested), f"{score:.4f}", "yes" if is_issue else "no"])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        return "\n".join([*lines, f"{int(self.is_issue.sum())} of {len(self.index)} labels are probably wrong"])


def find_label_issues(probabilities: Any, labels: Any) -> LabelIssues:
    """The labels that are probably wrong, worst first, by the probabilities that a model gives to examples it was not trained on.

    By confident learning: an example counts for class j if p_j is at least the mean p_j of the examples labelled j, and the largest such.
    The counts for each pair (given label i, class j), scaled so that every label has its share, say how many labels i should be j; those
    with the largest p_j - p_i are the issues. A label that is the most probable class is never one.

    Args:
        probabilities: of examples that were not trained on, such as by cross-validation; shape `(N, K)`, each row of sum 1.
        labels: integers in [0, K), with an example of every class; shape `(N,)`.
    Returns: `LabelIssues`.
    Raises: ValueError for other shapes or values.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", sections 3.1 and 3.2 (prune by noise rate); the scores are those of
        cleanlab's `self_confidence`.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]]
        >>> print(find_label_issues(p, [0, 0, 1, 1, 1, 1]))
        index  given  suggested   score  is_issue
            2      1          0  0.0500       yes
            1      0          0  0.8000        no
            3      1          1  0.8000        no
            0      0          0  0.9000        no
            4      1          1  0.9000        no
            5      1          1  0.9500        no
        1 of 6 labels are probably wrong
    """
    p = check_probabilities(probabilities)
    wrong = np.flatnonzero(np.abs(p.sum(axis=1) - 1.0) > 1e-3)
    if len(wrong):
        raise ValueError(f"`probabilities` must have rows of sum 1. Received: row {wrong[0]} sums to {p[wrong[0]].sum():.6g}")
    labels = check_labels(labels, p.shape[1], len(p))
    check_every_class(labels, p.shape[1])
    own, suggested = p[np.arange(len(p)), labels], p.argmax(axis=1)
    is_issue = np.zeros(len(p), bool)
    counts = _joint(labels, p)
    for i, j in np.argwhere(counts):
        if i != j:
            of_label = np.flatnonzero(labels == i)
            margin = p[of_label, j] - own[of_label]
            is_issue[of_label[np.argsort(-margin, kind="stable")[: counts[i, j]]]] = True
    is_issue &= suggested != labels
    order = np.argsort(own, kind="stable")
    return LabelIssues(order, labels[order], suggested[order], own[order], is_issue[order])


def _joint(labels, p):
    """How many examples have the label i and are of class j, `(K, K)`: the confident ones, scaled to all that have the label."""
    counts = confident_counts(labels, p).T
    empty = counts.sum(axis=1) == 0
    counts[empty, empty] = 1.0  # nobody is confident of these: their labels stand
    totals = np.bincount(labels, minlength=len(counts))
    exact = counts / counts.sum(axis=1, keepdims=True) * totals[:, None]
    whole = np.floor(exact).astype(int)
    missing = totals - whole.sum(axis=1)  # the largest remainders are rounded up
    ranks = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    return whole + (ranks < missing[:, None])
