"""A small task with wrong labels whose true ones are known, and methods that are good or bad by their making."""

import keras
import numpy as np
import pytest

from keras_het.labels import choose
from keras_het.labels.methods import EarlyStopping, Method
from tests.common import compiled

# For tests whose trainings are too short to be good, of which the engine warns.
WEAK = "predicts .* of the held-out labels|is not clearly better"
SHORT_TRAININGS = pytest.mark.filterwarnings(f"ignore:The model ({WEAK}):UserWarning")
CENTERS = np.random.default_rng(0).normal(size=(3, 6))


def clusters(count, seed, flipped=0.3):
    """Clusters of three classes, with random labels for a fraction of the examples."""
    rng = np.random.default_rng(seed)
    true = rng.integers(3, size=count)
    x = (CENTERS[true] + 0.7 * rng.normal(size=(count, 6))).astype("float32")
    return x, np.where(rng.random(count) < flipped, rng.integers(3, size=count), true), true


def make_model():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])
    return compiled(model, keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")


class Constant(Method):
    name = "constant"

    def labels(self, data):
        return np.zeros_like(data.y)


class Cheat(Method):
    name = "cheat"

    def labels(self, data):
        return np.square(data.x[:, None] - CENTERS).sum(-1).argmin(1)


class Named(Method):
    def __init__(self, name):
        self.name = name


X, Y, TRUE = clusters(240, seed=1)
SHORT = {"epochs": 3, "folds": 3, "batch_size": 64, "verbose": 0}


def short(*methods, x=X, y=Y, make_model=make_model, **arguments):
    return choose(make_model, x, y, **{"methods": [EarlyStopping(), *methods], **SHORT, **arguments})


def maker(*layers, units=3, rate=0.1):
    def make():
        model = keras.Sequential([*(layer() for layer in layers), keras.layers.Dense(units, "softmax")])
        return compiled(model, keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")

    return make
