"""Small models of every structure that a conversion must read, and data for them."""

import keras
import numpy as np
from keras import layers

from tests.models.checks import UNITS

FEATURES, EXAMPLES = 8, 200
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32"), RNG.integers(UNITS, size=EXAMPLES)


def sequential(activation=None, units=UNITS):
    return keras.Sequential(
        [keras.Input((FEATURES,)), layers.Dense(16, "tanh"), layers.Dropout(0.1), layers.Dense(units, activation)]
    )


def functional(activation=None, *behind, **head):
    inputs = keras.Input((FEATURES,))
    outputs = layers.Dense(UNITS, activation, name="predictions", **head)(
        layers.Dense(16, "tanh", name="hidden")(inputs)
    )
    for layer in behind:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def nested(head):
    inputs = keras.Input((FEATURES,))
    return keras.Model(inputs, head(layers.Dense(16, "tanh")(inputs)))


def two_inputs():
    inputs = {name: keras.Input((FEATURES,), name=name) for name in ("a", "b")}
    return keras.Model(
        inputs, layers.Dense(UNITS)(layers.Concatenate()([inputs["a"], layers.Dense(16, "tanh")(inputs["b"])]))
    )


MODELS = {
    "Sequential": sequential,
    "Sequential with softmax": lambda: sequential("softmax"),
    "functional": functional,
    "functional with activation": lambda: functional("softmax"),
    "functional without bias": lambda: functional(use_bias=False),
    "functional with a Softmax layer": lambda: functional(None, layers.Softmax()),
    "functional with an Activation layer": lambda: functional(None, layers.Activation("softmax")),
    "functional with a softmax operation": lambda: functional(None, keras.ops.softmax),
    "functional with the operation as activation": lambda: functional(keras.ops.softmax),
    "functional with a layer as activation": lambda: functional(layers.Softmax()),
    "head in a model": lambda: nested(
        keras.Sequential([keras.Input((16,)), layers.Dense(12, "relu"), layers.Dense(UNITS, "softmax")])
    ),
    "head alone in a model": lambda: nested(keras.Sequential([keras.Input((16,)), layers.Dense(UNITS)])),
    "head alone": lambda: keras.Sequential([keras.Input((FEATURES,)), layers.Dense(UNITS)]),
}
