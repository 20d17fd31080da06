"""Packs a Gaussian of logits into one tensor, to pass it from a layer to a loss."""

from typing import Any, NamedTuple

from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.tensor import Tensor
from keras_het.ops.low_rank import LowRankNormal
from keras_het.ops.normal import DiagonalNormal

INFERENCE_STEP = -1.0
MAX_STEPS = 1 << 23  # float32 holds every smaller integer exactly; then the count starts again


class Unpacked(NamedTuple):
    """Gaussian of the logits, and the training step of the noise: a scalar int32, -1 at inference."""

    normal: DiagonalNormal
    step: Tensor


def packed_width(units: int, num_factors: int) -> int:
    """Returns the numbers per row: K means, K standard deviations, K R entries of the factor, and the step."""
    return units * (2 + num_factors) + 1


def pack(normal: Any, step: Tensor | None = None) -> Tensor:
    """Returns the tensor (mu, d, V, step) of a Gaussian, `(..., K (2 + R) + 1)`; `step` is None at inference.

    Example:
        >>> from keras_het.ops.low_rank import LowRankNormal
        >>> packed = pack(LowRankNormal(ops.zeros((5, 3)), ops.ones((5, 3)), ops.ones((5, 3, 2))))
        >>> tuple(packed.shape), int(unpack(packed, units=3).step)
        ((5, 13), -1)
    """
    loc, parts = normal.loc, [normal.loc, normal.scale_diag]
    if normal.size[1]:
        parts += [ops.reshape(normal.scaled_factor(), (*ops.shape(loc)[:-1], normal.size[0] * normal.size[1]))]
    last = INFERENCE_STEP if step is None else ops.cast(step % MAX_STEPS, loc.dtype)
    return ops.concatenate([*parts, ops.zeros_like(loc[..., :1]) + last], axis=-1)


def unpack(packed: Tensor, units: int) -> Unpacked:
    """Returns the Gaussian and the training step of a packed tensor; raises a ValueError for another width."""
    num_factors = packed_factors(packed.shape[-1], units)
    if num_factors is None:
        rule = f"have shape (..., {units} (2 + R) + 1), the distribution of {units} logits with R factors"
        raise refusal("y_pred", rule, shape=packed)
    return unpack_sized(packed, units, num_factors)


def packed_factors(width: int, units: int) -> int | None:
    """Returns the number of factors in a packed tensor; None for other widths."""
    factors, rest = divmod(width - packed_width(units, 0), units)
    return None if rest or factors < 0 else factors


def unpack_sized(packed: Tensor, units: int, num_factors: int) -> Unpacked:
    """Unpacks a tensor of given sizes, because PyTorch's exporters have no sizes as numbers; see `unpack`."""
    step = ops.cast(ops.max(packed[..., -1]), "int32")
    loc, scale_diag = packed[..., :units], packed[..., units : 2 * units]
    if not num_factors:
        return Unpacked(DiagonalNormal(loc, scale_diag), step)
    factor = ops.reshape(packed[..., 2 * units : -1], (*ops.shape(packed)[:-1], units, num_factors))
    return Unpacked(LowRankNormal(loc, scale_diag, factor, size=(units, num_factors)), step)
