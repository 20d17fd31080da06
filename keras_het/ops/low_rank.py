"""Gaussians of logits with a low-rank factor."""

import abc

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.nodes import Nodes
from keras_het.ops.normal import DiagonalNormal
from keras_het.ops.passes import product


class _FactorNormal(DiagonalNormal):
    """Base class of Gaussians whose factor noise has a gradient `(B, K, R)`."""

    num_rows = 3

    def zero_sums(self) -> tuple[Tensor, ...]:
        return ops.zeros_like(self.loc), ops.zeros((*self.loc.shape, self.size[1] + 1), self.loc.dtype)

    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        """Returns tables of S rows: e_K, the input of the factor noise for `logits_at`, and (e_R, 1) for `vjp`."""
        # The ones join here and not in `vjp`, the body of a loop, because XLA miscompiles some fusions with a
        # concatenation on GPUs (jax-ml/jax issue 40588). Trainings on an H100 ended in NaN; the cause is unknown.
        ones = ops.ones_like(nodes.eps_diag[:, :1])
        return nodes.eps_diag, self.noise_table(nodes), ops.concatenate([nodes.eps_factor, ones], axis=1)

    @abc.abstractmethod
    def noise_table(self, nodes: Nodes) -> Tensor:
        """Returns the table from which `logits_at` computes the factor noise, `(S, R)` or `(S, K)`."""

    def vjp(self, cotangent: Tensor, chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Returns sums of `cotangent` times e_K, `(B, K)`, and times (e_R, 1), `(B, K, R + 1)`, over a chunk of nodes.

        The second sum is one matrix product without a reshape. Devices that share the classes could not share an axis
        B K, so each device would gather all classes.
        """
        eps_diag, _, eps_factor_and_one = chunk
        grad_factor_and_loc = ops.matmul(cotangent, ops.transpose(eps_factor_and_one))
        return ops.sum(cotangent * eps_diag, axis=-1), grad_factor_and_loc

    def gradients(self, grad_scale_diag: Tensor, grad_factor_and_loc: Tensor) -> tuple[Tensor, ...]:
        return grad_factor_and_loc[..., -1], grad_scale_diag, grad_factor_and_loc[..., :-1]


class LowRankNormal(_FactorNormal):
    """Gaussian with a low-rank plus diagonal covariance.

        u = loc + scale_diag * e_K + factor e_R,      e_K ~ N(0, I_K), e_R ~ N(0, I_R) independent
        covariance = diag(scale_diag^2) + factor factor'                       (Collier et al. 2021, section 2)

    Args:
        loc: mean logits mu, shape `(..., K)`.
        scale_diag: d, standard deviations >= 0, shape `(..., K)`.
        factor: V, shape `(..., K, R)`.
        size: K and R, integers; None reads them from the shapes.

    Example:
        >>> normal = LowRankNormal(ops.zeros((1, 3)), ops.ones((1, 3)), ops.ones((1, 3, 2)))
        >>> ops.convert_to_numpy(normal.covariance())[0].astype(int).tolist()
        [[3, 2, 2], [2, 3, 2], [2, 2, 3]]
    """

    is_divided = (True, True, True)

    def __init__(self, loc: Tensor, scale_diag: Tensor, factor: Tensor, size: tuple[int, int] | None = None) -> None:
        super().__init__(loc, scale_diag, factor, size=size or (scale_diag.shape[-1], factor.shape[-1]))
        self.factor = factor

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.units,), (self.units,), self.size

    def scaled_factor(self) -> Tensor:
        return self.factor

    def variance(self) -> Tensor:
        return super().variance() + ops.sum(ops.square(self.factor), axis=-1)

    def covariance_times(self, vector: Tensor) -> Tensor:
        projection = ops.einsum("...kr,...k->...r", self.factor, vector)
        return super().covariance_times(vector) + ops.einsum("...kr,...r->...k", self.factor, projection)

    def logits(self, nodes: Nodes) -> Tensor:
        return super().logits(nodes) + ops.matmul(nodes.eps_factor, ops.swapaxes(self.factor, -1, -2))

    def noise_table(self, nodes: Nodes) -> Tensor:
        return nodes.eps_factor

    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        logits = super().logits_at(chunk)
        logits += product(self.factor, chunk[1])
        return logits


class ScaledLowRankNormal(_FactorNormal):
    """Gaussian u = loc + scale_diag * e_K + row_scale * (factor e_R), with a factor that all examples share.

    Its covariance is diag(scale_diag^2) + W W', with W = diag(row_scale) factor.

    Args:
        loc: mean logits mu, shape `(..., K)`.
        scale_diag: d, standard deviations >= 0, shape `(..., K)`.
        row_scale: v, shape `(..., K)`.
        factor: V, shape `(K, R)`.
        size: K and R, integers; None reads them from the shapes.
    """

    is_divided = (True, True, False, True)

    def __init__(
        self, loc: Tensor, scale_diag: Tensor, row_scale: Tensor, factor: Tensor, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(loc, scale_diag, row_scale, factor, size=size or (scale_diag.shape[-1], factor.shape[-1]))
        self.row_scale, self.factor = row_scale, factor

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.units,),) * 3

    def scaled_factor(self) -> Tensor:
        return self.row_scale[..., None] * self.factor

    def variance(self) -> Tensor:
        return super().variance() + ops.square(self.row_scale) * ops.sum(ops.square(self.factor), axis=-1)

    def covariance_times(self, vector: Tensor) -> Tensor:
        projection = ops.matmul(self.row_scale * vector, self.factor)
        return super().covariance_times(vector) + self.row_scale * ops.matmul(projection, ops.transpose(self.factor))

    def logits(self, nodes: Nodes) -> Tensor:
        noise = ops.matmul(nodes.eps_factor, ops.swapaxes(self.factor, -1, -2))
        return super().logits(nodes) + self.row_scale[..., None, :] * noise

    def noise_table(self, nodes: Nodes) -> Tensor:
        """Returns factor e_R, `(S, K)`, computed once for the whole batch."""
        return ops.matmul(nodes.eps_factor, ops.transpose(self.factor))

    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        logits = super().logits_at(chunk)
        logits += self.row_scale[..., None] * chunk[1]
        return logits

    def gradients(self, grad_scale_diag: Tensor, grad_factor_and_loc: Tensor) -> tuple[Tensor, ...]:
        grad_loc, _, grad_factor = super().gradients(grad_scale_diag, grad_factor_and_loc)
        grad_row_scale = ops.sum(grad_factor * self.factor, axis=-1)
        return grad_loc, grad_scale_diag, grad_row_scale, ops.sum(self.row_scale[..., None] * grad_factor, axis=0)
