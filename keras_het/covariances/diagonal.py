"""Noise without correlations."""

import keras

from keras_het.covariances.covariance import Covariance


@keras.saving.register_keras_serializable("keras_het")
class Diagonal(Covariance):
    """diag(d(x)^2): noise without correlations. It adds D K + K weights to a Dense layer.

    Args: as `Covariance`.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> HeteroscedasticDense(10, covariance=Diagonal()).num_factors
        0
    """
