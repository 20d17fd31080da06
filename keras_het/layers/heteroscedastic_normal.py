"""Regression head: the mean and the covariance of the targets."""

from typing import Any

import keras
from keras import ops
from scipy.special import ndtri

from keras_het import covariances
from keras_het.base.refusal import refusal
from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, check_boolean, check_integer, check_open_fraction
from keras_het.layers.noisy_dense import NoisyDense
from keras_het.ops.packed import pack, packed_width, unpack


@keras.saving.register_keras_serializable("keras_het")
class HeteroscedasticNormal(NoisyDense):
    """Regression head: predicts the mean and the covariance of K targets.

        y ~ N(mu(x), diag(d(x)^2) + V(x) V(x)')

    mu is an affine map of the input, as in `Dense`, and d = s softplus(m affine / s) + min_scale a standard deviation
    (`covariances.Covariance`). V is an affine map reshaped to `(K, R)`, or diag(v(x)) V with `parameter_efficient`.
    With one target and no factors, it is the mean-variance network of Nix and Weigend 1994.

    The output is one tensor, `(..., K (2 + R) + 1)`, for `losses.MultivariateNormalNLL`: mu, d, V, and a number that
    this head does not use. A `models.DistributionModel` that ends in this head trains on that output and predicts mu,
    so Keras' metrics get the mean.

    Standardise the targets, because the noise starts with standard deviation 1.

    Args:
        units: K, the number of targets, from 1.
        num_factors: R, from 0 (independent targets) to units; None is min(15, units).
        parameter_efficient: boolean, whether V(x) = diag(v(x)) V, as in `HeteroscedasticDense`.
        initial_scale: standard deviation of each target at the start; None is 1, or the value of `covariance`.
        stop_features: boolean, whether d and V pass no gradient to the layers before the head, which then learn only
            from the mean; for `MultivariateNormalNLL(form="faithful")`.
        covariance: instance from `keras_het.covariances` instead of num_factors, parameter_efficient and initial_scale.
        seed: seed of the initial weights of V, in [0, 2^31). None draws a seed from Python's `random`.
        dtype: "float32", for any global policy, or "float64" on a backend that computes in it.
        kwargs: arguments of `keras.layers.Dense` for mu (`use_bias`, `kernel_initializer`, `bias_initializer`,
            `kernel_regularizer`, `bias_regularizer`), and of any Keras layer.
    Input shape: `(..., D)`, with at least one leading axis.
    Output shape: `(..., K (2 + R) + 1)`.
    Raises:
        ValueError: for arguments outside these ranges, or noise of the features.
    Source: Nix and Weigend, ICNN 1994; Bishop and Quazaz, NIPS 1996; Collier, Mustafa, Kokiopoulou, Jenatton and
        Berent, CVPR 2021, Eq. 4, and section 2 for the low-rank covariance, here of targets instead of logits.

    Example:
        >>> import numpy as np
        >>> head = HeteroscedasticNormal(3, num_factors=1)
        >>> outputs = head(np.zeros((2, 8)))
        >>> tuple(outputs.shape), tuple(head.predictions(outputs).shape)
        ((2, 10), (2, 3))
        >>> lower, upper = head.interval(outputs, level=0.95)  # the standard deviation starts at 1
        >>> round(float(ops.convert_to_numpy(upper)[0, 0]), 2)
        1.96
    """

    def __init__(
        self,
        units: int,
        num_factors: int | None = 0,
        *,
        parameter_efficient: bool = False,
        initial_scale: float | None = None,
        stop_features: bool = False,
        covariance: covariances.Covariance | None = None,
        seed: int | None = None,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            check_integer("units", units, 1, MAX_CLASSES),
            num_factors if covariance is None else num_factors or None,
            parameter_efficient=parameter_efficient,
            covariance=covariance,
            initial_scale=1.0 if covariance is None and initial_scale is None else initial_scale,
            seed=seed,
            dtype=dtype,
            **kwargs,
        )
        self.stop_features = check_boolean("stop_features", stop_features)
        if self.covariance.noise_space != "logits":
            rule = "have noise of the targets, such as LowRank: noise of the features has no standard deviations"
            raise refusal("covariance", rule, kind=self.covariance)
        self.covariance.bind(self.units, 1.0, self.seed, self.trainable, self.dtype_policy)

    def distribution(self, x: Tensor) -> Any:
        """Returns the Gaussian of the targets, a `keras_het.ops.normal.Normal`, for inputs `x`, `(..., D)`."""
        x = self.prepare_inputs(x)
        return self.covariance.distribution(ops.stop_gradient(x) if self.stop_features else x, self.loc_layer(x))

    def call(self, inputs: Tensor) -> Any:
        return pack(self.distribution(inputs))

    def predictions(self, outputs: Tensor) -> Any:
        """Returns the means, `(..., K)`, in outputs of this head, `(..., K (2 + R) + 1)`."""
        return outputs[..., : self.units]

    def interval(self, outputs: Tensor, level: float = 0.9) -> tuple[Any, Any]:
        """Computes the central interval of each target, mu -+ z sqrt(diag(d^2 + V V')), from outputs of this head.

        Args:
            outputs: `(..., K (2 + R) + 1)`.
            level: probability of the interval, in (0, 1).
        Returns:
            lower and upper ends, `(..., K)` each.
        Raises:
            ValueError: for a level outside (0, 1).
        """
        normal = unpack(ops.convert_to_tensor(outputs), self.units).normal
        half_width = ndtri(0.5 + 0.5 * check_open_fraction("level", level)) * ops.sqrt(normal.variance())
        return normal.loc - half_width, normal.loc + half_width

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (*input_shape[:-1], packed_width(*self.covariance.size))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initial_scale": self.covariance.initial_scale if self._has_short_spelling else None,
            "stop_features": self.stop_features,
        }
