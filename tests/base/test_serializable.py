"""Custom links and integrators: what a file stores, and what they must define."""

import re

import keras
import pytest

from keras_het import covariances
from keras_het.base.serializable import resolve
from keras_het.integrators import Integrator
from keras_het.layers import HeteroscedasticDense
from keras_het.links import Link, Softmax
from tests.checks import refusals
from tests.common import built

pytestmark = pytest.mark.once


def test_a_config_has_the_arguments_of_the_constructor_and_of_base_classes_behind_kwargs():
    class Powered(Link):
        def __init__(self, power=1, initializer=None):
            self.power, self.initializer = power, initializer

    class Wide(Powered):
        def __init__(self, width, **kwargs):
            super().__init__(**kwargs)
            self.width = width

    class Fixed(Wide):
        def __init__(self):
            super().__init__(3, power=2)

    zeros = keras.initializers.Zeros()
    config = Wide(3, power=2, initializer=zeros).get_config()
    assert config == {"width": 3, "power": 2, "initializer": keras.saving.serialize_keras_object(zeros)}
    assert Fixed().get_config() == {}
    assert repr(Powered(2)) == "Powered(power=2, initializer=None)"


class Vague(Integrator):
    def integrate(self, link, normal, key=None):
        return None


class Demanding(Vague):
    needs = "magic"


CLASS = "must be an instance: {0}(...). Received: the class {0}"
test_errors_say_what_is_wrong = refusals([
    (lambda: Vague().check(Softmax(), 3, 0), "Vague must name in `needs`"),
    (lambda: type("Wrong", (Link,), {"activation": "relu"}),
     "`activation` of a link must be 'softmax' or 'sigmoid'. Received: 'relu' of Wrong"),
    (lambda: resolve(Link, Softmax), CLASS.format("Softmax")),
    (lambda: resolve(covariances.Covariance, covariances.LowRank), CLASS.format("LowRank")),
    (lambda: Demanding().check(Softmax(), 3, 0),
     "`link` must define `magic` for the integrator Demanding. Received: link=Softmax()"),
], errors=(ValueError, NotImplementedError))  # fmt: skip


def test_an_integrator_that_is_set_later_is_checked_and_a_link_stays():
    head = built(HeteroscedasticDense(3, 2), (None, 4))
    head.integrator = "monte_carlo"
    assert type(head.integrator).__name__ == head.get_config()["integrator"]["class_name"] == "MonteCarlo"
    for wrong, message in (("closed_form", "integrator ClosedForm"), (3, "Received")):
        with pytest.raises(ValueError, match=re.escape(message)):
            head.integrator = wrong
    assert type(head.integrator).__name__ == "MonteCarlo"
    head.integrator = None
    assert type(head.integrator).__name__ == "QuasiMonteCarlo"
    for name, value in (("link", "sigmoid"), ("temperature", 2.0)):
        with pytest.raises(AttributeError):
            setattr(head, name, value)
    assert isinstance(head.link, Softmax)
