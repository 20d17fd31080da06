"""The classes among the nearest neighbours of each example."""

from typing import Any

import numpy as np

from keras_het.base.batches import check_dense
from keras_het.base.classes import check_no_id
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_integer, check_labels, check_numbers


def neighbor_fractions(features: Any, labels: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The fractions of the classes among the nearest other examples, and the labels.

        p_ij = (number of the nearest `count` examples of i, without i, that have the label j) / count

    Near is a large cosine of the features. A row of zeros has the cosine 0 with all others, which are equally near: its
    shares are those of all other labels, and it is no neighbour of another. All distances are computed, in blocks:
    O(N^2 D) operations, O(N (D + K + count)) memory.

    Args:
        features: `(N, D)`, more than `count` of them not zero.
        labels: integers, `(N,)`.
        count: number of neighbours, from 1 to N - 1.
    Returns:
        shares `(N, K)`, K the largest label and 1, and the labels `(N,)`.
    Raises:
        ValueError: for other shapes, features that are no numbers, too many neighbours, or an id among the labels.
        ImportError: without scikit-learn.

    Example:
        >>> neighbor_fractions([[1, 0], [2, 0.1], [0.3, 1], [0, 2], [0.1, 1]], [0, 0, 1, 1, 0], 1)[0].tolist()
        [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    features = _unit_rows(check_numbers("features", check_dense("features", features)))
    labels = check_labels(labels, np.inf, len(features))
    check_no_id(labels, "labels")
    rows = np.flatnonzero(features.any(axis=1))
    count = check_integer("num_neighbors", count, 1, _most(len(rows)))
    module = import_extra("sklearn.neighbors", "The check by neighbours")
    search = module.NearestNeighbors(n_neighbors=count, algorithm="brute").fit(features[rows])
    of_neighbors = labels[rows][search.kneighbors(return_distance=False)]  # without the example itself
    shares, zero = np.zeros((len(labels), int(labels.max()) + 1)), np.flatnonzero(~features.any(axis=1))
    np.add.at(shares, (rows[:, None], of_neighbors), 1.0 / count)
    shares[zero] = np.bincount(labels)
    shares[zero, labels[zero]] -= 1.0
    shares[zero] /= len(labels) - 1
    return shares, labels


def _most(others: int) -> int:
    """The most neighbours that an example can have, of so many that are not zero."""
    refuse_if(others < 2, "features", "have two rows that are not all 0", others)
    return others - 1


def _unit_rows(features: np.ndarray) -> np.ndarray:
    """Features of length 1, or 0, `(N, D)`: their distances are in the order of their cosines."""
    refuse_if(features.ndim != 2 or len(features) < 2, "features", "have shape (N, D), N at least 2", shape=features)
    lengths = np.linalg.norm(features, axis=1)
    wrong = np.flatnonzero(~np.isfinite(lengths))
    if len(wrong):
        raise refusal("features", "be finite numbers", f"row {wrong[0]} of length {lengths[wrong[0]]:.4g}")
    return features / np.where(lengths > 0, lengths, 1.0)[:, None]
