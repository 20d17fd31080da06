"""The base class of Gaussians of logits.

A distribution is passed on whole. It is centred and divided by the temperature once, its leading axes become one, B,
once, and it is cut into rows. `tensors` are all its tensors: first `num_rows` tensors with a row for each example, then
the tensors that all examples share.

A chunk of C nodes is a tuple of columns, cut from `tables`. The logits at a chunk have the shape `(B, K, C)`, nodes
last, so that the matrix products are plain two-dimensional ones. Gradients are sums over chunks, and `gradients` turns
the sums into the gradients of `tensors`.
"""

import functools
from collections.abc import Callable
from typing import Any, Self

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.nodes import Nodes

LOWEST = -1e20  # mean logit: a class that is left out by -inf gets p = 0, with finite log p and gradients


def finite(loc: Tensor) -> Tensor:
    """Mean logits without -inf, which leaves a class out."""
    return ops.where(loc < LOWEST, LOWEST, loc)  # not the maximum, which may lose a nan


class Normal:
    """Base class of Gaussians of logits u: mean logits, and noise that is linear in the nodes.

    A subclass defines `row_shapes`, `variance`, `logits`, `tables`, `logits_at`, `pull_back` and `gradients`.

    Args:
        tensors: all tensors, first the mean logits `(..., K)`.
        size: the numbers of entries of e_K and e_R, integers: a traced tensor may not know them.
        units: K, if it is not the first of them.

    Attributes:
        num_rows: the number of tensors that have a row for each example.
        in_logits: for each tensor, whether it grows with the logits, and is divided with them.
        whole_batch: whether a block must have all rows.
    """

    num_rows = 2
    in_logits: tuple[bool, ...] = (True, True)
    whole_batch = False

    def __init__(self, *tensors: Tensor, size: tuple[int, int], units: int | None = None) -> None:
        self.tensors, self.size, self.units = tensors, size, size[0] if units is None else units
        self.loc = tensors[0]

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the tensors with a row for each example, without their leading axes."""
        raise NotImplementedError(f"{type(self).__name__} must define row_shapes")

    @property
    def num_logits(self) -> int:
        """How many numbers a block has for every row and node."""
        return self.units

    def maker(self) -> Callable[..., Self]:
        """A function that makes a distribution of these sizes from its tensors; it keeps no reference to these."""
        return functools.partial(type(self), size=self.size)

    def standardized(self, center: Callable[[Tensor], Tensor] = finite, temperature: Tensor = 1.0) -> Self:
        """The distribution of u / temperature, with the mean logits center(loc).

        Args:
            center: function of the mean logits, such as the `center` of a link.
            temperature: a number, or a scalar tensor, which gets its gradient by the division.
        """
        temperature = ops.convert_to_tensor(temperature, self.loc.dtype)
        tensors = (center(self.loc), *self.tensors[1:])
        pairs = zip(tensors, self.in_logits, strict=True)
        return self.maker()(*(x / temperature if is_divided else x for x, is_divided in pairs))

    def flat(self) -> Self:
        """The same distribution with one leading axis, B."""
        rows, shapes = self.tensors[: self.num_rows], self.row_shapes
        if all(tuple(x.shape[1:]) == shape for x, shape in zip(rows, shapes, strict=True)):
            return self
        return self.with_rows(ops.reshape(x, (-1, *shape)) for x, shape in zip(rows, shapes, strict=True))

    def with_rows(self, rows: Any) -> Self:
        """The distribution of other examples, with the tensors that all examples share.

        Args:
            rows: the tensors that have a row for each example.
        """
        return self.maker()(*rows, *self.tensors[self.num_rows :])

    def sample(self, nodes: Nodes) -> Tensor:
        """Logits u at `nodes` as independent samples, shape `(S, ..., K)`."""
        return ops.moveaxis(self.logits(nodes), -2, 0)

    def variance(self) -> Tensor:
        """Marginal variances of the logits, shape `(..., K)`."""
        raise NotImplementedError(f"{type(self).__name__} must define variance()")

    def logits(self, nodes: Nodes) -> Tensor:
        """Logits u at `nodes` (S of them, shared by the batch), shape `(..., S, K)`."""
        raise NotImplementedError(f"{type(self).__name__} must define logits(nodes)")

    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        """Tables of S rows; a chunk has some of these rows, as columns.

        Args:
            nodes: S of them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define tables(nodes)")

    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """`(B, K, C)` logits at a chunk of nodes."""
        raise NotImplementedError(f"{type(self).__name__} must define logits_at(chunk)")

    def no_sums(self) -> tuple[Tensor, ...]:
        """Zeros to which `pull_back` adds."""
        return tuple(ops.zeros_like(x) for x in self.tensors)

    def pull_back(self, sensitivity: Tensor, chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Sums over the nodes of a chunk; `gradients` makes the gradients of `tensors` from the sums of all chunks.

        Args:
            sensitivity: gradients by the logits, `(B, K, C)`.
            chunk: columns of the tables.
        """
        raise NotImplementedError(f"{type(self).__name__} must define pull_back(sensitivity, chunk)")

    def gradients(self, *sums: Tensor) -> tuple[Tensor, ...]:
        """Gradients of `tensors` from the sums of `pull_back` over all chunks."""
        return sums
