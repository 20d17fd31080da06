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
    """Contents of a packed tensor.

    Attributes:
        normal: Gaussian of the logits.
        step: training step of the noise, a scalar int32; -1 at inference.
        flips: flip rates of true labels 1 and of true labels 0, `(..., K)` each; None for correct labels.
    """

    normal: DiagonalNormal
    step: Tensor
    flips: tuple[Tensor, Tensor] | None = None


def packed_width(units: int, num_factors: int, has_flips: bool = False) -> int:
    """Returns the numbers per row: K means, K standard deviations, K R entries of the factor, and the step.

    Flip rates add 2 K + 1: the extra zero distinguishes their width from the width of two more factors.
    """
    return units * (2 + num_factors) + 1 + (2 * units + 1 if has_flips else 0)


def pack(normal: Any, step: Tensor | None = None, flips: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Returns the tensor (mu, d, V, step) of a Gaussian, `(..., K (2 + R) + 1)`, or (mu, d, V, flips, 0, step).

    Args:
        normal: Gaussian of K logits, with R factors.
        step: training step, an integer scalar; None at inference.
        flips: flip rates, `(K,)` each; None for correct labels.

    Example:
        >>> from keras_het.ops.low_rank import LowRankNormal
        >>> packed = pack(LowRankNormal(ops.zeros((5, 3)), ops.ones((5, 3)), ops.ones((5, 3, 2))))
        >>> tuple(packed.shape), int(unpack(packed, units=3).step)
        ((5, 13), -1)
    """
    loc, parts = normal.loc, [normal.loc, normal.scale_diag]
    if normal.size[1]:
        parts += [ops.reshape(normal.scaled_factor(), (*ops.shape(loc)[:-1], normal.size[0] * normal.size[1]))]
    zero = ops.zeros_like(loc[..., :1])
    if flips is not None:
        parts += [*(rates + ops.zeros_like(loc) for rates in flips), zero]
    last = zero + (INFERENCE_STEP if step is None else ops.cast(step % MAX_STEPS, loc.dtype))
    return ops.concatenate([*parts, last], axis=-1)


def unpack(packed: Tensor, units: int, can_have_flips: bool = False) -> Unpacked:
    """Returns the Gaussian, the training step and the flip rates of a packed tensor.

    Raises:
        ValueError: for another width.
    """
    sizes = packed_sizes(packed.shape[-1], units, can_have_flips)
    if sizes is None:
        rule = f"have shape (..., {units} (2 + R) + 1), the distribution of {units} logits with R factors"
        raise refusal("y_pred", rule, shape=packed)
    return unpack_sized(packed, units, *sizes)


def packed_sizes(width: int, units: int, can_have_flips: bool = False) -> tuple[int, bool] | None:
    """Returns the number of factors in a packed tensor, and whether it contains flip rates; None for other widths."""
    has_flips = can_have_flips and (width - 1) % units == 1 % units and width >= packed_width(units, 0, True)
    factors, rest = divmod(width - packed_width(units, 0, has_flips), units)
    return None if rest or factors < 0 else (factors, has_flips)


def unpack_sized(packed: Tensor, units: int, num_factors: int, has_flips: bool = False) -> Unpacked:
    """Unpacks a tensor of given sizes, because PyTorch's exporters have no sizes as numbers; see `unpack`."""
    step = ops.cast(ops.max(packed[..., -1]), "int32")
    end = (2 + num_factors) * units
    loc, scale_diag = packed[..., :units], packed[..., units : 2 * units]
    flips = (packed[..., end : end + units], packed[..., end + units : end + 2 * units]) if has_flips else None
    if not num_factors:
        return Unpacked(DiagonalNormal(loc, scale_diag), step, flips)
    factor = ops.reshape(packed[..., 2 * units : end], (*ops.shape(packed)[:-1], units, num_factors))
    return Unpacked(LowRankNormal(loc, scale_diag, factor, size=(units, num_factors)), step, flips)
