"""What every covariance is: the maps from features to the noise of the logits."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.covariances.block_matrix import BlockMatrix
from keras_het.full_precision import AffineMap, FullPrecision
from keras_het.ops.log_space import softplus_inverse
from keras_het.ops.low_rank import DiagonalNormal
from keras_het.validation import check_number


class Covariance(FullPrecision):
    """Base class of the covariances, layers that a head owns: it calls `start`, builds them, and asks for the
    `distribution`.

    The standard deviations d = softplus(affine) + min_scale belong to all of them. A subclass adds maps in `make_maps`.

    Args:
        initializer: of the kernels; what it gives is added to the start by the biases.
        regularizer: of the kernels, and of a factor that all inputs share.
        initial_scale: standard deviation of a logit's noise at the start, in temperatures; greater than 0.
        min_scale: added to d; at least 0.
        kwargs: as for any Keras layer.
    """

    num_factors: Any = 0
    noise_of = "logits"  # or "features", which a kernel carries to the logits: then no class has noise of its own

    def __init__(
        self,
        *,
        initializer: Any = "zeros",
        regularizer: Any = None,
        initial_scale: float = 0.15,
        min_scale: float = 1e-3,
        **kwargs: Any,
    ):
        super().__init__(**{"name": "covariance", **kwargs})
        self.initializer = keras.initializers.get(initializer)
        self.regularizer = keras.regularizers.get(regularizer)
        self.initial_scale = check_number("initial_scale", initial_scale, above=0.0)
        self.min_scale = check_number("min_scale", min_scale, low=0.0)
        self.units = self.classes = 0  # until it has a head
        self.size = (0, 0)  # how many of e_K and e_R make the logits

    def start(self, units: int, temperature: float, seed: int, trainable: bool, dtype: Any) -> None:
        """Makes the maps of a head; `initial_scale` is of its temperature, in which d and V start with half of the
        variance each.

        Raises:
            ValueError: if another head has done so.
        """
        self.take(units, trainable, dtype)
        self.check(units)
        self.make(temperature, seed)

    def take(self, units: int, trainable: bool, dtype: Any) -> None:
        """A head takes it."""
        if self.units:
            raise ValueError(
                f"`covariance` must be new for every head. Received: one of {self.classes} units that a head has "
                "already"
            )
        self.classes, self.units, self.trainable, self.dtype_policy = units, units, trainable, dtype

    def make(self, temperature: float, seed: int) -> None:
        """Makes the maps."""
        self.size, units = (self.units, self.num_factors), self.units
        start = self.initial_scale * temperature * (math.sqrt(0.5) if self.num_factors else 1.0)
        bias = softplus_inverse(max(start, 2.0 * self.min_scale) - self.min_scale)
        self.scale_diag = self.affine_map("scale_diag", units, keras.initializers.Constant(bias))
        self.make_maps(start, seed)

    def check(self, units: int) -> None:
        """Raises ValueError if it does not fit so many classes."""

    def make_maps(self, start: float, seed: int) -> None:
        """Makes the maps besides d, whose noise has the standard deviation `start`."""

    def affine_map(self, name: str, width: int, bias_initializer: Any) -> AffineMap:
        """A map of the features, with the initializer and the regularizer of this covariance."""
        return AffineMap(
            width,
            kernel_initializer=_copy(self.initializer),
            bias_initializer=bias_initializer,
            kernel_regularizer=self.regularizer,
            name=name,
            trainable=self.trainable,
            dtype=self.dtype_policy,
        )

    def prepare(self, features: int) -> None:
        """Raises ValueError if it does not fit so many features, before anything is allocated."""

    def build(self, input_shape: Any) -> None:
        for layer in self._layers:
            layer.build(input_shape)

    def get_build_config(self) -> None:
        """None: its head builds it, also when it comes from a file."""

    def count_weights(self, features: int, units: int) -> int:
        """How many numbers its weights have, before any is allocated."""
        return (features + 1) * units

    def normal(self, x: Any, mean: Any) -> Any:
        """The Gaussian of the logits for features `(..., D)`; `mean` is the map that makes mu of them."""
        return self.distribution(x, mean(x))

    def distribution(self, x: Any, loc: Any) -> DiagonalNormal:
        """The Gaussian of the logits for features `(..., D)` and mean logits `(..., K)`."""
        return DiagonalNormal(loc, self.standard_deviations(x))

    def standard_deviations(self, x: Any) -> Any:
        """d, `(..., K)`."""
        return ops.softplus(self.scale_diag(x)) + self.min_scale

    def basis(self, x: np.ndarray) -> np.ndarray:
        """z, `(N, M)`, of features `(N, D)`: V is linear in it."""
        return np.ones((len(x), 1))

    def factor_weights(self) -> np.ndarray:
        """The weights of V that say what classes have in common, `(M, K, R)`; M is 1 if all inputs share them."""
        return np.zeros((1, self.units, 0))

    def mean(self, diagonal: np.ndarray, second: np.ndarray, kernel: np.ndarray) -> Callable[[np.ndarray], BlockMatrix]:
        """The mean covariance of the logits over a data set, a function of the weights of V, as of `factor_weights`.

        Args:
            diagonal: mean of d^2, `(K,)`.
            second: mean of z z', `(M, M)`.
            kernel: of the mean, `(D, K)`.
        """
        return lambda factor: BlockMatrix(np.zeros((self.units, 0)), np.zeros((0, self.units)), diagonal)

    def restart(self, kernel: np.ndarray) -> None:
        """Starts anew beside a kernel of the mean, `(D, K)`, that is taken over from another model."""

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initializer": keras.initializers.serialize(self.initializer),
            "regularizer": keras.regularizers.serialize(self.regularizer),
            "initial_scale": self.initial_scale,
            "min_scale": self.min_scale,
        }


def _copy(initializer: Any) -> Any:
    """An initializer of equal configuration. One unseeded instance would give every kernel of one shape the same
    values.
    """
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer
