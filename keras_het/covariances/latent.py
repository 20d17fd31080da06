"""Low-rank noise of the features, which the last kernel maps to the logits."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, check_integer
from keras_het.covariances.low_rank import DEFAULT_NUM_FACTORS, LowRank
from keras_het.ops.latent import LatentNormal

MIN_KERNEL_RATIO = 0.05  # to the norm at the start; a smaller kernel counts as untrained


@keras.saving.register_keras_serializable("keras_het")
class Latent(LowRank):
    """Noise of the D features, which the kernel W of the mean maps to the logits.

        W' (diag(d'(x)^2) + V'(x) V'(x)') W

    It adds (D D + D) + (D D R + D R) weights to a Dense layer, for any number of classes. With softmax, each node costs
    as much as a Dense layer. The other links have closed forms, which cost R + 1 times a Dense layer. Use features with
    a few hundred entries.

    Args:
        num_factors: R, from 1 to the number of features; None is the smaller of 15 and that number.
        kwargs: arguments of `Covariance`: `initializer`, `regularizer`, `initial_scale`, `min_scale` and
            `learning_rate_multiplier`. The noise starts at `initial_scale` for a "glorot_uniform" kernel of the mean;
            `keras_het.heteroscedastic` adapts it to the kernel of the converted model.
    Source: Collier, Jenatton, Mustafa, Houlsby, Berent and Kokiopoulou: Massively scaling heteroscedastic classifiers.
        ICLR 2023.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> HeteroscedasticDense(10, covariance=Latent(3)).num_factors
        3
    """

    noise_space = "features"

    def check(self, units: int) -> None:
        if self.num_factors is not None:
            self.num_factors = check_integer("num_factors", self.num_factors, 1, MAX_CLASSES)

    def bind(self, units: int, temperature: float, seed: int, trainable: bool, dtype: Any) -> None:
        super().bind(units, temperature, seed, trainable, dtype)
        self.size = 1, self.num_factors or 1  # set by `fit_features`

    def fit_features(self, features: int) -> None:
        if self.num_factors is None:
            self.num_factors = min(DEFAULT_NUM_FACTORS, features)
        if self.num_factors > features:
            rule = "be None or an integer in [1, features]"
            raise refusal("num_factors", rule, f"num_factors={self.num_factors}, {features} features")
        self.units, self.size = features, (features, self.num_factors)  # the noise belongs to the features

    def starting_scale(self) -> float:
        return super().starting_scale() / self._initial_norm()

    def _initial_norm(self) -> float:
        """Returns the root mean square norm of the columns of a "glorot_uniform" kernel."""
        return math.sqrt(2.0 * self.units / (self.units + self.classes))

    def restart(self, kernel: np.ndarray) -> None:
        """Sets the biases so that this kernel, `(D, K)`, gives noise of `initial_scale` temperatures."""
        initial_norm, norm = self._initial_norm(), math.sqrt(np.square(kernel.astype("float64")).sum(axis=0).mean())
        # An untrained kernel will grow: noise that fits it now would become too large.
        ratio = initial_norm / norm if norm > MIN_KERNEL_RATIO * initial_norm else 1.0
        start = ratio * self.starting_scale() * math.sqrt(0.5)
        self.scale_diag_layer.bias.assign(np.full(self.units, self.scale_diag_bias(start), "float32"))
        self.factor_layer.bias.assign(ratio * ops.convert_to_numpy(self.factor_layer.bias))

    def count_weights(self, features: int, units: int) -> int:
        num_factors = min(DEFAULT_NUM_FACTORS, features) if self.num_factors is None else self.num_factors
        return (features + 1) * features * (1 + num_factors)

    def class_axes(self) -> dict[str, int | None]:
        """Returns None for all weights, because every device has all features."""
        return dict.fromkeys(super().class_axes())

    def normal(self, x: Tensor, loc_map: Any) -> LatentNormal:
        loc, kernel = loc_map(x, with_kernel=True)
        shape = (*ops.shape(loc)[:-1], *self.size)
        factor = ops.reshape(self.flat_factor(x), shape)
        return LatentNormal(loc, self.standard_deviations(x), factor, kernel, size=self.size, units=self.classes)
