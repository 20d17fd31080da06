"""A small task with wrong labels whose true ones are known, and candidates that are good or bad by their making."""

import keras
import numpy as np
import pytest

from keras_het.training import Candidate, choose

# For tests whose trainings are too short to be good, of which the engine warns.
SHORT_TRAININGS = pytest.mark.filterwarnings("ignore:The model predicts .* of the held-out labels:UserWarning")
CENTERS = np.random.default_rng(0).normal(size=(3, 6))


def clusters(count, seed, flipped=0.3):
    """Clusters of three classes, with labels that are drawn at random for a share of the examples."""
    rng = np.random.default_rng(seed)
    true = rng.integers(3, size=count)
    x = (CENTERS[true] + 0.7 * rng.normal(size=(count, 6))).astype("float32")
    labels = np.where(rng.random(count) < flipped, rng.integers(3, size=count), true)
    return x, labels, true


def make_model():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])
    model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
    return model


class Constant(Candidate):
    """Learns that all labels are 0."""

    name = "constant"

    def labels(self, task, strength):
        return np.zeros_like(task.y)


class Cheat(Candidate):
    """Knows which examples have which true label, by their nearest center."""

    name = "cheat"

    def labels(self, task, strength):
        return np.square(task.x[:, None] - CENTERS).sum(-1).argmin(1)


class Unlucky(Candidate):
    """Leaves the head untrained."""

    name, strengths = "unlucky", (1, 2)

    def sample_weight(self, task, strength):
        return np.zeros(len(task.y))


X, Y, TRUE = clusters(240, seed=1)
SHORT = {"epochs": 3, "folds": 3, "batch_size": 32, "verbose": 0}


def short(*given, x=X, y=Y, make_model=make_model, **arguments):
    """A choice among the plain training and the given candidates, of few epochs and folds."""
    return choose(make_model, x, y, candidates=list(given), **{**SHORT, **arguments})


def maker(*layers, units=3, rate=0.1):
    """A function that makes a compiled model of the layers that these functions make, and a Dense layer."""

    def make():
        model = keras.Sequential([*(layer() for layer in layers), keras.layers.Dense(units, "softmax")])
        model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
        return model

    return make
