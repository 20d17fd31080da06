"""Noisy labels for experiments alone: flips with a random pattern, and the answers of weak raters."""

from typing import Any

import numpy as np

from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_every_class, check_fraction, check_integer, check_labels


def random_flip(num_classes: int, noise: float, seed: int | list[int] = 0) -> np.ndarray:
    """Returns T of flips to random targets: 1 - noise on the diagonal, the rest of each row uniform on the simplex.

    Args:
        num_classes: K >= 2.
        noise: rate of flipped labels, in [0, 1].
        seed: integer of the draw, at least 0, or a list of integers.
    Returns:
        shape `(K, K)`.
    Raises:
        ValueError: if a value is outside its range.

    Example:
        >>> random_flip(3, 0.5).diagonal().tolist()
        [0.5, 0.5, 0.5]
    """
    check_integer("num_classes", num_classes, 2)
    check_fraction("noise", noise)
    transition = (1.0 - noise) * np.eye(num_classes)
    others = ~np.eye(num_classes, dtype=bool)
    transition[others] = noise * random_generator(seed).dirichlet(np.ones(num_classes - 1), size=num_classes).ravel()
    return transition


def weak_raters(
    features: Any, labels: Any, per_class: int = 6, num_raters: int = 5, seed: int | list[int] = 0
) -> np.ndarray:
    """Returns answers of small models that saw a few clean examples each. They err on hard examples, often alike.

    The raters are, in turn, the nearest neighbour, a tree of depth 6, naive Bayes, ridge regression, and a network of 8
    hidden units. Each learns `per_class` examples of every class, drawn anew, and then labels all examples, its own
    ones too. Fewer examples make more errors: on scikit-learn's digits one, two, and six of each class leave 44%, 35%
    and 23% of the answers wrong.

    `corrupt_labels(labels, rows, seed)` gives each example the label of a rater drawn at random. Here `rows`, `(N, K)`,
    are the fractions of raters for each class, `np.eye(K)[answers].mean(axis=1)`.

    Args:
        features: finite numbers, shape `(N, D)`.
        labels: true classes, integers in [0, K), K >= 2, at least `per_class` examples of each, shape `(N,)`.
        per_class: number of examples of each class that a rater sees, at least 1.
        num_raters: M >= 1; from the sixth on the kinds begin again, with other examples.
        seed: integer of the draw, at least 0, or a list of integers.
    Returns:
        integers in [0, K), shape `(N, M)`; a function of the arguments alone.
    Raises:
        ValueError: if a value is outside its range, or a shape does not fit.

    Example:
        >>> x = np.concatenate([np.zeros((5, 1)), np.ones((5, 1))])
        >>> weak_raters(x, np.repeat([0, 1], 5), per_class=2, num_raters=3)[[0, -1]].tolist()
        [[0, 0, 0], [1, 1, 1]]
    """
    check_integer("per_class", per_class, 1)
    check_integer("num_raters", num_raters, 1)
    features, labels = np.asarray(features, "float64"), check_labels(labels, np.inf)
    _check_features(features, labels, per_class)
    rng, makers = random_generator(seed), _kinds()
    answers = np.empty((len(labels), num_raters), int)
    for rater in range(num_raters):
        seen = _examples(labels, per_class, rng)
        answers[:, rater] = makers[rater % len(makers)]().fit(features[seen], labels[seen]).predict(features)
    return answers


def _check_features(features, labels, per_class):
    if features.ndim != 2 or features.shape[:1] != labels.shape:
        raise ValueError(
            f"`features` must have shape (N, D) and `labels` (N,). Received: shapes {features.shape} and {labels.shape}"
        )
    if not np.isfinite(features).all():
        raise ValueError(f"`features` must be finite. Received: {np.sum(~np.isfinite(features))} numbers that are not")
    check_every_class(labels, max(labels.max(initial=0) + 1, 2))
    counts = np.bincount(labels)
    if counts.min() < per_class:
        rule = f"have {per_class} examples of every class, as `per_class` says"
        raise ValueError(f"`labels` must {rule}. Received: {counts.min()} of class {counts.argmin()}")


def _examples(labels, per_class, rng):
    return np.concatenate([rng.permutation(np.flatnonzero(labels == k))[:per_class] for k in range(labels.max() + 1)])


def _kinds():
    """Returns functions that make the raters. It imports scikit-learn late, because that is an optional package."""
    from sklearn import linear_model, naive_bayes, neighbors, neural_network, tree

    return (
        lambda: neighbors.KNeighborsClassifier(1),
        lambda: tree.DecisionTreeClassifier(max_depth=6, random_state=0),
        lambda: naive_bayes.GaussianNB(var_smoothing=1e-2),
        lambda: linear_model.RidgeClassifier(),
        lambda: neural_network.MLPClassifier((8,), solver="lbfgs", alpha=1.0, max_iter=50_000, random_state=0),
    )
