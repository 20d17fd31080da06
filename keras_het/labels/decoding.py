"""Classes of examples by a model of their noisy labels: the most probable classes, or classes by a T."""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from keras_het.base.batches import row_blocks
from keras_het.base.seeds import random_generator
from keras_het.labels.estimation import ROUNDING, confident_counts, count_pairs

ROW_FLOOR = 1e-3  # spread over each row of T: else a single label that is impossible by T would decide the class
MAX_ROUNDS = 20
MAX_PROOF_ROWS = 20_000
MIN_LOG_GAIN = 0.02  # else T would prove itself on correct labels, where its classes hardly differ


class Decoded(NamedTuple):
    """Classes of N examples, by a model of the noisy labels.

    classes: class of the best score, `(N,)`; the label if its score is as good.
    margin: difference of the two best scores, `(N,)`; not negative.
    second: most probable label apart from the class, `(N,)`.
    is_proven: boolean, whether held-out labels prove a transition matrix, which then makes the scores.
    """

    classes: np.ndarray
    margin: np.ndarray
    second: np.ndarray
    is_proven: bool


def decode(labels: np.ndarray, p: np.ndarray) -> Decoded:
    """Returns the classes of examples by p(noisy label | x), and how clear each class is.

    The score of a class is its probability, unless held-out labels prove a transition matrix. Then it is the score of
    `classes_by_transition`. If 45% of the labels of a class name one other class, the most probable label is often that
    class by chance. On labels of people and rules, classes by T are wrong more often than the most probable classes.

    The proof uses two halves: T of each half gives the classes of the other half. Compared with the most probable
    classes, their mean log p(label | class) must be higher in each half, and in total by 0.02 and two standard errors.
    They must also equal the label at least as often. With two classes T only moves the threshold, so it is never
    proven. No example gets a class without labels.

    Args:
        labels: integers in [0, K), shape `(N,)`.
        p: out of sample, shape `(N, K)`.
    """
    is_proven = _is_proven(labels, p)
    log_rows = np.log(_transition(labels, p).T).astype(p.dtype) if is_proven else None
    occurs = np.bincount(labels, minlength=p.shape[1]) > 0
    parts = [_score_block(labels[rows], p[rows], log_rows, occurs) for rows in row_blocks(len(p))]
    classes, margin, second = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Decoded(classes, margin, second, is_proven)


def classes_by_transition(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns classes by T, `(N,)`, proven or not, for the arguments of `decode`.

    The class of an example is the k with the largest sum_j p_j log T_kj. This row of T is the nearest to p by the
    Kullback-Leibler divergence. T starts from the counts of confident examples. Then each row k becomes the mean p of
    the examples of class k, until no class changes.

    Source: Banerjee et al. 2005, "Clustering with Bregman divergences", Algorithm 1, from this start.
    """
    return _nearest(p, _transition(labels, p))


def means(values: np.ndarray, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Returns the mean row of `values`, `(N, J)`, of each class, `(K, J)`; zeros for a class without examples."""
    count = len(classes)
    member = scipy.sparse.csc_array((np.ones(count), (classes, np.arange(count))), shape=(len(totals), count))
    sums = sum(member[:, rows] @ values[rows] for rows in row_blocks(count))  # a product makes values float64
    return sums / np.maximum(totals, 1)[:, None]


def _is_proven(labels: np.ndarray, p: np.ndarray) -> bool:
    """Returns whether classes by T of the other half predict held-out labels better than the most probable classes."""
    if p.shape[1] < 3 or len(p) < 2:
        return False
    halves = np.array_split(random_generator(0).permutation(len(p))[:MAX_PROOF_ROWS], 2)
    gains = [_gains(labels, p, *pair) for pair in (halves, halves[::-1])]
    log_gains, match_gains = np.concatenate(gains, axis=1)
    is_clear = log_gains.sum() > max(MIN_LOG_GAIN * len(log_gains), 2.0 * np.sqrt(np.square(log_gains).sum()))
    return bool(is_clear and min(part[0].sum() for part in gains) > 0.0 and match_gains.sum() >= 0.0)


def _gains(labels: np.ndarray, p: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns the gains by T of the other half in log p(label | class), and in classes that are the label, `(2, n)`."""
    size, observed, transition = p.shape[1], labels[rows], _transition(labels[others], p[others])
    gains = np.zeros((2, len(rows)))
    for sign, predict in ((1, lambda part: _nearest(part, transition)), (-1, lambda part: part.argmax(axis=1))):
        classes = predict(p[rows])
        counts = 1.0 / size + count_pairs(predict(p[others]), labels[others], size)
        log_rows = np.log(counts / counts.sum(axis=1, keepdims=True))
        gains += sign * np.stack([log_rows[classes, observed], classes == observed])
    return gains


def _transition(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns the T of `classes_by_transition`, `(K, K)`."""
    size = p.shape[1]
    counts = confident_counts(labels, p) + ROW_FLOOR * np.eye(size)
    transition, old = _bounded(counts / counts.sum(axis=1, keepdims=True)), None
    for _ in range(MAX_ROUNDS):
        classes = _nearest(p, transition)
        if old is not None and np.array_equal(classes, old):
            break
        old, totals = classes, np.bincount(classes, minlength=size)
        transition = np.where(totals[:, None] > 0, _bounded(means(p, classes, totals)), transition)
    return transition


def _bounded(transition: np.ndarray) -> np.ndarray:
    return (1 - ROW_FLOOR) * transition + ROW_FLOOR / len(transition)


def _nearest(p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Returns the index of the nearest row of T for each example, `(N,)`."""
    log_rows = np.log(transition.T).astype(p.dtype)
    return np.concatenate([(p[rows] @ log_rows).argmax(axis=1) for rows in row_blocks(len(p))])


def _score_block(
    labels: np.ndarray, p: np.ndarray, log_rows: np.ndarray | None, occurs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns classes, margins and second choices of a block, by p or by log T."""
    scores, rows = np.where(occurs, p if log_rows is None else p @ log_rows, -np.inf), np.arange(len(p))
    best = scores.max(axis=1)
    classes = np.where(scores[rows, labels] >= best - ROUNDING, labels, scores.argmax(axis=1))
    scores[rows, scores.argmax(axis=1)] = -np.inf
    others = p.copy()
    others[rows, classes] = -1.0
    return classes, best - scores.max(axis=1), others.argmax(axis=1)
