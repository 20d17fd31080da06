"""Base class of covariances, and the diagonal covariance."""

import math
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_het.base.precision import AffineMap, FullPrecision
from keras_het.base.refusal import refusal
from keras_het.base.serializable import Serializable
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_number
from keras_het.ops.log_space import softplus_inverse
from keras_het.ops.normal import DiagonalNormal


class Covariance(Serializable, FullPrecision):
    """Base class of covariances, layers that map features to the noise of a head's logits.

    A head calls `bind` with its number of classes, `build`, and `normal`, for the Gaussian of its logits. All
    covariances have the standard deviations d = s softplus(m affine / s) + min_scale, and a factor V that depends on
    the input is m affine / sqrt(R), where m is `learning_rate_multiplier`, and s is d - min_scale at the start of a new
    head.

    With Adam, a weight moves by the learning rate at each step, whatever its unit. So m sets how fast the noise grows
    beside the mean: for m = 1 as fast, for any R. The R factors of a class add their variances, so without the division
    by sqrt(R) their noise would grow sqrt(R) times as fast. The slope of d is m (1 - exp(-(d - min_scale) / s)): 0.63 m
    at the start of a new head, and nearly m from 3 s on. Without s, as in the paper, it would be about d, so that small
    noise would hardly learn. A head can represent the same functions for every m and, if the kernels start with zeros,
    starts with the same noise. With SGD, whose steps are proportional to the gradient, d learns at m^2 and V at m^2 / R
    times the learning rate.

    A subclass adds maps in `make_maps`, names the class axes of their weights in `axes`, and defines `distribution`. A
    subclass with factors sets `num_factors`, R, and defines `basis` and `factor_weights` for `keras_het.explain`. The
    Gaussians are in `keras_het.ops`; pass them `size=self.size`.

    Args:
        initializer: initializer of the kernels, whose outputs are added to the starting noise of the biases.
        regularizer: regularizer of the kernels, and of a factor that all inputs share.
        initial_scale: standard deviation of a logit's noise at the start, in temperatures; greater than 0.
        min_scale: lower bound of d; at least 0.
        learning_rate_multiplier: m, how fast the noise learns: with Adam, at m times the learning rate of the mean;
            greater than 0.
        kwargs: arguments of any Keras layer.
    Source: the division by sqrt(R) is the rank-stabilised factor of Kalajdzievski 2023 (arXiv 2312.03732, Theorem 3.2),
        here for the noise of factors instead of an update of weights.

    Attributes:
        num_factors: R, the number of columns of V; 0 without factors.
        axes: axis of the classes of each weight that a subclass adds, `{path below the covariance: axis}`; None for a
            weight without classes. An axis of K R entries has the entries of a class side by side.
        noise_space: "logits", or "features" if a kernel maps the noise of the features to the logits. No class then has
            independent noise.
    """

    num_factors: Any = 0
    axes: ClassVar[dict[str, int | None]] = {}
    noise_space = "logits"

    def __init__(
        self,
        *,
        initializer: Any = "zeros",
        regularizer: Any = None,
        initial_scale: float = 0.15,
        min_scale: float = 1e-3,
        learning_rate_multiplier: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"name": "covariance", **kwargs})
        self.initializer = keras.initializers.get(initializer)
        self.regularizer = keras.regularizers.get(regularizer)
        self.initial_scale = check_number("initial_scale", initial_scale, above=0.0)
        self.min_scale = check_number("min_scale", min_scale, low=0.0)
        self.learning_rate_multiplier = check_number("learning_rate_multiplier", learning_rate_multiplier, above=0.0)
        self.units = self.classes = 0  # set by `bind`
        self.size = (0, 0)  # numbers of entries of e_K and e_R

    def bind(self, units: int, temperature: float, seed: int, trainable: bool, dtype: Any) -> None:
        """Makes this covariance, which no other head can have, belong to a head of K `units`, if it fits K."""
        if self.classes:
            raise refusal("covariance", "be new for every head", f"the covariance of a head of {self.classes} units")
        self.check(units)
        self.classes, self.trainable, self.dtype_policy = units, trainable, dtype
        self.temperature, self.seed = temperature, seed
        self.units, self.size = units, (units, self.num_factors)

    def check(self, units: int) -> None:
        """Raises ValueError if the covariance does not fit K `units`."""

    def fit_features(self, features: int) -> None:
        """Sets the sizes for D `features`; raises ValueError if the covariance does not fit them."""

    def build(self, input_shape: Any) -> None:
        """Makes the maps: d and V start with half of the variance each, or d with all of it without factors."""
        start = self.starting_scale() * (math.sqrt(0.5) if self.num_factors else 1.0)
        self.scale_unit = max(start - self.min_scale, self.min_scale)
        multiplier = self.learning_rate_multiplier / self.scale_unit
        options = {
            "bias_initializer": keras.initializers.Constant(self.scale_diag_bias(start)),
            "multiplier": multiplier,
        }
        self.scale_diag_layer = self.affine_map("scale_diag", self.units, input_shape, **options)
        self.make_maps(start, input_shape)

    def scale_diag_bias(self, scale: float) -> float:
        """Returns the bias of the map of d for a standard deviation `scale`, of which at least 2 min_scale is used."""
        ratio = max(scale - self.min_scale, self.min_scale) / self.scale_unit
        return softplus_inverse(ratio) * self.scale_unit / self.learning_rate_multiplier

    def starting_scale(self) -> float:
        return self.initial_scale * self.temperature

    def make_maps(self, start: float, input_shape: Any) -> None:
        """Makes and builds the maps other than d; `start` is the standard deviation of their noise at the start."""

    def affine_map(self, name: str, width: int, input_shape: Any, **options: Any) -> AffineMap:
        """Builds a map of the features to `width` outputs; `options` are arguments of `AffineMap`."""
        if "kernel_initializer" not in options:
            options["kernel_initializer"] = _copy(self.initializer)
        options |= {"name": name, "trainable": self.trainable, "dtype": self.dtype_policy}
        layer = AffineMap(width, kernel_regularizer=self.regularizer, **options)
        layer.build(input_shape)
        return layer

    def get_build_config(self) -> None:
        """Returns None, because the head builds this layer, even when it is loaded from a file."""

    def count_weights(self, features: int, units: int) -> int:
        """Returns the number of entries of all weights for D `features` and K `units`, before any is allocated."""
        return (features + 1) * units

    def class_axes(self) -> dict[str, int | None]:
        """Returns the class axes of all weights, for `keras_het.distribution.layout_map`."""
        return {"scale_diag/kernel": 1, "scale_diag/bias": 0, **self.axes}

    def normal(self, x: Tensor, loc_map: Any) -> Any:
        """Returns the Gaussian of the logits for features `x`, `(..., D)`; `loc_map` maps features to mu."""
        return self.distribution(x, loc_map(x))

    def distribution(self, x: Tensor, loc: Tensor) -> DiagonalNormal:
        """Returns the Gaussian of the logits for features `x`, `(..., D)`, and mean logits `loc`, `(..., K)`."""
        return DiagonalNormal(loc, self.standard_deviations(x), size=self.size)

    def standard_deviations(self, x: Tensor) -> Any:
        """Returns d for features `x`, `(..., K)`."""
        return self.scale_unit * ops.softplus(self.scale_diag_layer(x)) + self.min_scale

    def basis(self, x: np.ndarray) -> np.ndarray:
        """Returns z, `(N, M)`, for features `x`, `(N, D)`; V is linear in z."""
        return np.ones((len(x), 1))

    def factor_weights(self) -> np.ndarray:
        """Returns the weights of V, `(M, K, R)`; M is 1 if all inputs share V."""
        return np.zeros((1, self.units, 0))

    def factor_moment(self, second: np.ndarray) -> np.ndarray:
        """Returns what `factor_covariance` needs from the mean of z z' over a data set, `(M, M)`."""
        return second

    def factor_covariance(self, factor: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """Returns the mean of V V' over a data set, `(K, K)`, for `factor_weights` and a `factor_moment`."""
        rows = factor.transpose(1, 0, 2).reshape(factor.shape[1], -1)
        return rows @ np.tensordot(moment, factor, 1).transpose(1, 0, 2).reshape(rows.shape).T

    def restart(self, kernel: np.ndarray) -> None:
        """Sets the starting noise for a kernel of the mean, `(D, K)`, of another model."""

    def restart_at(self, scales: np.ndarray) -> None:
        """Sets the standard deviation of each class's noise to `scales`, `(K,)`, at least 2 min_scale, once built."""
        parts = np.maximum(scales * (math.sqrt(0.5) if self.num_factors else 1.0), 2.0 * self.min_scale)
        self.scale_diag_layer.bias.assign([self.scale_diag_bias(part) for part in parts])
        self.restart_factor_at(parts)

    def restart_factor_at(self, scales: np.ndarray) -> None:
        """Sets the standard deviation of each class's factor noise at the start to `scales`, `(K,)`."""


def _copy(initializer: Any) -> Any:
    """Copies an initializer: one unseeded instance would give every kernel of the same shape the same values."""
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer


@keras.saving.register_keras_serializable("keras_het")
class Diagonal(Covariance):
    """Noise without correlations, diag(d(x)^2). It adds D K + K weights to a Dense layer.

    Args:
        initializer: initializer of the kernels, whose outputs are added to the starting noise of the biases.
        regularizer: regularizer of the kernels.
        initial_scale: standard deviation of a logit's noise at the start, in temperatures; greater than 0.
        min_scale: lower bound of d; at least 0.
        learning_rate_multiplier: m, how fast the noise learns, see `Covariance`.
        kwargs: arguments of any Keras layer.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> HeteroscedasticDense(10, covariance=Diagonal()).num_factors
        0
    """
