"""Links and integrators of one's own: what a file keeps of them, and what they must say."""

import keras
import pytest

from keras_het.integrators import Integrator
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
