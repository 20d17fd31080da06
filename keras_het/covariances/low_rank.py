"""Low-rank noise whose directions depend on the input, for classes and for pixels, and its initial weights."""

import math
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_het.base.precision import AffineMap
from keras_het.base.refusal import refusal
from keras_het.base.serializable import Serializable
from keras_het.base.tensor import Tensor, reshape
from keras_het.base.validation import MAX_CLASSES, as_float64, check_integer
from keras_het.covariances.covariance import Covariance
from keras_het.ops.low_rank import LowRankNormal
from keras_het.ops.normal import DiagonalNormal

DEFAULT_NUM_FACTORS = 15
MAX_PIXEL_FACTORS = 1024


@keras.saving.register_keras_serializable("keras_het")
class LowRank(Covariance):
    """Full form of the paper, diag(d(x)^2) + V(x) V(x)', where V is an affine map of the input, reshaped to `(K, R)`.

    It adds (D K + K) + (D K R + K R) weights to a Dense layer.

    Args:
        num_factors: R, from 1 to the number of classes; None is the smaller of 15 and that number.
        kwargs: arguments of `Covariance`: `initializer`, `regularizer`, `initial_scale`, `min_scale` and
            `learning_rate_multiplier`.
    Source: Collier et al. 2021, section 2.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> HeteroscedasticDense(10, covariance=LowRank(3)).num_factors
        3
    """

    axes: ClassVar[dict[str, int | None]] = {"factor/kernel": 1, "factor/bias": 0}

    def __init__(self, num_factors: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_factors = num_factors

    def check(self, units: int) -> None:
        if self.num_factors is None:
            self.num_factors = min(DEFAULT_NUM_FACTORS, units)
        try:
            self.num_factors = check_integer("num_factors", self.num_factors, 1, units)
        except ValueError:
            rule = (
                "be None or an integer in [1, units]. For no factors, use covariances.Diagonal(), or num_factors=0 of "
                "the head"
            )
            raise refusal("num_factors", rule, f"num_factors={self.num_factors!r}, units={units}") from None

    def make_maps(self, start: float, input_shape: Any) -> None:
        multiplier = self.learning_rate_multiplier / math.sqrt(self.num_factors)
        rows, width = UnitRows(self.num_factors, self.seed, start / multiplier), self.units * self.num_factors
        options = {"bias_initializer": rows, "multiplier": multiplier}
        self.factor_layer = self.affine_map("factor", width, input_shape, **options)

    def count_weights(self, features: int, units: int) -> int:
        return super().count_weights(features, units) * (1 + self.num_factors)

    def distribution(self, x: Tensor, loc: Tensor) -> DiagonalNormal:
        scale_diag, shape = self.standard_deviations(x), (*ops.shape(loc)[:-1], self.units, self.num_factors)
        return LowRankNormal(loc, scale_diag, reshape(self.flat_factor(x), shape), size=self.size)

    def flat_factor(self, x: Tensor) -> Tensor:
        """Returns V for features `x`, `(..., K R)`."""
        return self.factor_layer(x)

    def basis(self, x: np.ndarray) -> np.ndarray:
        """Returns (x, 1), `(N, D + 1)`."""
        return np.concatenate([x, np.ones((len(x), 1))], axis=1)

    def factor_weights(self) -> np.ndarray:
        """Returns the kernel and bias of V, `(D + 1, K, R)`."""
        return affine_weights(self.factor_layer).reshape(-1, self.units, self.num_factors)

    def restart_factor_at(self, scales: np.ndarray) -> None:
        rows = as_float64(self.factor_layer.bias).reshape(self.units, self.num_factors)
        rows *= (scales / (self.factor_layer.multiplier * np.linalg.norm(rows, axis=1)))[:, None]
        self.factor_layer.bias.assign(rows.ravel())


def affine_weights(layer: AffineMap) -> np.ndarray:
    """Returns the kernel and bias of a map, times its multiplier, `(D + 1, units)`."""
    return layer.multiplier * np.concatenate([as_float64(layer.kernel), as_float64(layer.bias)[None]])


@keras.saving.register_keras_serializable("keras_het")
class UnitRows(Serializable, keras.initializers.Initializer):
    """Rows of `size` normal numbers, each scaled to the norm `norm`, drawn by NumPy to be equal on every backend."""

    def __init__(self, size: int, seed: int | list[int], norm: float = 1.0) -> None:
        self.size, self.seed, self.norm = check_integer("size", size, 1, MAX_CLASSES), seed, norm

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        rows = np.random.default_rng(self.seed).normal(size=(math.prod(shape) // self.size, self.size))
        rows *= self.norm / np.linalg.norm(rows, axis=1, keepdims=True)
        return ops.convert_to_tensor(rows.reshape(shape), dtype=dtype or keras.config.floatx())


@keras.saving.register_keras_serializable("keras_het")
class PixelLowRank(LowRank):
    """Covariance like `LowRank`, for pixels that share the factor noise, so R can be up to 1024, above the classes."""

    def __init__(self, num_factors: int, **kwargs: Any) -> None:
        super().__init__(num_factors, **kwargs)

    def check(self, units: int) -> None:
        self.num_factors = check_integer("num_factors", self.num_factors, 1, MAX_PIXEL_FACTORS)
