"""Noise without correlations."""

import keras

from keras_het.covariances.covariance import Covariance


@keras.saving.register_keras_serializable("keras_het")
class Diagonal(Covariance):
    """diag(d(x)^2): noise without correlations. It adds D K + K weights to a Dense layer.

    Args:
        initializer: of the kernels. The biases already give the starting noise; the kernels' values are added to it.
        regularizer: of the kernels.
        initial_scale: standard deviation of a logit's noise at the start, in temperatures; greater than 0.
        min_scale: added to d; at least 0.
        kwargs: as for any Keras layer.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> HeteroscedasticDense(10, covariance=Diagonal()).num_factors
        0
    """
