"""Base classes of Gaussians of logits.

An expectation first centres the distribution, divides it by the temperature, and merges its leading axes into one
axis, B. Then it cuts the distribution into rows. `tensors` are first `num_rows` tensors with a row for each example,
then the tensors that all examples share.

A chunk of C nodes is a tuple of columns, cut from `tables`. The logits at a chunk are `(B, K, C)`, nodes last, so the
matrix products are two-dimensional. `vjp` returns sums over a chunk, and `gradients` turns the sums over all chunks
into the gradients of `tensors`.
"""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, Self

from keras import ops

from keras_het.base.eager import numbers
from keras_het.base.refusal import refuse_if
from keras_het.base.tensor import Tensor
from keras_het.ops.nodes import Nodes

MIN_LOGIT = -1e20  # in place of -inf: an excluded class gets p = 0, with finite log p and gradients


def finite(loc: Tensor) -> Tensor:
    """Returns mean logits without -inf, which excludes a class."""
    (lower,) = numbers(MIN_LOGIT, beside=loc)
    return ops.where(loc < lower, lower, loc)  # a maximum could lose a nan


class Normal(abc.ABC):
    """Base class of Gaussians of logits u: mean logits, and noise that is linear in the nodes.

    Args:
        tensors: all tensors, first the mean logits `(..., K)`.
        size: numbers of entries of e_K and e_R, integers, because the shape of a traced tensor can be unknown.
        units: K, if it differs from the first number.

    Attributes:
        num_rows: number of tensors with a row for each example.
        is_divided: boolean for each tensor, whether a division of the logits divides it.
        whole_batch: boolean, whether a block must have all rows.
    """

    num_rows = 2
    is_divided: tuple[bool, ...] = (True, True)
    whole_batch = False

    def __init__(self, *tensors: Tensor, size: tuple[int, int], units: int | None = None) -> None:
        self.tensors, self.size, self.units = tensors, size, size[0] if units is None else units
        self.loc = tensors[0]

    @property
    @abc.abstractmethod
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the tensors with a row for each example, without their leading axes."""

    @property
    def num_logits(self) -> int:
        """Number of array elements in a block for each row and node."""
        return self.units

    def maker(self) -> Callable[..., Self]:
        """Builds a constructor for these sizes. It holds no reference to `self`, which would keep all tensors alive."""
        return functools.partial(type(self), size=self.size)

    def standardized(self, center: Callable[[Tensor], Tensor] = finite, temperature: Tensor = 1.0) -> Self:
        """Returns the distribution of u / temperature, with the mean logits center(loc)."""
        tensors = (center(self.loc), *self.tensors[1:])
        if isinstance(temperature, float) and temperature == 1.0:
            return self.maker()(*tensors)
        temperature = ops.convert_to_tensor(temperature, self.loc.dtype)
        pairs = zip(tensors, self.is_divided, strict=True)
        return self.maker()(*(x / temperature if is_divided else x for x, is_divided in pairs))

    def flat(self) -> Self:
        """Returns the same distribution with one leading axis, B."""
        rows, shapes = self.tensors[: self.num_rows], self.row_shapes
        if all(tuple(x.shape[1:]) == shape for x, shape in zip(rows, shapes, strict=True)):
            return self
        return self.with_rows(ops.reshape(x, (-1, *shape)) for x, shape in zip(rows, shapes, strict=True))

    def with_rows(self, rows: Any) -> Self:
        """Returns the distribution of other examples, from their `num_rows` tensors."""
        return self.maker()(*rows, *self.tensors[self.num_rows :])

    def logits(self, nodes: Nodes) -> Tensor:
        """Returns the logits u at S `nodes`, shape `(..., S, K)`."""
        return ops.swapaxes(self.logits_at(tuple(ops.transpose(x) for x in self.tables(nodes))), -1, -2)

    @abc.abstractmethod
    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        """Returns tables of S rows, one for each node."""

    @abc.abstractmethod
    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """Returns logits at a chunk of nodes, `(B, K, C)`."""

    def zero_sums(self) -> tuple[Tensor, ...]:
        """Returns the initial value of the sums that `vjp` accumulates."""
        return tuple(ops.zeros_like(x) for x in self.tensors)

    @abc.abstractmethod
    def vjp(self, cotangent: Tensor, chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Returns sums over a chunk of nodes, for the gradient of the logits, `cotangent`, `(B, K, C)`."""

    def gradients(self, *sums: Tensor) -> tuple[Tensor, ...]:
        """Returns the gradients of `tensors` from the sums that `vjp` returned, added over all chunks."""
        return sums


class DiagonalNormal(Normal):
    """Gaussian u = loc + scale_diag * e_K: independent noise, with a standard deviation for each class.

    Args:
        loc: mean logits mu, shape `(..., K)`.
        scale_diag: d, standard deviations >= 0, shape `(..., K)`.
        others: further tensors of a subclass.
        size: K and R, integers; None reads them from the shapes.
    """

    def __init__(self, loc: Tensor, scale_diag: Tensor, *others: Tensor, size: tuple[int, int] | None = None) -> None:
        super().__init__(loc, scale_diag, *others, size=size or (scale_diag.shape[-1], 0))
        self.scale_diag = scale_diag

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.units,),) * 2

    def scaled_factor(self) -> Tensor:
        """Returns W, shape `(..., K, R)`; here R is 0."""
        return ops.zeros_like(self.loc)[..., None][..., :0]

    def variance(self) -> Tensor:
        """Returns the marginal variances of the logits, shape `(..., K)`."""
        return ops.square(self.scale_diag)

    def centered_variance(self) -> Tensor:
        """Returns the diagonal of C Sigma C, `(..., K)`, the variances that affect a softmax, and loses no digits."""
        diagonal, factor = ops.square(self.scale_diag), self.scaled_factor()
        mean = ops.mean(diagonal, axis=-1, keepdims=True) / diagonal.shape[-1]
        shared = ops.sum(ops.square(factor - ops.mean(factor, axis=-2, keepdims=True)), axis=-1)
        return diagonal * (1.0 - 2.0 / diagonal.shape[-1]) + mean + shared

    def covariance_times(self, vector: Tensor) -> Tensor:
        """Returns the covariance times a vector, `(..., K)` to `(..., K)`, in O(K R)."""
        return ops.square(self.scale_diag) * vector

    def covariance(self, centered: bool = False) -> Tensor:
        """Returns covariance matrices, shape `(..., K, K)`.

        A softmax depends only on differences of logits, so Sigma and Sigma + c 1 1' give the same probabilities.
        `centered=True` returns the identified part: C Sigma C with C = I - 1 1'/K, whose rows and columns sum to zero.
        """
        factor = self.scaled_factor()
        matrix = ops.square(self.scale_diag)[..., None] * ops.eye(self.loc.shape[-1], dtype=self.loc.dtype)
        if centered:  # before the product: a large part that all classes share would leave no digits of the rest
            factor = factor - ops.mean(factor, axis=-2, keepdims=True)
            matrix = matrix - ops.mean(matrix, axis=-1, keepdims=True)
            matrix = matrix - ops.mean(matrix, axis=-2, keepdims=True)
        return matrix + ops.matmul(factor, ops.swapaxes(factor, -1, -2)) if factor.shape[-1] else matrix

    def logits(self, nodes: Nodes) -> Tensor:
        return self.loc[..., None, :] + self.scale_diag[..., None, :] * nodes.eps_diag

    def log_prob(self, value: Tensor) -> Tensor:
        """Returns the log-density at `value`, shape `(..., K)` to `(...)`; needs scale_diag > 0.

        S values of each example, `(..., S, K)`, as `logits` returns them, give `(..., S)`. Raises a ValueError for
        other shapes.
        """
        value = ops.convert_to_tensor(value)
        *leading, units = self.loc.shape
        has_several = len(value.shape) == len(leading) + 2
        axes = value.shape[: -1 - has_several]
        pairs = [set(pair) for pair in zip(reversed(axes), reversed(leading), strict=False)]
        fits = all(len(pair - {1, None}) < 2 for pair in pairs) and len(axes) <= len(leading)
        rule = f"have shape ({', '.join(map(str, [*leading, units]))}), or (..., S, {units}) for S values per example"
        refuse_if(not fits or value.shape[-1:] != (units,), "value", rule, shape=value)
        distance, log_det = self.distance_and_log_det(ops.moveaxis(value, -2, 0) if has_several else value)
        log_p = -0.5 * (distance + log_det + units * math.log(2.0 * math.pi))
        return ops.moveaxis(log_p, 0, -1) if has_several else log_p

    def distance_and_log_det(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (value - loc)' Sigma^-1 (value - loc) and log det Sigma, `(...)` each; needs scale_diag > 0.

        Let w = W / d and r = (value - loc) / d. The quadratic form is the minimum of |r - w c|^2 + |c|^2 over c, and
        det Sigma = prod(d^2) det(I + w' w). Both come from a QR factorisation of w stacked on I, `(K + R, R)`, in
        O(K R^2) instead of O(K^3). Nothing is lost in float32 if the factor noise is large: no sum I + w' w is formed,
        and no difference of large squares.
        """
        residual, factor = (value - self.loc) / self.scale_diag, self.scaled_factor()
        log_det = 2.0 * ops.sum(ops.log(self.scale_diag), axis=-1)
        if factor.shape[-1]:
            residual, triangular = least_squares(factor / self.scale_diag[..., None], residual)
            log_det = log_det + 2.0 * ops.sum(ops.log(ops.abs(ops.diagonal(triangular, axis1=-2, axis2=-1))), axis=-1)
        return ops.sum(ops.square(residual), axis=-1), log_det

    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        return (nodes.eps_diag,)

    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        logits = self.scale_diag[..., None] * chunk[0]
        # In place on PyTorch, to save a pass over new memory.
        logits += self.loc[..., None]
        return logits

    def zero_sums(self) -> tuple[Tensor, ...]:
        return ops.zeros_like(self.loc), ops.zeros_like(self.loc)

    def vjp(self, cotangent: Tensor, chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Returns sums over a chunk of nodes: of `cotangent` times e_K, and of `cotangent`, `(B, K)` each."""
        return ops.sum(cotangent * chunk[0], axis=-1), ops.sum(cotangent, axis=-1)

    def gradients(self, grad_scale_diag: Tensor, grad_loc: Tensor) -> tuple[Tensor, ...]:
        return grad_loc, grad_scale_diag


def least_squares(factor: Tensor, residual: Tensor, xp: Any = ops) -> tuple[Tensor, Tensor]:
    """Fits `residual` stacked on R zeros by least squares, with `factor`, `(..., K, R)`, stacked on I as the matrix.

    Returns the residual of the fit, `(..., K + R)`, and the triangular factor of the matrix, `(..., R, R)`. With NumPy
    as `xp` it computes in float64 on every backend.
    """
    num_factors, qr = factor.shape[-1], ops.qr if xp is ops else xp.linalg.qr
    shape = (*xp.shape(factor)[:-2], num_factors, num_factors)
    identity = xp.broadcast_to(xp.eye(num_factors, dtype=residual.dtype), shape)
    orthogonal, triangular = qr(xp.concatenate([factor, identity], axis=-2))
    whole = xp.pad(residual, [(0, 0)] * (len(residual.shape) - 1) + [(0, num_factors)])[..., None]
    fitted = xp.matmul(orthogonal, xp.matmul(xp.swapaxes(orthogonal, -1, -2), whole))
    return xp.squeeze(whole - fitted, -1), triangular
