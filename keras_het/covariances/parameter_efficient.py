"""Low-rank noise with the same directions for all inputs."""

from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_het.base.precision import FullPrecision
from keras_het.base.tensor import Tensor
from keras_het.base.validation import as_float64
from keras_het.covariances.low_rank import LowRank, UnitRows, affine_weights
from keras_het.ops.low_rank import ScaledLowRankNormal


@keras.saving.register_keras_serializable("keras_het")
class ParameterEfficient(LowRank):
    """Covariance for many classes, diag(d(x)^2) + W W' with W = diag(v(x)) V.

    v is an affine map of the input, and V does not depend on the input. The covariance adds 2 (D K + K) + K R weights
    to a Dense layer.

    Args:
        num_factors: R, from 1 to the number of classes; None is the smaller of 15 and that number.
        kwargs: arguments of `Covariance`: `initializer`, `regularizer`, `initial_scale`, `min_scale` and
            `learning_rate_multiplier`, which acts on d and v: the rows of V start as unit vectors.
    Source: Collier et al. 2021, section 2 (v has K entries, not R as printed).

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> HeteroscedasticDense(10, covariance=ParameterEfficient(3)).parameter_efficient
        True
    """

    axes: ClassVar[dict[str, int | None]] = {"row_scale/kernel": 1, "row_scale/bias": 0, "factor/kernel": 0}

    def make_maps(self, start: float, input_shape: Any) -> None:
        multiplier = self.learning_rate_multiplier
        options = {"bias_initializer": keras.initializers.Constant(start / multiplier), "multiplier": multiplier}
        self.row_scale_layer = self.affine_map("row_scale", self.units, input_shape, **options)
        shape, rows = (self.units, self.num_factors), UnitRows(self.num_factors, self.seed)
        options = {"name": "factor", "trainable": self.trainable, "dtype": self.dtype_policy}
        self.factor_layer = SharedFactor(shape, rows, self.regularizer, **options)
        self.factor_layer.build(None)

    def count_weights(self, features: int, units: int) -> int:
        return 2 * (features + 1) * units + units * self.num_factors

    def distribution(self, x: Tensor, loc: Tensor) -> ScaledLowRankNormal:
        factor = ops.convert_to_tensor(self.factor_layer.kernel)
        return ScaledLowRankNormal(loc, self.standard_deviations(x), self.row_scale_layer(x), factor, size=self.size)

    def factor_weights(self) -> np.ndarray:
        """Returns V, `(1, K, R)`."""
        return as_float64(self.factor_layer.kernel)[None]

    def restart_factor_at(self, scales: np.ndarray) -> None:
        self.row_scale_layer.bias.assign(scales / self.row_scale_layer.multiplier)

    def factor_moment(self, second: np.ndarray) -> np.ndarray:
        """Returns E[v v'], `(K, K)`: v is the map A of z, and E[v v'] is A' E[z z'] A."""
        affine = affine_weights(self.row_scale_layer)
        return affine.T @ second @ affine

    def factor_covariance(self, factor: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """Returns V V' times E[v v'], elementwise."""
        return (factor[0] @ factor[0].T) * moment


class SharedFactor(FullPrecision):
    """Layer with one matrix, so that its weight has a path like the weights of the maps."""

    def __init__(self, shape: tuple[int, int], initializer: Any, regularizer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shape, self.initializer, self.regularizer = shape, initializer, regularizer

    def build(self, input_shape: Any) -> None:
        # Autocast would round the matrix to the precision of a layer that calls a method of this layer.
        self.kernel = self.add_weight(
            name="kernel", shape=self.shape, initializer=self.initializer, regularizer=self.regularizer, autocast=False
        )
