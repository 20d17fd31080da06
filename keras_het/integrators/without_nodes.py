"""Integrators without nodes: the closed form of a link, and its expansion."""

from typing import Any

import keras

from keras_het.integrators.integrator import Integrator
from keras_het.links import Link


@keras.saving.register_keras_serializable("keras_het")
class ClosedForm(Integrator):
    """The closed form of a link that has one, without nodes in training or prediction; the default of such links.

    Source: the link's `closed_form`.

    Example:
        >>> ClosedForm()
        ClosedForm()
    """

    needs = "closed_form"

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        return link.closed_form(normal)


@keras.saving.register_keras_serializable("keras_het")
class Taylor(Integrator):
    """E[softmax] to second order in the noise: no nodes, in O(K R), for small noise.

    The error falls with the fourth power of the noise, and is large from a standard deviation of about one temperature
    on. Do not train the noise with this integrator: the expansion has no upper bound, so training makes the noise grow
    to where the expansion is wrong. Use it for the predictions of a head that was trained by nodes and has small noise,
    or for a covariance that is not trained.

    Source: Collier et al. 2021, Appendix C; `keras_het.ops.softmax.second_order_log_softmax`.

    Example:
        >>> Taylor()
        Taylor()
    """

    needs = "second_order"

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        return link.second_order(normal)
