"""A head with a warm start learns the noise of new labels: on digits with 40% flips its noise grows."""

import keras
import numpy as np
import pytest

from keras_het import heteroscedastic
from tests.common import to_numpy

pytestmark = pytest.mark.once

CLEAN, NOISY, EPOCHS = 600, 800, 5


@pytest.fixture(scope="module")
def digits():
    """Images, labels, and labels of which 40% are flipped to the next class."""
    from sklearn import datasets

    data, rng = datasets.load_digits(), np.random.default_rng(0)
    order = rng.permutation(len(data.target))
    x, y = (data.data / 16).astype("float32")[order], data.target[order]
    return x, y, np.where(rng.random(len(y)) < 0.4, (y + 1) % 10, y)


@pytest.fixture(scope="module")
def pretrained(digits):
    x, y, _ = digits
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x[:CLEAN], y[:CLEAN], epochs=30, verbose=0)
    return model


def noise(model, x):
    """Returns the root mean square standard deviation of the logits."""
    features = keras.Model(model.inputs[0], model.layers[-2].output).predict(x, verbose=0)
    return float(np.sqrt(np.mean(to_numpy(model.layers[-1].logit_distribution(features).variance()))))


def growth(pretrained, digits, **arguments):
    x, _, noisy = digits
    model = heteroscedastic(pretrained, clone=True, seed=0, **arguments)
    before = noise(model, x)
    keras.utils.set_random_seed(1)
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    model.fit(x[CLEAN:][:NOISY], noisy[CLEAN:][:NOISY], epochs=EPOCHS, verbose=0)
    return noise(model, x) / before


@pytest.mark.parametrize(
    "arguments", [{"num_factors": 0}, {"num_factors": 3}, {"num_factors": 3, "parameter_efficient": True}], ids=str
)
def test_noisy_labels_at_least_double_the_noise(pretrained, digits, arguments):
    assert growth(pretrained, digits, **arguments) > 2
