"""A curriculum by the density of features: examples that resemble many of their class come first (CurriculumNet)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import pdist, squareform

from keras_het.base.validation import as_float64, check_integer, check_labels, check_not_negative, check_number

MAX_OF_CLASS = 16_384  # examples; the distances of more would take over 1 GiB


def density_subsets(features: Any, labels: Any, num_subsets: int = 3, percentile: float = 60.0) -> np.ndarray:
    """Better than early stopping for pair flips on digits, +14.3 points; worse without wrong labels, -1.0.

    The curriculum is level for the other noises, but with the heteroscedastic head it gains 3.4 points for weak raters,
    within two standard errors of the best method (`benchmarks/results/arena_digits.md`). The function returns the
    subset of each example: 0 is the densest and cleanest of its class, the last the most scattered.

        rho_i = the number of examples j of the class with |f_i - f_j| < d,   d the percentile of all these distances

    k-means of rho, one number for each example, divides every class into subsets. Examples with the same features have
    the same subset. Wrong labels lie apart from their class if the features separate the classes: take features of a
    model that was trained on the noisy labels or pretrained.

    Args:
        features: `(N, D)`, such as from `features(model, x)`.
        labels: noisy labels, integers, `(N,)`.
        num_subsets: at least 2.
        percentile: in (0, 100); the authors say 50 to 70 make no difference.
    Returns:
        integers in [0, num_subsets), `(N,)`.
    Raises:
        ValueError: for invalid arguments, a class of more than 16,384 examples (O(n^2) memory: give a part of them), or
            a class with fewer different densities than subsets.
    Source: Guo et al. 2018, "CurriculumNet", the section on the design of the curriculum, and the authors' code.

    Example:
        >>> dense, scattered = [[0.0], [0.1], [0.2], [0.3]], [[9.0], [-9.0]]
        >>> density_subsets(np.array(dense + scattered), np.zeros(6, "int64"), num_subsets=2, percentile=45).tolist()
        [0, 0, 0, 0, 1, 1]
    """
    rows = check_features(features)
    labels = check_labels(labels, np.inf, len(rows))
    check_integer("num_subsets", num_subsets, 2)
    if not 0.0 < check_number("percentile", percentile) < 100.0:
        raise ValueError(f"`percentile` must be in (0, 100). Received: percentile={percentile!r}")
    subsets = np.zeros(len(rows), "int64")
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        subsets[of_class] = _subsets_of_class(rows[of_class], label, num_subsets, percentile)
    return subsets


def stage_weights(subsets: Any, stage: int, weights: Sequence[float] = (1.0, 0.5, 0.5)) -> np.ndarray:
    """Better than early stopping for pair flips on digits, +14.3 points; worse without wrong labels, -1.0.

    These are the results of a curriculum by `density_subsets`. The function returns the weight of each example in one
    of its stages: subsets up to the number of the stage count, the others do not.

    Train one stage after the other:
    `for stage in range(3): model.fit(x, y, sample_weight=stage_weights(subsets, stage))`. Examples of weight 0 may also
    be left out.

    Args:
        subsets: from `density_subsets`, `(N,)`.
        stage: in [0, len(weights)).
        weights: one for each subset, at least 0; the paper's third stage has 1 for clean and 0.5 for noisy subsets (as
            we remember it).
    Returns:
        shape `(N,)`, float32.
    Raises:
        ValueError: for arguments out of range.

    Example:
        >>> stage_weights(np.array([0, 1, 2, 0]), stage=1).tolist()
        [1.0, 0.5, 0.0, 1.0]
    """
    each = check_not_negative("weights", as_float64([weights]))[0]
    subsets = check_labels(subsets, len(each), name="subsets")
    check_integer("stage", stage, 0, len(each) - 1)
    return np.where(subsets <= stage, each[subsets], 0.0).astype("float32")


def check_features(features: Any, name: str = "features") -> np.ndarray:
    """`features` as NumPy float64, if they are finite and of shape `(N, D)`."""
    rows = as_float64(features)
    if rows.ndim != 2 or not rows.shape[1]:
        raise ValueError(f"`{name}` must have shape (N, D). Received: shape {rows.shape}")
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(wrong):
        raise ValueError(f"`{name}` must be finite. Received: some that are not in row {wrong[0]}")
    return rows


def _subsets_of_class(rows, label, num_subsets, percentile):
    if len(rows) > MAX_OF_CLASS:
        rule = f"have at most {MAX_OF_CLASS} examples of a class, whose distances take 1 GiB; give a part of them"
        raise ValueError(f"`features` must {rule}. Received: {len(rows)} of class {label}")
    density = _densities(rows, percentile)
    different = np.unique(density)
    if len(different) < num_subsets:
        rule = f"have examples of at least {num_subsets} different densities in every class"
        raise ValueError(
            f"`features` must {rule}. Received: {len(different)} in class {label}, of {len(rows)} examples"
        )
    start = np.quantile(different, np.linspace(1.0, 0.0, num_subsets), method="nearest").astype("float64")
    centers, _ = kmeans2(density[:, None], start[:, None], iter=100, minit="matrix", missing="raise")
    return np.argmin(np.abs(density[:, None] - centers[:, 0]), axis=1)


def _densities(rows, percentile):
    distances = pdist(rows)
    if not len(distances):
        return np.zeros(len(rows))
    near = distances < np.percentile(distances, percentile)
    return squareform(near).sum(axis=1).astype("float64")
