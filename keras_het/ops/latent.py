"""Gaussian noise of the features before the last map, mapped to the logits."""

import functools
from collections.abc import Callable
from typing import Self

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.nodes import Nodes
from keras_het.ops.normal import Normal


class LatentNormal(Normal):
    """Gaussian u = loc + kernel' (scale_diag * e_D + factor e_R): noise of the D features, mapped to the K logits.

    The kernel of the mean logits, W, `(D, K)`, also maps the noise. `loc` is the mean mu of the logits, `(..., K)`.
    `scale_diag` is d' >= 0, the standard deviations of the features' noise, `(..., D)`, and `factor` V', `(..., D, R)`.

        covariance = kernel' (diag(scale_diag^2) + factor factor') kernel

    Source: Collier, Jenatton, Mustafa, Houlsby, Berent and Kokiopoulou: Massively scaling heteroscedastic classifiers.
        ICLR 2023.

    Example:
        >>> normal = LatentNormal(ops.zeros((1, 3)), ops.ones((1, 2)), ops.zeros((1, 2, 1)), ops.ones((2, 3)))
        >>> ops.convert_to_numpy(normal.covariance())[0].astype(int).tolist()
        [[2, 2, 2], [2, 2, 2], [2, 2, 2]]
    """

    num_rows = 3
    is_divided = (True, True, True, False)
    whole_batch = True  # each block adds an array of the kernel's size to its gradient, so blocks must be few

    def __init__(
        self,
        loc: Tensor,
        scale_diag: Tensor,
        factor: Tensor,
        kernel: Tensor,
        size: tuple[int, int] | None = None,
        units: int | None = None,
    ) -> None:
        size, units = size or (scale_diag.shape[-1], factor.shape[-1]), units or kernel.shape[-1]
        super().__init__(loc, scale_diag, factor, kernel, size=size, units=units)
        self.scale_diag, self.factor, self.kernel = scale_diag, factor, kernel

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.units,), self.size[:1], self.size

    def maker(self) -> Callable[..., Self]:
        return functools.partial(type(self), size=self.size, units=self.units)

    @property
    def num_logits(self) -> int:
        """Larger of K and D, because a block has arrays of both sizes."""
        return max(self.units, self.size[0])

    def variance(self) -> Tensor:
        low_rank = ops.sum(ops.square(ops.matmul(ops.swapaxes(self.factor, -1, -2), self.kernel)), axis=-2)
        return ops.matmul(ops.square(self.scale_diag), ops.square(self.kernel)) + low_rank

    def centered_variance(self) -> Tensor:
        kernel = self.kernel - ops.mean(self.kernel, axis=-1, keepdims=True)
        return self.maker()(self.loc, self.scale_diag, self.factor, kernel).variance()

    def covariance_times(self, vector: Tensor) -> Tensor:
        vector = ops.matmul(vector, ops.transpose(self.kernel))
        projection = ops.einsum("...dr,...d->...r", self.factor, vector)
        product = ops.square(self.scale_diag) * vector + ops.einsum("...dr,...r->...d", self.factor, projection)
        return ops.matmul(product, self.kernel)

    def covariance(self, centered: bool = False) -> Tensor:
        kernel = self.kernel - ops.mean(self.kernel, axis=-1, keepdims=True) if centered else self.kernel
        diagonal = ops.square(self.scale_diag)[..., None] * ops.eye(self.kernel.shape[0], dtype=self.loc.dtype)
        feature_covariance = diagonal + ops.matmul(self.factor, ops.swapaxes(self.factor, -1, -2))
        return ops.matmul(ops.matmul(ops.transpose(kernel), feature_covariance), kernel)

    def logits(self, nodes: Nodes) -> Tensor:
        noise = self.scale_diag[..., None, :] * nodes.eps_diag + ops.matmul(
            nodes.eps_factor, ops.swapaxes(self.factor, -1, -2)
        )
        return self.loc[..., None, :] + ops.matmul(noise, self.kernel)

    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        return nodes.eps_diag, nodes.eps_factor

    def _noise_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """Returns the noise of the features at a chunk of nodes, `(D, B C)`."""
        return _features_first(self.scale_diag[..., None] * chunk[0] + ops.matmul(self.factor, chunk[1]))

    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """Returns logits at a chunk of nodes, `(B, K, C)`.

        One matrix product covers all rows of the batch. In `vjp`, a product for each row would make B arrays of the
        size of the kernel before the sum.
        """
        noise = ops.matmul(ops.transpose(self.kernel), self._noise_at(chunk))
        return self.loc[..., None] + _rows_first(noise, chunk)

    def vjp(self, cotangent: Tensor, chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        grad_logits = _features_first(cotangent)
        grad_noise = _rows_first(ops.matmul(self.kernel, grad_logits), chunk)
        grad_scale_diag = ops.sum(grad_noise * chunk[0], axis=-1)
        grad_factor = ops.matmul(grad_noise, ops.transpose(chunk[1]))
        grad_kernel = ops.matmul(self._noise_at(chunk), ops.transpose(grad_logits))
        return ops.sum(cotangent, axis=-1), grad_scale_diag, grad_factor, grad_kernel


def _features_first(x: Tensor) -> Tensor:
    """Reshapes `(B, D, C)` to `(D, B C)`."""
    return ops.reshape(ops.transpose(x, (1, 0, 2)), (x.shape[1], -1))


def _rows_first(x: Tensor, chunk: tuple[Tensor, ...]) -> Tensor:
    """Reshapes `(D, B C)` to `(B, D, C)`."""
    return ops.transpose(ops.reshape(x, (x.shape[0], -1, chunk[0].shape[-1])), (1, 0, 2))
