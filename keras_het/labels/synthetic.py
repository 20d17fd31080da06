"""Synthetic label noise: transition matrices, and labels drawn from them.

A transition matrix T is row-stochastic, T[i, j] = p(noisy label j | true class i), the transpose of the Q of Sukhbaatar
et al. 2014.
"""

from typing import Any

import numpy as np

from keras_het.base.batches import check_same_index
from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.validation import (
    check_every_class,
    check_fraction,
    check_integer,
    check_labels,
    check_one_transition,
    check_rows,
)


def symmetric(num_classes: int, noise: float) -> np.ndarray:
    """Returns T, `(K, K)`, of uniform flips to all others: 1 - noise on the diagonal, noise / (K - 1) elsewhere.

    Args:
        num_classes: K >= 2.
        noise: fraction of flipped labels, in [0, 1].

    Example:
        >>> symmetric(3, 0.5).tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    _check_flips(num_classes, noise)
    return (1.0 - noise) * np.eye(num_classes) + noise / (num_classes - 1) * (1.0 - np.eye(num_classes))


def pair_flip(num_classes: int, noise: float) -> np.ndarray:
    """Returns T, `(K, K)`, of flips to the next class: 1 - noise on the diagonal, noise at (i, i + 1) and (K - 1, 0).

    Args:
        num_classes: K >= 2.
        noise: fraction of flipped labels, in [0, 1].

    Example:
        >>> pair_flip(3, 0.25).tolist()
        [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
    """
    _check_flips(num_classes, noise)
    return (1.0 - noise) * np.eye(num_classes) + noise * np.roll(np.eye(num_classes), 1, axis=1)


def _check_flips(num_classes: int, noise: float) -> None:
    check_integer("num_classes", num_classes, 2)
    check_fraction("noise", noise)


def corrupt(labels: Any, transition: Any = None, seed: int | list[int] = 0, *, rows: Any = None) -> np.ndarray:
    """Draws noisy labels, integers of shape `(N,)`, each from the distribution of its class or its example.

    Args:
        labels: true classes, integers in [0, K), shape `(N,)`.
        transition: T, `(K, K)`, T[i, j] = p(noisy label j | true class i); None with `rows`.
        seed: seed of the draw, an integer, at least 0, or a list of integers as for `numpy.random.default_rng`.
        rows: distributions of the noisy label of each example, `(N, K)`, for instance-dependent noise, such as
            `synthetic.look_alike_transitions` returns; None with `transition`.
    Source: Sukhbaatar et al. 2014, Eq. 1, whose matrix Q is the transpose of T.

    Example:
        >>> corrupt([0, 1, 2, 2], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]).tolist()
        [1, 2, 0, 0]
        >>> corrupt([0, 0, 1], rows=[[0, 1], [1, 0], [0, 1]]).tolist()
        [1, 0, 1]
    """
    rng, count = random_generator(seed), (transition is not None) + (rows is not None)
    refuse_if(count != 1, "transition", "be T, or None with `rows`", f"{count} of the two")
    if rows is not None:
        refuse_if(np.ndim(rows) != 2, "rows", "have shape (N, K)", f"shape {np.shape(rows)}")
        bounds = _bounds(check_rows(rows, "rows"))
        check_labels(labels, bounds.shape[1], len(bounds))
        return np.sum(bounds <= rng.random((len(bounds), 1)), axis=1)
    shape, rule = np.shape(transition), "be a square matrix (K, K). Pass a row for each example as `rows`"
    refuse_if(len(shape) != 2 or shape[0] != shape[1], "transition", rule, f"shape {shape}")
    bounds = _bounds(check_one_transition(transition))
    labels = check_labels(labels, len(bounds))
    uniform, noisy = rng.random(len(labels)), np.zeros(len(labels), int)
    for i in np.unique(labels):
        noisy[labels == i] = np.searchsorted(bounds[i], uniform[labels == i], side="right")
    return noisy


def _bounds(rows):
    """Returns cumulative probabilities whose last column is exactly 1, above every uniform number."""
    sums = rows.cumsum(axis=1)
    return sums / sums[:, -1:]


def look_alike_transitions(features: Any, labels: Any, noise: float) -> np.ndarray:
    """Returns rows, `(N, K)`, of noise for `corrupt` that flips labels to the most similar other class.

        margin_n = |x_n - mean of the nearest other class|^2 - |x_n - mean of its class|^2
        p(flip of n) = min(c exp(-margin_n / sd(margin)), 1), with c such that their mean is `noise`

    Args:
        features: shape `(N, D)`.
        labels: true classes, integers in [0, K), K >= 2, all of which occur, shape `(N,)`.
        noise: fraction of flipped labels, in [0, 1].

    Example:
        >>> features = [[0.0], [0.2], [1.0], [1.2], [5.0], [5.2]]
        >>> look_alike_transitions(features, [0, 0, 1, 1, 2, 2], noise=0.3)[:2].round(2).tolist()
        [[0.59, 0.41, 0.0], [0.56, 0.44, 0.0]]
    """
    check_same_index(features=features, labels=labels)
    features, labels = np.asarray(features, "float64"), check_labels(labels, np.inf)
    check_fraction("noise", noise)
    rule = "have shape (N, D) and `labels` (N,)"
    received = f"shapes {features.shape} and {labels.shape}"
    refuse_if(features.ndim != 2 or len(features) != len(labels), "features", rule, received)
    refuse_first(~np.isfinite(features), "features", "be finite", features)
    classes = np.arange(max(labels.max(initial=0) + 1, 2))
    check_every_class(labels, len(classes))
    means = np.stack([features[labels == k].mean(0) for k in classes])
    distances = np.square(features[:, None] - means).sum(-1)
    others = np.where(labels[:, None] == classes, np.inf, distances)
    rows = np.arange(len(labels))
    margin = others.min(-1) - distances[rows, labels]
    weights = np.exp((margin.min() - margin) / max(margin.std(), np.finfo("float64").tiny))
    flips = np.minimum(_scale_for_mean(weights, noise) * weights, 1.0)
    transitions = np.zeros(distances.shape)
    transitions[rows, labels] = 1.0 - flips
    transitions[rows, others.argmin(-1)] = flips
    return transitions


def _scale_for_mean(weights, mean):
    """Returns c such that min(c * weights, 1) has this mean."""
    ordered = np.sort(weights)[::-1]
    total = mean * len(ordered)
    rest = ordered.sum() - np.concatenate([[0.0], ordered.cumsum()[:-1]])  # sum without the m largest
    scales = np.maximum(total - np.arange(len(ordered)), 0.0) / rest  # if the m largest weights become 1
    valid = np.flatnonzero(scales * ordered <= 1.0)
    return scales[valid[0]] if len(valid) else np.inf
