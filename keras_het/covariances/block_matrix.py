"""Symmetric matrices for very many classes, computed a few rows at a time."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

BLOCK_BYTES = 64 << 20  # rows computed at once, because all rows could exceed the memory


class BlockMatrix(NamedTuple):
    """Symmetric matrix of shape `(K, K)`, stored as factors; * is elementwise.

        (left right) * (weight_left weight_right) + diag(diagonal) - shift 1' - 1 shift'

    Attributes:
        left: `(K, M)`.
        right: `(M, K)`.
        diagonal: `(K,)`.
        shift: `(K,)`, or 0.
        weights: factors of the weight, `(K, L)` and `(L, K)`; None for a weight of ones.
    """

    left: np.ndarray
    right: np.ndarray
    diagonal: np.ndarray
    shift: Any = 0.0
    weights: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def size(self) -> int:
        """Number of classes K."""
        return len(self.diagonal)

    def blocks(self) -> Iterator[slice]:
        """Yields slices that cover all rows, each small enough to compute at once."""
        step = max(1, BLOCK_BYTES // (8 * self.size))
        return (slice(start, min(start + step, self.size)) for start in range(0, self.size, step))

    def weight(self, rows: slice, start: int = 0) -> Any:
        """Returns the weight of rows, for the columns from `start` on."""
        return 1.0 if self.weights is None else self.weights[0][rows] @ self.weights[1][:, start:]

    def rows(self, rows: slice, start: int = 0, weight: Any = None) -> np.ndarray:
        """Returns rows from the column `start` on, `(B, K - start)`; pass their `weight` if it is computed already."""
        block = self.left[rows] @ self.right[:, start:]
        block *= self.weight(rows, start) if weight is None else weight
        indices = np.arange(self.size)[rows]
        has_diagonal = indices >= start
        block[has_diagonal, indices[has_diagonal] - start] += self.diagonal[indices[has_diagonal]]
        shift = np.broadcast_to(self.shift, (self.size,))
        block -= shift[rows, None]
        block -= shift[None, start:]
        return block

    def whole(self) -> np.ndarray:
        """Returns all rows, `(K, K)`."""
        return self.rows(slice(None))

    def main_diagonal(self) -> np.ndarray:
        """Returns the diagonal, `(K,)`."""
        weight = 1.0 if self.weights is None else np.einsum("kl,lk->k", *self.weights)
        return np.einsum("km,mk->k", self.left, self.right) * weight + self.diagonal - 2.0 * self.shift

    def divided(self, number: float) -> "BlockMatrix":
        """Returns the matrix divided by a number."""
        return self._replace(left=self.left / number, diagonal=self.diagonal / number, shift=self.shift / number)

    def hollow(self) -> "BlockMatrix":
        """Returns the matrix with a diagonal of zeros."""
        return self._replace(diagonal=self.diagonal - self.main_diagonal())

    def centered(self) -> "BlockMatrix":
        """Returns C A C with C = I - 1 1'/K, for this matrix A, which must have no shift."""
        if self.weights is None:
            sums = self.left @ self.right.sum(axis=1)
        else:
            sums = np.sum(self.left * (self.weights[0] @ (self.weights[1] @ self.right.T)), axis=1)
        means = (sums + self.diagonal) / self.size
        return self._replace(shift=means - 0.5 * means.mean())
