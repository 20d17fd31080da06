"""The Gaussian of the logits: a mean, a diagonal and a low-rank factor."""

import math
from typing import Any, NamedTuple

import numpy as np
from keras import ops

LOWEST = -1e20  # of mean logits: a class that is left out by -inf has p = 0, and log p and its gradients are numbers


def finite(loc: Any) -> Any:
    """Mean logits without -inf, which leaves a class out."""
    return ops.where(loc < LOWEST, LOWEST, loc)  # not the maximum, which may lose a nan


class LowRankNormal(NamedTuple):
    """Normal distribution of the logits u with a low-rank plus diagonal covariance.

        u = loc + scale_diag * e_K + diag(row_scale) factor e_R,      e_K ~ N(0, I_K), e_R ~ N(0, I_R) independent
        covariance = diag(scale_diag^2) + W W',   W = diag(row_scale) factor          (Collier et al. 2021, section 2)

    Everything is in units of the logits u, before any temperature; `scale_*` is a standard deviation, `variance` a variance.

    Args:
        loc: mean logits mu, shape `(..., K)`.
        scale_diag: d, standard deviations >= 0, shape `(..., K)`.
        factor: V, shape `(..., K, R)`, or `(K, R)` shared by the batch; None for a diagonal covariance.
        row_scale: v of the parameter-efficient form, shape `(..., K)`; None otherwise.

    Example:
        >>> normal = LowRankNormal(ops.zeros((1, 3)), ops.ones((1, 3)), ops.ones((1, 3, 2)))
        >>> ops.convert_to_numpy(normal.covariance())[0].astype(int).tolist()
        [[3, 2, 2], [2, 3, 2], [2, 2, 3]]
    """

    loc: Any
    scale_diag: Any
    factor: Any = None
    row_scale: Any = None

    def as_tensors(self):
        """The same distribution with arrays converted to tensors of the backend, integers to float32."""
        tensors = (None if x is None else ops.convert_to_tensor(x) for x in self)
        return LowRankNormal(*(x if x is None or "float" in str(x.dtype) else ops.cast(x, "float32") for x in tensors))

    def centered(self, center):
        """The same distribution about `center(loc)`."""
        return self._replace(loc=center(self.loc))

    def divided(self, temperature):
        """The distribution of u / temperature; a temperature that is a tensor gets its gradient by the division."""
        temperature = ops.convert_to_tensor(temperature, self.loc.dtype)
        factor = None if self.factor is None else self.factor / temperature
        return LowRankNormal(self.loc / temperature, self.scale_diag / temperature, factor, self.row_scale)

    def scaled_factor(self):
        """W, shape `(..., K, R)`, with `row_scale` multiplied in; R is 0 for a diagonal covariance."""
        if self.factor is None:
            return ops.zeros_like(self.loc)[..., None][..., :0]
        return self.factor if self.row_scale is None else self.row_scale[..., None] * self.factor

    def variance(self):
        """Marginal variances of the logits, shape `(..., K)`: d^2 + v^2 * sum_r V_kr^2, never forming W."""
        diagonal = ops.square(self.scale_diag)
        if self.factor is None:
            return diagonal
        low_rank = ops.sum(ops.square(self.factor), axis=-1)
        return diagonal + (low_rank if self.row_scale is None else ops.square(self.row_scale) * low_rank)

    def covariance(self, centered=False):
        """Covariance matrices, shape `(..., K, K)`.

        A softmax sees only differences of logits, so its noise is identified up to Sigma + c 1 1'. `centered=True` returns the part
        that is: C Sigma C with C = I - 1 1'/K, whose rows and columns sum to zero.
        """
        factor = self.scaled_factor()
        units = self.loc.shape[-1]
        diagonal = ops.square(self.scale_diag)[..., None] * ops.eye(units, dtype=self.loc.dtype)
        if self.factor is not None:
            diagonal = diagonal + ops.matmul(factor, ops.swapaxes(factor, -1, -2))
        if not centered:
            return diagonal
        rows = diagonal - ops.mean(diagonal, axis=-1, keepdims=True)
        return rows - ops.mean(rows, axis=-2, keepdims=True)

    def logits(self, nodes):
        """Logits u at `nodes` (S of them, shared by the batch), shape `(..., S, K)`."""
        logits = self.loc[..., None, :] + self.scale_diag[..., None, :] * nodes.eps_diag
        if self.factor is None:
            return logits
        noise = ops.matmul(nodes.eps_factor, ops.swapaxes(self.factor, -1, -2))
        return logits + (noise if self.row_scale is None else self.row_scale[..., None, :] * noise)

    def sample(self, nodes):
        """Logits u at `nodes` as independent samples, shape `(S, ..., K)`."""
        return ops.moveaxis(self.logits(nodes), -2, 0)

    def log_prob(self, value):
        """Log-density at `value`, shape `(..., K)` to `(...,)`; needs scale_diag > 0.

        With w = W / d and r = (value - loc) / d, the quadratic form is the least of |r - w c|^2 + |c|^2 over c, and the determinant is
        that of I + w' w: both by a QR factorisation of w above I, `(K + R, R)`, in O(K R^2) instead of O(K^3). Neither w' w, which
        would drown the I, nor a difference of large squares is formed, so float32 is enough where the factor noise is large.
        """
        residual = (ops.convert_to_tensor(value) - self.loc) / self.scale_diag
        log_det = 2.0 * ops.sum(ops.log(self.scale_diag), axis=-1)
        if self.factor is not None:
            residual, triangular = _least_squares(self.scaled_factor() / self.scale_diag[..., None], residual)
            log_det = log_det + 2.0 * ops.sum(ops.log(ops.abs(ops.diagonal(triangular, axis1=-2, axis2=-1))), axis=-1)
        quadratic = ops.sum(ops.square(residual), axis=-1)
        return -0.5 * (quadratic + log_det + self.loc.shape[-1] * math.log(2.0 * math.pi))


def _least_squares(factor, residual):
    """What is left of `residual`, `(..., K)`, above R zeros after the least squares by `factor` above I, and that matrix' QR's R.

    Args: factor: w, `(..., K, R)`.    Returns: shapes `(..., K + R)` and `(..., R, R)`.
    """
    num_factors = factor.shape[-1]
    identity = ops.broadcast_to(ops.eye(num_factors, dtype=residual.dtype), (*ops.shape(factor)[:-2], num_factors, num_factors))
    orthogonal, triangular = ops.qr(ops.concatenate([factor, identity], axis=-2))
    whole = ops.concatenate([residual, ops.zeros_like(identity[..., 0])], axis=-1)[..., None]
    fitted = ops.matmul(orthogonal, ops.matmul(ops.swapaxes(orthogonal, -1, -2), whole))
    return ops.squeeze(whole - fitted, -1), triangular


def top_pairs(covariance, count=10):
    """The pairs of classes whose covariance is largest in absolute value.

    Args: covariance: one matrix, shape `(K, K)`.    count: how many pairs, at least 0; at most K (K - 1) / 2 are returned.
    Returns: list of `(i, j, covariance)` with i < j, the largest first. Positive: the logits of i and j rise and fall together;
        negative: one rises where the other falls.
    Raises: ValueError for another shape (average a batch of matrices first) or a negative count.

    Example:
        >>> top_pairs([[1.0, 0.5, 0.0], [0.5, 1.0, -0.7], [0.0, -0.7, 1.0]], count=2)
        [(1, 2, -0.7), (0, 1, 0.5)]
    """
    matrix = ops.convert_to_numpy(covariance)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"`covariance` must be one matrix of shape (K, K). Received: shape {tuple(matrix.shape)}")
    if count < 0:
        raise ValueError(f"`count` must be at least 0. Received: count={count}")
    rows, columns = np.triu_indices(len(matrix), k=1)
    values = matrix[rows, columns]
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return [(int(rows[i]), int(columns[i]), float(values[i])) for i in order]
