"""The links of a softmax and of a sigmoid: one label per example, and labels that are not exclusive."""

from typing import Any

import keras

from keras_het.base.tensor import Tensor
from keras_het.links.link import Link
from keras_het.ops.sigmoid import SigmoidMean, expected_sigmoid_logit
from keras_het.ops.softmax import SoftmaxMean, second_order_log_softmax, without_shift


@keras.saving.register_keras_serializable("keras_het")
class Softmax(Link):
    """log E[softmax(u / temperature)], for one label per example; the head returns log-probabilities.

    Source: Collier et al. 2021, Eq. 3; `keras_het.ops.softmax.SoftmaxMean`.

    Example:
        >>> Softmax().returns
        'log-probabilities'
    """

    activations = ("softmax", "log_softmax")
    ignores_shift = True
    mean = SoftmaxMean()

    def second_order(self, normal: Any) -> Any:
        """Log-probabilities to second order in the noise, `(..., K)`."""
        return second_order_log_softmax(normal)

    def center(self, loc: Tensor) -> Any:
        return without_shift(loc)


@keras.saving.register_keras_serializable("keras_het")
class Sigmoid(Link):
    """logit E[sigmoid(u / temperature)], for labels that are not exclusive; the head returns logits.

    Source: Collier et al. 2021, Eq. 5; `keras_het.ops.sigmoid.log_expected_sigmoid`.

    Example:
        >>> Sigmoid().returns
        'logits'
    """

    activation = "sigmoid"
    activations = ("sigmoid", "log_sigmoid")
    min_units = 1
    mean = SigmoidMean()

    def closed_form(self, normal: Any) -> Any:
        """Logits of the mean probabilities, `(..., K)`; the error of the log-probabilities is below 1e-4."""
        return expected_sigmoid_logit(normal.loc, normal.variance())
