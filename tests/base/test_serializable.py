"""Links and integrators of one's own: what a file keeps of them, and what they must say."""

import keras
import pytest

from keras_het import covariances
from keras_het.base.serializable import resolve
from keras_het.integrators import Integrator, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense, LearnedTemperature
from keras_het.links import Link, Softmax

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


def test_an_activation_that_is_not_known_is_refused():
    with pytest.raises(
        ValueError, match=r"`activation` of a link must be 'softmax' or 'sigmoid'. Received: 'relu' of Wrong"
    ):

        class Wrong(Link):
            activation = "relu"


def test_an_integrator_that_does_not_say_what_it_needs_is_told():
    class Vague(Integrator):
        def integrate(self, link, normal, key=None):
            return None

    with pytest.raises(NotImplementedError, match="Vague must say in `needs`"):
        Vague().check(Softmax(), 3, 0)


@pytest.mark.parametrize(
    ("base", "given"),
    [(Link, Softmax), (Integrator, QuasiMonteCarlo), (covariances.Covariance, covariances.LowRank)],
    ids=["link", "integrator", "covariance"],
)
def test_a_class_is_told_from_an_instance(base, given):
    with pytest.raises(
        ValueError, match=rf"must be an instance: {given.__name__}\(...\). Received: the class {given.__name__}"
    ):
        resolve(base, given)


def test_an_integrator_that_needs_what_no_link_has_is_told():
    class Demanding(Integrator):
        needs = "magic"

        def integrate(self, link, normal, key=None):
            return None

    with pytest.raises(
        ValueError,
        match=r"`link` must have `magic` of its own, for the integrator Demanding. Received: link=Softmax\(\)",
    ):
        Demanding().check(Softmax(), 3, 0)


def test_an_integrator_that_is_set_later_is_checked():
    head = HeteroscedasticDense(3, 2)
    head.build((None, 4))
    head.integrator = "monte_carlo"
    assert type(head.integrator).__name__ == head.get_config()["integrator"]["class_name"] == "MonteCarlo"
    for wrong, message in (
        ("closed_form", "integrator ClosedForm"),
        (3, "Received"),
    ):
        with pytest.raises(ValueError, match=message):
            head.integrator = wrong
    assert type(head.integrator).__name__ == "MonteCarlo"
    head.integrator = None
    assert type(head.integrator).__name__ == "QuasiMonteCarlo"


def test_a_link_stays():
    head = HeteroscedasticDense(3, 2)
    with pytest.raises(AttributeError):
        head.link = "sigmoid"
    assert isinstance(head.link, Softmax)


@pytest.mark.parametrize("given", [LearnedTemperature, "learned"], ids=["class", "string"])
def test_a_temperature_that_is_none_is_told_of_the_learned_one(given):
    with pytest.raises(
        ValueError, match=r"`temperature` must be a number, or a LearnedTemperature\(...\). Received: temperature="
    ):
        HeteroscedasticDense(3, 2, temperature=given)


def test_a_factor_beside_a_covariance_belongs_to_it():
    with pytest.raises(
        ValueError, match=r"give it to the covariance, as covariance=Latent\(...\). Received: num_factors=2"
    ):
        HeteroscedasticDense(3, 2, covariance=covariances.Latent())
