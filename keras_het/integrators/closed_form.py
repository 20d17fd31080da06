"""The integrator that uses the closed form of a link."""

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
