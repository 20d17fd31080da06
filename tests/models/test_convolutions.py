"""A last 1x1 convolution is a Dense layer of every pixel, with the layers that reshape behind it."""

import keras
import numpy as np
import pytest
from keras import layers, losses
from numpy.testing import assert_allclose

from keras_het import heteroscedastic, homoscedastic
from tests.models.checks import UNITS, check_file, head_of, old_probabilities, probabilities, sharpen

pytestmark = pytest.mark.once


def convolution(*behind, activation=None, shape=(4, 4, 3), **head):
    inputs = keras.Input(shape)
    hidden = layers.Conv2D(8, 3, padding="same", activation="tanh", data_format=head.get("data_format"))(inputs)
    outputs = layers.Conv2D(UNITS, 1, activation=activation, name="predictions", **head)(hidden)
    for layer in behind:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


IMAGES = np.random.default_rng(0).normal(size=(12, 4, 4, 3)).astype("float32")
PIXELS = np.random.default_rng(1).integers(UNITS, size=(12, 4, 4))


@pytest.mark.parametrize("clone", [False, True])
@pytest.mark.parametrize("make", [
    lambda: convolution(activation="softmax"),
    lambda: convolution(use_bias=False, padding="same"),
    lambda: convolution(layers.Reshape((16, UNITS), name="flat"), layers.Softmax()),
    lambda: convolution(layers.Softmax(), layers.Reshape((-1, UNITS))),
])  # fmt: skip
def test_a_pointwise_convolution_is_a_dense_layer_of_every_pixel(make, clone, tmp_path):
    model = sharpen(make())
    new = heteroscedastic(model, 2, clone=clone, seed=0)
    assert new.output_shape == model.output_shape
    p = probabilities(new, IMAGES)
    assert np.abs(p - old_probabilities(model, IMAGES)).max() < 0.02
    assert new.get_layer("predictions").loc_layer.kernel.shape == (8, UNITS)
    back = homoscedastic(new)
    assert back.output_shape == model.output_shape
    kernel = model.get_layer("predictions").kernel.numpy()[0, 0]
    assert_allclose(back.get_layer("predictions").kernel.numpy(), kernel, rtol=1e-5)
    is_log = head_of(new).activation is keras.activations.linear
    # Of vectors: on PyTorch Keras trains no softmax of pixels by its loss of integers, a plain one neither.
    new.compile("sgd", losses.CategoricalCrossentropy(from_logits=is_log))
    new.fit(IMAGES, np.eye(UNITS)[PIXELS].reshape(12, *new.output_shape[1:]), verbose=0)
    check_file(new, IMAGES, tmp_path)


@pytest.mark.on_jax
@pytest.mark.smoke
@pytest.mark.parametrize("make", [lambda: layers.Flatten(), lambda: layers.Reshape((UNITS,))])
def test_one_pixel_is_reshaped_as_before_and_other_classes_fit(make):
    model = sharpen(convolution(make(), layers.Activation("softmax"), shape=(1, 1, 3)))
    images = IMAGES[:, :1, :1]
    new = heteroscedastic(model, 2, seed=0)
    assert np.abs(new.predict(images, verbose=0) - model.predict(images, verbose=0)).max() < 0.02
    assert heteroscedastic(model, units=3).output_shape == (None, 3)
    assert homoscedastic(new, units=7).output_shape == (None, 7)


def test_a_sigmoid_of_every_pixel_may_be_flattened():
    model = sharpen(convolution(layers.Flatten(), activation="sigmoid"))
    new = heteroscedastic(model, 2, seed=0)
    assert np.abs(new.predict(IMAGES, verbose=0) - model.predict(IMAGES, verbose=0)).max() < 0.02


@pytest.mark.parametrize("application", [keras.applications.MobileNet, keras.applications.MobileNetV3Small])
def test_keras_applications_that_end_in_a_convolution(application):
    size = 32 if application is keras.applications.MobileNet else 64
    arguments = {"alpha": 0.25} if size == 32 else {"alpha": 0.75, "include_preprocessing": False}
    model = sharpen(application((size, size, 3), weights=None, classes=UNITS, **arguments))
    images = np.random.default_rng(1).normal(size=(4, size, size, 3)).astype("float32")
    new = heteroscedastic(model, 2, seed=0)
    assert new.output_shape == model.output_shape == (None, UNITS)
    assert np.abs(probabilities(new, images) - model.predict(images, verbose=0)).max() < 0.02
