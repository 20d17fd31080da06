"""Small models and data with planted wrong labels, for the tests of the report."""

import keras
import numpy as np

from keras_het.layers import HeteroscedasticDense

CLASSES, EXAMPLES = 4, 120
HOSTILE = ["<script>alert(1)</script>", '=HYPERLINK("http://x","y")', "$\\frac{'\"&", "\u202ereversed\x07"]


def make_data(count=EXAMPLES, wrong=10, seed=0):
    """Inputs that are their classes, nearly, and labels of which the first `wrong` are those of the next class."""
    rng, classes = np.random.default_rng(seed), np.arange(count) % CLASSES
    x = (np.eye(CLASSES)[classes] + 0.05 * rng.normal(size=(count, CLASSES))).astype("float32")
    return x, np.where(np.arange(count) < wrong, (classes + 1) % CLASSES, classes)


def with_kernel(layer, scale=8.0):
    """A model of one layer that predicts the class of `make_data`."""
    model = keras.Sequential([keras.Input((CLASSES,)), layer], name="small")
    kernel = layer.loc_layer.kernel if isinstance(layer, HeteroscedasticDense) else layer.kernel
    kernel.assign(scale * np.eye(CLASSES))
    return model


def with_head(**arguments):
    return with_kernel(
        HeteroscedasticDense(CLASSES, **{"num_factors": 2, "temperature": 1.5, "seed": 0, "name": "head", **arguments})
    )


def plain(activation="softmax"):
    return with_kernel(keras.layers.Dense(CLASSES, activation))
