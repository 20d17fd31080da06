"""Base classes of the losses for heads that return a distribution in one tensor."""

from typing import Any

import keras

from keras_het.base.internals import compute_dtype, serialized_policy
from keras_het.base.validation import check_integer
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.ops.packed import Unpacked, sizes_of, unpack_sized


class DistributionLoss(keras.losses.Loss):
    """Base class of losses of the distribution that a head returns; they compute in float32 or more.

    Args:
        name: as for any Keras loss.
        reduction: as for any Keras loss.
        dtype: as for any Keras loss.
    """

    @property
    def dtype(self) -> str:
        """The dtype of the computation: float32 for half precision."""
        return "float32" if compute_dtype(self) in ("float16", "bfloat16") else compute_dtype(self)

    def read(self, y_true: Any, y_pred: Any, takes_flips: bool = False) -> tuple[Any, Unpacked]:
        """The labels in the rank of the predictions, `(..., K)`, and the distribution of these K labels.

        By its width alone a tensor may be the distribution of other labels: 21 numbers are five labels with two
        factors, or one with 18. So no more factors than labels are taken, as no head of these losses has more.

        Args:
            y_true: labels, `(..., K)`, or `(...)` for one.
            y_pred: the distribution that a head returns, `(..., K (2 + R) + 1)`.
            takes_flips: whether rates of wrong labels may stand in it.
        Raises:
            ValueError: for labels of other shapes.
        """
        labels = in_last_axis(y_true, y_pred)
        units = labels.shape[-1]
        sizes = sizes_of(y_pred.shape[-1], units, takes_flips)
        if sizes is None or sizes[0] > units or not shapes_fit(labels.shape[:-1], y_pred.shape[:-1]):
            rule = "have shape (..., K), with K the units of the head, whose output `y_pred` has K (2 + R) + 1 numbers"
            flips = ", or K (4 + R) + 2," if takes_flips else ""
            found = f"shape {tuple(y_true.shape)}, with `y_pred` of shape {tuple(y_pred.shape)}"
            raise ValueError(f"`y_true` must {rule}{flips} of R factors, K at most. Received: {found}")
        return labels, unpack_sized(y_pred, units, *sizes)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "dtype": serialized_policy(self)}


def in_last_axis(labels: Any, outputs: Any) -> Any:
    """Labels in the rank of the outputs: one label of each gets an axis, and an axis of 1 behind all others goes."""
    if len(labels.shape) < len(outputs.shape):
        return labels[..., None]
    return labels[..., 0] if len(labels.shape) > len(outputs.shape) and labels.shape[-1] == 1 else labels


def shapes_fit(shape: Any, expected: Any) -> bool:
    """Whether two shapes are equal as far as they are known."""
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(size == other or None in (size, other) for size, other in pairs)


class JointLoss(DistributionLoss):
    """Base class of losses that average over quasi-random nodes of the factors.

    Args:
        num_samples: S, the number of nodes.
        seed: of the nodes, in [0, 2^31).
        kwargs: as for any Keras loss.
    """

    def __init__(self, num_samples: int, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_samples = check_integer("num_samples", num_samples, 1, 1 << 20)
        self.seed = check_integer("seed", seed, 0, (1 << 31) - 1)

    def nodes(self, found: Unpacked) -> Nodes:
        """The nodes of the training step that the outputs of the head name; one if there are no factors."""
        factors = found.normal.size[1]
        return quasi_random((self.seed, found.step), self.num_samples if factors else 1, 0, factors)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "num_samples": self.num_samples, "seed": self.seed}
