"""Base classes of the losses for heads that return a distribution in one tensor."""

from typing import Any

import keras

from keras_het.base.internals import compute_dtype, serialized_policy
from keras_het.base.validation import check_integer
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.ops.packed import Unpacked


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

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "dtype": serialized_policy(self)}


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
