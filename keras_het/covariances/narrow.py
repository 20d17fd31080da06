"""Low-rank noise whose directions depend on a few linear combinations of the input."""

import math
from typing import Any, ClassVar

import keras
import numpy as np

from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, as_float64, check_integer
from keras_het.covariances.low_rank import LowRank, UnitRows


@keras.saving.register_keras_serializable("keras_het")
class Narrow(LowRank):
    """Covariance like `LowRank`, with V computed from `width` numbers instead of D features: faster, fewer weights.

        diag(d(x)^2) + V(x) V(x)',    V(x) = reshape((x W1) W2 + b)

    W1 is `(D, width)`, W2 `(width, K R)`, and b `(K R,)`. They add (D K + K) + D width + (width K R + K R) weights to a
    Dense layer; `LowRank` adds (D K + K) + (D K R + K R).

    W2 starts with zeros and b as in `LowRank`, so both have the same noise at the start. W1 starts with random numbers
    of the size of "glorot_uniform". It has no gradient in the first step, because W2 is zero then. From the second step
    on, all weights learn.

    Args:
        num_factors: R, from 1 to the number of classes; None is the smaller of 15 and that number.
        width: number of inputs of V, at least 1. More than D is useless.
        kwargs: arguments of `Covariance`: `initializer` (not for W1), `regularizer`, `initial_scale`, `min_scale` and
            `learning_rate_multiplier` (not for W1).
    Raises:
        ValueError: if `width` is not an integer of at least 1.
    Source: Collier et al. 2021, section 2, for the noise; Hu et al., LoRA, ICLR 2022, section 4.1, for the low-rank
        map, here of V and trained from the start.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> head = HeteroscedasticDense(100, covariance=Narrow(15, width=8))
        >>> head.build((None, 512))
        >>> [tuple(weight.shape) for weight in head.covariance.weights[2:]]
        [(512, 8), (8, 1500), (1500,)]
    """

    axes: ClassVar[dict[str, int | None]] = {**LowRank.axes, "factor_features/kernel": None}

    def __init__(self, num_factors: int | None = None, width: int = 16, **kwargs: Any) -> None:
        super().__init__(num_factors, **kwargs)
        self.width = check_integer("width", width, 1, MAX_CLASSES)

    def make_maps(self, start: float, input_shape: Any) -> None:
        # Another seed, because with the seed of b the rows of W1 would have the directions of the rows of V.
        norm = math.sqrt(2.0 * self.width / (input_shape[-1] + self.width))
        rows = UnitRows(self.width, [self.seed, 1], norm)
        options = {"kernel_initializer": rows, "use_bias": False}
        self.factor_features_layer = self.affine_map("factor_features", self.width, input_shape, **options)
        super().make_maps(start, (*input_shape[:-1], self.width))

    def count_weights(self, features: int, units: int) -> int:
        factor_weights = features * self.width + (self.width + 1) * units * self.num_factors
        return (features + 1) * units + factor_weights

    def flat_factor(self, x: Tensor) -> Tensor:
        return super().flat_factor(self.factor_features_layer(x))

    def basis(self, x: np.ndarray) -> np.ndarray:
        """Returns (x W1, 1), `(N, width + 1)`."""
        return super().basis(x @ as_float64(self.factor_features_layer.kernel))
