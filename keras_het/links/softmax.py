"""The softmax link, for one label per example."""

from typing import Any

import keras

from keras_het.base.tensor import Tensor
from keras_het.links.link import Link
from keras_het.ops.quadrature import LargestMean
from keras_het.ops.softmax import SoftmaxMean, second_order_log_softmax, without_shift


@keras.saving.register_keras_serializable("keras_het")
class Softmax(Link):
    """log E[softmax(u / temperature)], for one label per example; the head returns log-probabilities.

    Source: Collier et al. 2021, Eq. 3; `keras_het.ops.log_expected_softmax`.

    Example:
        >>> Softmax().returns
        'log-probabilities'
    """

    activations = ("softmax", "log_softmax")
    ignores_shift = True
    mean = SoftmaxMean()
    largest = LargestMean()

    def second_order(self, normal: Any) -> Any:
        """Log-probabilities to second order in the noise, `(..., K)`."""
        return second_order_log_softmax(normal)

    def center(self, loc: Tensor) -> Any:
        return without_shift(loc)
