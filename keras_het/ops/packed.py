"""A Gaussian of logits as one tensor, in which a layer hands it to a loss."""

from typing import Any, NamedTuple

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.diagonal import DiagonalNormal
from keras_het.ops.low_rank import LowRankNormal

INFERENCE = -1.0  # in place of the training step
MOST_STEPS = 1 << 23  # float32 holds every smaller integer; then the steps begin anew


class Unpacked(NamedTuple):
    """What a packed tensor holds.

    Attributes:
        normal: the Gaussian.
        step: the training step of the noise, int32, a scalar; -1 at inference.
    """

    normal: DiagonalNormal
    step: Tensor


def packed_width(units: int, num_factors: int) -> int:
    """The numbers for each row: K means, K standard deviations, K R entries of the factor, and the step.

    Example:
        >>> packed_width(1000, 15)
        17001
    """
    return units * (2 + num_factors) + 1


def pack(normal: Any, step: Tensor | None = None) -> Tensor:
    """The tensor (mu, d, V, step) of a Gaussian, `(..., K (2 + R) + 1)`.

    Args:
        normal: of K logits, with R factors.
        step: the training step, an integer scalar; None at inference.

    Example:
        >>> from keras_het.ops import low_rank_normal
        >>> packed = pack(low_rank_normal(ops.zeros((5, 3)), ops.ones((5, 3)), ops.ones((5, 3, 2))))
        >>> tuple(packed.shape), int(unpack(packed, units=3).step)
        ((5, 13), -1)
    """
    loc, factor = normal.loc, normal.scaled_factor()
    last = ops.zeros_like(loc[..., :1]) + (INFERENCE if step is None else ops.cast(step % MOST_STEPS, loc.dtype))
    if not normal.size[1]:
        return ops.concatenate([loc, normal.scale_diag, last], axis=-1)
    flat = ops.reshape(factor, (*ops.shape(loc)[:-1], normal.size[0] * normal.size[1]))
    return ops.concatenate([loc, normal.scale_diag, flat, last], axis=-1)


def unpack(packed: Tensor, units: int) -> Unpacked:
    """The Gaussian and the training step that `pack` put together.

    Args:
        packed: `(..., K (2 + R) + 1)`.
        units: K.
    Raises:
        ValueError: for another width.
    """
    factors, rest = divmod(packed.shape[-1] - 1 - 2 * units, units)
    if rest or factors < 0:
        rule = f"have shape (..., {units} (2 + R) + 1), the distribution of {units} logits with R factors"
        raise ValueError(f"`y_pred` must {rule}. Received: shape {tuple(packed.shape)}")
    step = ops.cast(ops.max(packed[..., -1]), "int32")
    loc, scale_diag = packed[..., :units], packed[..., units : 2 * units]
    if not factors:
        return Unpacked(DiagonalNormal(loc, scale_diag), step)
    factor = ops.reshape(packed[..., 2 * units : -1], (*ops.shape(packed)[:-1], units, factors))
    return Unpacked(LowRankNormal(loc, scale_diag, factor, size=(units, factors)), step)
