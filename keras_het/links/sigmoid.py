"""The sigmoid link, for labels that are not exclusive."""

from typing import Any

import keras

from keras_het.links.link import Link
from keras_het.ops.sigmoid import SigmoidMean, expected_sigmoid_logit


@keras.saving.register_keras_serializable("keras_het")
class Sigmoid(Link):
    """logit E[sigmoid(u / temperature)], for labels that are not exclusive; the head returns logits.

    Source: Collier et al. 2021, Eq. 5; `keras_het.ops.log_expected_sigmoid`.

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
