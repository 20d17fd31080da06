"""A transition matrix that is known from a few examples alone, with its uncertainty."""

from typing import Any

import numpy as np

from keras_het.base.batches import check_same_index
from keras_het.base.validation import check_integer, check_labels
from keras_het.label_noise.matrices import from_confusion


class CountedTransition:
    """T from counts of a few examples of which the true class is known, and how far it may be off.

        T[i, j] = counts[i, j] / n_i,    row i of a draw ~ Dirichlet(counts[i] + 1 / K),    n_i = sum_j counts[i, j]

    `true_performance` and `conformal_sets` draw it anew for each of their samples, so that its error
    is in their intervals.

    Args:
        counts: examples of true class i with the label j, shape `(K, K)`, with an example of every class; see
            `from_labels`.
    Raises:
        ValueError: for another shape, a negative count, or a class without examples.
    Source: the prior of 1 / K for each entry is that of Perks 1947, "Some observations on inverse probability".

    Example:
        >>> CountedTransition([[3, 1], [0, 2]]).transition.tolist()
        [[0.75, 0.25], [0.0, 1.0]]
    """

    def __init__(self, counts: Any) -> None:
        self.transition = from_confusion(counts)
        self.counts = np.asarray(counts, "float64")

    @classmethod
    def from_labels(cls, true: Any, labels: Any, num_classes: int) -> "CountedTransition":
        """Counts the labels of examples of which the true class is known.

        Args:
            true: the true classes, integers in [0, K), shape `(N,)`.
            labels: noisy labels of the same examples, integers in [0, K), shape `(N,)`.
            num_classes: K >= 2.
        Raises:
            ValueError: for labels out of range, or a class without examples.

        Example:
            >>> CountedTransition.from_labels([0, 0, 1], [0, 1, 1], 2).counts.tolist()
            [[1.0, 1.0], [0.0, 1.0]]
        """
        size = check_integer("num_classes", num_classes, 2)
        check_same_index(true=true, labels=labels)
        true = check_labels(true, size, name="true")
        labels = check_labels(labels, size, len(true))
        return cls(np.bincount(true * size + labels, minlength=size * size).reshape(size, size))

    @property
    def inverse(self) -> np.ndarray:
        """An estimate of the inverse of the true T, `(K, K)`.

            (T + M)^-1,    M[i, j] = sum_k Cov(T[i, j], T[i, k]) W[k, i],    W = T^-1

        Errors of T make W too large on average, by W M W to second order, which this takes off. Rows are independent,
        and Cov(T[i]) = (diag(T[i]) - T[i] T[i]') / n_i.
        """
        t, w = self.transition, np.linalg.inv(self.transition)
        covered = t * w.T - t * np.einsum("ik,ki->i", t, w)[:, None]
        return np.linalg.inv(t + covered / self.counts.sum(axis=1, keepdims=True))

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A T that the counts allow, `(K, K)`, by a generator of NumPy, `rng`."""
        rows = rng.standard_gamma(self.counts + 1.0 / len(self.counts))
        return rows / rows.sum(axis=1, keepdims=True)
