"""Links and integrators of one's own: what a file keeps of them, and what they must say."""

import keras
import pytest

from keras_het import covariances, integrators, links
from keras_het.integrators import Integrator, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.links import Link, Softmax


def test_arguments_that_a_file_would_lose_are_refused():
    class Forgetful(Link):
        def __init__(self, power):
            self.power = power

    class Remembering(Forgetful):
        def get_config(self):
            return {**super().get_config(), "power": self.power}

    with pytest.raises(NotImplementedError, match="Forgetful has arguments and must define get_config"):
        keras.saving.serialize_keras_object(Forgetful(2))
    assert repr(Remembering(2)) == "Remembering(power=2)"


def test_an_activation_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"`activation` of a link must be 'softmax' or 'sigmoid'. Received: 'relu' of Wrong"):

        class Wrong(Link):
            activation = "relu"


def test_an_integrator_that_does_not_say_what_it_needs_is_told():
    class Vague(Integrator):
        pass

    with pytest.raises(NotImplementedError, match="Vague must say in `needs`"):
        Vague().check(Softmax(), 3, 0)


@pytest.mark.parametrize(
    ("get", "given"), [(links.get, Softmax), (integrators.get, QuasiMonteCarlo), (covariances.get, covariances.LowRank)], ids=str
)
def test_a_class_is_told_from_an_instance(get, given):
    with pytest.raises(ValueError, match=rf"must be an instance: {given.__name__}\(...\). Received: the class {given.__name__}"):
        get(given)


def test_an_integrator_that_needs_what_no_link_has_is_told():
    class Demanding(Integrator):
        needs = "magic"

    with pytest.raises(ValueError, match=r"`link` must have `magic` of its own, for the integrator Demanding. Received: link=Softmax\(\)"):
        Demanding().check(Softmax(), 3, 0)


def test_an_integrator_that_is_set_later_is_checked():
    head = HeteroscedasticDense(3, 2)
    head.build((None, 4))
    head.integrator = "monte_carlo"
    assert type(head.integrator).__name__ == head.get_config()["integrator"]["class_name"] == "MonteCarlo"
    for wrong, message in (("closed_form", "for the integrator ClosedForm"), ("quadrature", "it is for diagonal heads"), (3, "Received")):
        with pytest.raises(ValueError, match=message):
            head.integrator = wrong
    assert type(head.integrator).__name__ == "MonteCarlo"
    head.integrator = None
    assert type(head.integrator).__name__ == "QuasiMonteCarlo"
