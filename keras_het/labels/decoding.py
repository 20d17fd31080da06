"""Classes of examples whose labels are flipped by an unknown transition matrix."""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from keras_het.base.batches import row_blocks
from keras_het.labels.estimation import confident_counts

FLOOR = 1e-3  # of each row of T, spread over all classes: else one label that is impossible by T would decide
MOST_ROUNDS = 20


class Decoded(NamedTuple):
    """The class of each of N examples, by a model of the noisy labels.

    classes: the class whose row of T the probabilities are most like, `(N,)`.
    margin: how much more they are like it than like any other row, in nats, `(N,)`; not negative.
    second: the most probable other label, `(N,)`.
    """

    classes: np.ndarray
    margin: np.ndarray
    second: np.ndarray


def decode(labels: np.ndarray, p: np.ndarray) -> Decoded:
    """Returns the classes of examples by p(noisy label | x), and how clear each is.

    The class of an example is the k of the largest sum_j p_j log T_kj, the row of T that is nearest to p by the
    Kullback-Leibler divergence. T begins with the counts of confident examples; then row k is the mean p of the
    examples of class k, and so on, until no class changes. The most probable label is not always the class: where 45%
    of the labels of a class name one other class, it is often the other, by chance.

    Args:
        labels: integers in [0, K), shape `(N,)`.
        p: out of sample, shape `(N, K)`, K >= 2.
    Source: Banerjee et al. 2005, "Clustering with Bregman divergences", Algorithm 1, from that start.

    Example:
        >>> p = np.array([[0.6, 0.4, 0.0], [0.45, 0.55, 0.0], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]]).repeat(5, axis=0)
        >>> decode(np.array([0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]), p).classes[::5].tolist()
        [0, 0, 1, 2]
    """
    size = p.shape[1]
    counts = confident_counts(labels, p) + FLOOR * np.eye(size)
    transition, old = _bounded(counts / counts.sum(axis=1, keepdims=True)), None
    for _ in range(MOST_ROUNDS):
        found = _nearest(p, transition)
        if old is not None and np.array_equal(found.classes, old):
            break
        old, totals = found.classes, np.bincount(found.classes, minlength=size)
        mean = means(p, found.classes, totals)
        transition = np.where(totals[:, None] > 0, _bounded(mean), transition)
    return found


def means(values: np.ndarray, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Returns the mean row of `values`, `(N, J)`, of each class, `(K, J)`; zeros for a class without examples."""
    count = len(classes)
    member = scipy.sparse.csc_array((np.ones(count), (classes, np.arange(count))), shape=(len(totals), count))
    sums = sum(member[:, rows] @ values[rows] for rows in row_blocks(count))  # a product makes values float64
    return sums / np.maximum(totals, 1)[:, None]


def _bounded(transition: np.ndarray) -> np.ndarray:
    return (1 - FLOOR) * transition + FLOOR / len(transition)


def _nearest(p: np.ndarray, transition: np.ndarray) -> Decoded:
    """Returns the nearest row of T for each example."""
    log_rows = np.log(transition).T
    parts = [_nearest_of(p[rows], log_rows) for rows in row_blocks(len(p))]
    return Decoded(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _nearest_of(p: np.ndarray, log_rows: np.ndarray) -> Decoded:
    likeness, each = p @ log_rows, np.arange(len(p))
    classes, two = likeness.argmax(axis=1), np.partition(likeness, -2, axis=1)[:, -2:]
    others = p.copy()
    others[each, classes] = -1.0
    return Decoded(classes, two[:, 1] - two[:, 0], others.argmax(axis=1))
