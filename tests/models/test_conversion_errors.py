"""Models that cannot be converted, and arguments that do not fit, are refused with a reason."""

import warnings

import keras
import pytest
from keras import layers

from keras_het import heteroscedastic, homoscedastic
from tests.common import refuses
from tests.models.checks import UNITS
from tests.models.small_models import FEATURES, functional

pytestmark = pytest.mark.once


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(UNITS)

    def call(self, x):
        return self.dense(x)


class Cosine(layers.Dense):
    """Not an affine map."""

    def call(self, inputs):
        return super().call(inputs / keras.ops.norm(inputs, axis=-1, keepdims=True))


class Softmax(layers.Layer):
    """Not Keras' softmax."""

    def call(self, inputs):
        return keras.ops.softmax(inputs / 5)


class Tempered(keras.Model):
    """Functional, but for what it does with the graph's output."""

    def call(self, inputs):
        return super().call(inputs) ** 0.5


def graph():
    model = functional("softmax")
    return model.input, model.output


def quantised(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.quantize("int8")
    return model


def two_outputs():
    inputs = keras.Input((FEATURES,))
    return keras.Model(inputs, [layers.Dense(UNITS, name="first")(inputs), layers.Dense(UNITS, name="second")(inputs)])


@pytest.mark.parametrize(
    ("make", "arguments", "text"),
    [
        (
            lambda: keras.Sequential([keras.Input((8,)), layers.Dense(5, name="a"), layers.Rescaling(2.0, name="r")]),
            {},
            "'a'. Received: ",
        ),
        (
            lambda: keras.Sequential([keras.Input((8,)), layers.Rescaling(2.0, name="r")]),
            {},
            "layers: none. Received: ",
        ),
        (
            lambda: keras.Sequential([keras.Input((8,)), layers.Rescaling(2.0, name="r")]),
            {},
            "ends in 'r', a Rescaling",
        ),
        (two_outputs, {}, "`model` must have one output. Received: a model with 2 outputs"),
        (Subclassed, {}, "`model` must be a functional model"),
        (lambda: keras.Sequential([layers.Dense(5)]), {}, "give it a keras.Input"),
        (lambda: layers.Dense(5), {}, "`model` must be a functional model"),
        (
            functional,
            {"layer": "nope"},
            "`layer` must name a Dense layer of the model: 'hidden', 'predictions'. Received: layer='nope'",
        ),
        (
            functional,
            {"layer": "hidden"},
            "The activation of the head must be softmax, sigmoid or none. Received: tanh in 'hidden'",
        ),
        (lambda: quantised(functional()), {}, "`warm_start` must be False, for the old head is quantised (int8)"),
        (lambda: keras.Sequential([keras.Input((8,)), Cosine(5, name="c")]), {}, "layers: none. Received: "),
        (lambda: functional(None, Softmax(name="s")), {}, "which ends in 's', a Softmax"),
        (lambda: Tempered(*graph()), {}, "`model` must be a functional model"),
        (lambda: functional("softmax", layers.Softmax()), {}, "The head must have one activation"),
        (lambda: functional(None, layers.Softmax(axis=0)), {}, "must be over the last axis. Received: axis=0"),
        (lambda: heteroscedastic(functional()), {}, "is a HeteroscedasticDense already; `homoscedastic(model)`"),
        (functional, {"warm_start": 1}, "`warm_start` must be True or False"),
        (functional, {"clone": "yes"}, "`clone` must be True or False"),
        (functional, {"num_factors": 12}, "`num_factors` must be None or an integer in [1, units]; a diagonal"),
    ],
)
def test_errors_say_what_is_wrong(make, arguments, text):
    with pytest.raises(ValueError) as error:
        heteroscedastic(make(), **arguments)
    assert text in str(error.value)


def test_the_way_back_needs_a_heteroscedastic_head():
    with refuses("must end in a HeteroscedasticDense layer"):
        homoscedastic(functional())
