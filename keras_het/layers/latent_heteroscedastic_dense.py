"""The head for very many classes, whose noise is that of the features."""

from typing import Any

import keras

from keras_het import covariances
from keras_het.layers import short_covariance
from keras_het.layers.heteroscedastic_dense import HeteroscedasticDense

REFUSED = ("parameter_efficient", "covariance")


@keras.saving.register_keras_serializable("keras_het")
class LatentHeteroscedasticDense(HeteroscedasticDense):
    """HET-XL, a `HeteroscedasticDense` for very many classes.

    Its noise is that of the features h before the last map:

        u(x) = W' (h + d'(h) * e_D + V'(h) e_R) + b,    e_D ~ N(0, I_D), e_R ~ N(0, I_R)

    d' = softplus(affine) + min_scale and V' are affine maps of h, which has D entries. They add (D D + D +
    (D D R + D R) weights to a Dense layer, whatever the number of classes. Softmax needs nodes, each of which costs as
    much as a Dense layer. The other links have closed forms, whose variances cost R + 1 times a Dense layer. Give it h
    of a few hundred entries.

    Args:
        units: K, as in `HeteroscedasticDense`.
        num_factors: R, from 1 to D; None is the smaller of D and 15.
        min_scale: as in `HeteroscedasticDense`, of d'.
        covariance_initializer: as in `HeteroscedasticDense`, of d' and V'.
        covariance_regularizer: as in `HeteroscedasticDense`, of d' and V'.
        initial_scale: standard deviation of a logit's noise at the start, in temperatures, for a kernel W of the size
            that "glorot_uniform" gives; `keras_het.heteroscedastic` scales it by the kernel that it takes over.
        kwargs: the other arguments of `HeteroscedasticDense`, without `parameter_efficient` and `covariance`.
    Input shape: `(..., D)`, with at least one leading axis.
    Output shape: `(..., units)`.
    Raises:
        ValueError: as `HeteroscedasticDense`.
    Source: Collier, Jenatton, Mustafa, Houlsby, Berent and Kokiopoulou: Massively scaling heteroscedastic classifiers.
        ICLR 2023.

    Example:
        >>> import numpy as np
        >>> head = LatentHeteroscedasticDense(1000, num_factors=2)
        >>> head(np.zeros((1, 8))).shape[-1], head.covariance_layer.count_params()
        (1000, 216)
    """

    def __init__(
        self,
        units: int,
        num_factors: int | None = None,
        *,
        min_scale: float = 1e-3,
        covariance_initializer: Any = "zeros",
        covariance_regularizer: Any = None,
        initial_scale: float = 0.15,
        **kwargs: Any,
    ):
        for name in REFUSED:
            if name in kwargs:
                raise ValueError(
                    f"`{name}` must not be given: the noise is that of the features. Received: {name}={kwargs[name]!r}"
                )
        noise = covariances.Latent(
            num_factors,
            initializer=covariance_initializer,
            regularizer=covariance_regularizer,
            initial_scale=initial_scale,
            min_scale=min_scale,
        )
        super().__init__(units, covariance=noise, **kwargs)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config() | short_covariance.config(self.covariance_layer, is_given=False)
        return {name: value for name, value in config.items() if name not in REFUSED}
