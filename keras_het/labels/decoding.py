"""Classes of examples by a model of their noisy labels: the most probable ones, or those by a transition matrix."""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from keras_het.base.batches import row_blocks
from keras_het.base.seeds import random_generator
from keras_het.labels.estimation import ROUNDING, confident_counts, count_pairs

FLOOR = 1e-3  # of each row of T, spread over all classes: else one label that is impossible by T would decide
MOST_ROUNDS = 20
MAX_PROOF_ROWS = 20_000
MIN_TOLD = 0.02  # of log p(label): on correct labels, classes by T hardly differ from the most probable ones


class Decoded(NamedTuple):
    """The class of each of N examples, by a model of the noisy labels.

    classes: the label where it scores as well as any other class, else the class of the best score, `(N,)`.
    margin: difference of the two best scores, `(N,)`; not negative.
    second: the most probable other label, `(N,)`.
    is_proven: whether T proved itself on held-out labels, and makes the scores.
    """

    classes: np.ndarray
    margin: np.ndarray
    second: np.ndarray
    is_proven: bool


def decode(labels: np.ndarray, p: np.ndarray) -> Decoded:
    """Returns the classes of examples by p(noisy label | x), and how clear each is.

    The score of a class is its probability, unless a transition matrix proves itself. Then it is the score of
    `by_transition`. If 45% of the labels of a class name one other class, the most probable label is often the other by
    chance. On labels of people and rules, classes by T are wrong more often than the most probable ones.

    T proves itself on held-out labels: T of each half of the examples gives the classes of the other half. Their mean
    log p(label | class) must be above that of the most probable classes in each half, and in all by 0.02 and by two
    standard errors. And they must be the label as often. With two classes T only moves the threshold, so it proves
    nothing. A class without labels is nobody's.

    Args:
        labels: integers in [0, K), shape `(N,)`.
        p: out of sample, shape `(N, K)`.

    Example:
        >>> p = np.array([[0.6, 0.4, 0.0], [0.45, 0.55, 0.0], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]]).repeat(200, axis=0)
        >>> labels = np.repeat([0, 1, 0, 1, 1, 2, 2], [120, 80, 120, 80, 120, 80, 200])
        >>> decoded = decode(labels, p)
        >>> decoded.is_proven, decoded.classes[::200].tolist()
        (True, [0, 0, 1, 2])
    """
    is_proven = _is_proven(labels, p)
    log_rows = np.log(_transition(labels, p).T).astype(p.dtype) if is_proven else None
    occurs = np.bincount(labels, minlength=p.shape[1]) > 0
    parts = [_scored(labels[rows], p[rows], log_rows, occurs) for rows in row_blocks(len(p))]
    classes, margin, second = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Decoded(classes, margin, second, is_proven)


def by_transition(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns classes by T, `(N,)`, whether or not it proves itself; arguments are those of `decode`.

    The class of an example is the k of the largest sum_j p_j log T_kj, the row of T that is nearest to p by the
    Kullback-Leibler divergence. T begins with the counts of confident examples; then row k is the mean p of the
    examples of class k, and so on, until no class changes.

    Source: Banerjee et al. 2005, "Clustering with Bregman divergences", Algorithm 1, from that start.
    """
    return _nearest(p, _transition(labels, p))


def means(values: np.ndarray, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Returns the mean row of `values`, `(N, J)`, of each class, `(K, J)`; zeros for a class without examples."""
    count = len(classes)
    member = scipy.sparse.csc_array((np.ones(count), (classes, np.arange(count))), shape=(len(totals), count))
    sums = sum(member[:, rows] @ values[rows] for rows in row_blocks(count))  # a product makes values float64
    return sums / np.maximum(totals, 1)[:, None]


def _is_proven(labels: np.ndarray, p: np.ndarray) -> bool:
    """Returns whether classes by T of the other half tell more of held-out labels than the most probable classes."""
    if p.shape[1] < 3 or len(p) < 2:
        return False
    halves = np.array_split(random_generator(0).permutation(len(p))[:MAX_PROOF_ROWS], 2)
    gains = [_gains(labels, p, *pair) for pair in (halves, halves[::-1])]
    told, named = np.concatenate(gains, axis=1)
    is_clear = told.sum() > max(MIN_TOLD * len(told), 2.0 * np.sqrt(np.square(told).sum()))
    return bool(is_clear and min(part[0].sum() for part in gains) > 0.0 and named.sum() >= 0.0)


def _gains(labels: np.ndarray, p: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns what classes by T of the others gain in log p(label | class) and in labels that they name, `(2, n)`."""
    size, own, transition = p.shape[1], labels[rows], _transition(labels[others], p[others])
    gains = np.zeros((2, len(rows)))
    for sign, classes_of in ((1, lambda part: _nearest(part, transition)), (-1, lambda part: part.argmax(axis=1))):
        classes, known = classes_of(p[rows]), classes_of(p[others])
        counts = 1.0 / size + count_pairs(known, labels[others], size)
        gains += sign * np.stack([np.log(counts / counts.sum(axis=1, keepdims=True))[classes, own], classes == own])
    return gains


def _transition(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns T, `(K, K)`, as `by_transition` finds it."""
    size = p.shape[1]
    counts = confident_counts(labels, p) + FLOOR * np.eye(size)
    transition, old = _bounded(counts / counts.sum(axis=1, keepdims=True)), None
    for _ in range(MOST_ROUNDS):
        classes = _nearest(p, transition)
        if old is not None and np.array_equal(classes, old):
            break
        old, totals = classes, np.bincount(classes, minlength=size)
        transition = np.where(totals[:, None] > 0, _bounded(means(p, classes, totals)), transition)
    return transition


def _bounded(transition: np.ndarray) -> np.ndarray:
    return (1 - FLOOR) * transition + FLOOR / len(transition)


def _nearest(p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Returns the nearest row of T for each example, `(N,)`."""
    log_rows = np.log(transition.T).astype(p.dtype)
    return np.concatenate([(p[rows] @ log_rows).argmax(axis=1) for rows in row_blocks(len(p))])


def _scored(
    labels: np.ndarray, p: np.ndarray, log_rows: np.ndarray | None, occurs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns classes, margins and second choices of a block, by p or by the logarithms of T."""
    scores, each = np.where(occurs, p if log_rows is None else p @ log_rows, -np.inf), np.arange(len(p))
    best = scores.max(axis=1)
    classes = np.where(scores[each, labels] >= best - ROUNDING, labels, scores.argmax(axis=1))
    scores[each, scores.argmax(axis=1)] = -np.inf
    others = p.copy()
    others[each, classes] = -1.0
    return classes, best - scores.max(axis=1), others.argmax(axis=1)
