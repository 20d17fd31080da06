"""A model of label maps: it trains by the joint loss of all pixels, and ignored pixels leave it."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keras_het.layers import StochasticSegmentation
from keras_het.losses import JointSegmentationCrossentropy
from keras_het.models import DistributionModel
from tests.common import assert_same_arrays, reloaded, to_numpy

CLASSES, IGNORED = 3, 255
RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 4, 4, 2)).astype("float32")
Y = (X[..., 0] > 0) + 1 * (X[..., 1] > 0.5)


def segmentation(num_factors=4, loss=None, shape=(4, 4, 2)):
    keras.utils.set_random_seed(0)
    inputs = keras.Input(shape)
    features = keras.layers.Dense(8, "relu")(inputs)
    head = StochasticSegmentation(CLASSES, num_factors, seed=0, name="head")
    model = DistributionModel(inputs, head(features))
    loss = loss or JointSegmentationCrossentropy(CLASSES, 8)
    model.compile(keras.optimizers.Adam(0.03), loss, metrics=["sparse_categorical_accuracy"])
    return model


@pytest.mark.on_jax
def test_it_trains_predicts_evaluates_and_comes_back_from_a_file(tmp_path):
    model = segmentation()
    history = model.fit(X, Y, batch_size=4, epochs=8, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    p = model.predict(X, verbose=0)
    assert_allclose(p.sum(-1), 1.0, atol=1e-5)
    loss, accuracy = model.evaluate(X, Y[..., None], verbose=0)
    assert accuracy == pytest.approx(np.mean(p.argmax(-1) == Y), abs=1e-6)
    loaded = reloaded(model, tmp_path)
    assert_array_equal(loaded.predict(X, verbose=0), p)
    assert loaded.evaluate(X, Y, verbose=0)[0] == pytest.approx(loss, rel=1e-6)


@pytest.mark.once
def test_signals_have_one_axis_of_places():
    model = segmentation(shape=(16, 2))
    x, y = X.reshape(8, 16, 2), Y.reshape(8, 16)
    losses = JointSegmentationCrossentropy(CLASSES, 8, reduction=None)
    of_signals = to_numpy(losses(y, model(x)))
    of_images = to_numpy(losses(Y, segmentation()(X)))
    assert of_signals.shape == (8,)
    assert_allclose(of_signals, of_images, rtol=1e-5)


@pytest.mark.once
def test_ignored_pixels_leave_the_loss_and_images_of_them_alone_its_mean():
    loss = JointSegmentationCrossentropy(CLASSES, 8, ignore_class=IGNORED)
    outputs, y = segmentation().predict_distribution(X, verbose=0), Y.copy()
    y[1:], y[0, :2] = IGNORED, IGNORED
    found = float(loss(y, outputs))
    assert found == pytest.approx(float(loss(y[:1, 2:], outputs[:1, 2:])), rel=1e-5)
    total = JointSegmentationCrossentropy(CLASSES, 8, IGNORED, reduction="sum")
    assert float(total(y, outputs)) == pytest.approx(found, rel=1e-6)
    assert float(loss(np.full_like(Y, IGNORED), outputs)) == float(total(np.full_like(Y, IGNORED), outputs)) == 0.0
    assert np.isnan(float(JointSegmentationCrossentropy(CLASSES, 8)(y, outputs)))


@pytest.mark.once
def test_a_batch_of_ignored_pixels_alone_moves_nothing():
    model = segmentation()
    model.compile(keras.optimizers.SGD(1.0), JointSegmentationCrossentropy(CLASSES, 8, ignore_class=IGNORED))
    before = [weight.numpy() for weight in model.trainable_weights]
    assert model.train_on_batch(X, np.full_like(Y, IGNORED))[0] == 0.0
    assert_same_arrays(model.trainable_weights, before)


def test_images_of_unknown_size_train_as_those_of_a_known_one():
    """Fully convolutional networks; more images than fit into a block of unknown images, and two sizes."""
    losses = []
    for shape in ((None, None, 2), (4, 4, 2)):
        model = segmentation(loss=JointSegmentationCrossentropy(CLASSES, 8, ignore_class=IGNORED), shape=shape)
        y = np.where(np.arange(4) == 0, IGNORED, Y)
        losses.append([model.train_on_batch(X, y)[0], model.evaluate(X, y, batch_size=8, verbose=0)[0]])
        if shape[0] is None:
            assert np.isfinite(model.train_on_batch(np.tile(X[:3], (1, 2, 1, 1)), np.tile(Y[:3], (1, 2, 1)))[0])
            model = segmentation(0, shape=shape)
            assert np.isfinite(model.train_on_batch(X, Y)[0])
    assert_allclose(losses[0], losses[1], rtol=1e-5)
