"""A converted regression predicts as before, and learns the noise of its data."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from keras_het.covariances import LowRank
from keras_het.losses import JointMultiLabelCrossentropy
from keras_het.models import DistributionModel, heteroscedastic, heteroscedastic_regression
from tests.common import refuses, reloaded, to_numpy

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3)).astype("float32")
Y = X @ [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]] + np.exp(X[:, :1]) * RNG.normal(size=(400, 2)) * [0.1, 3.0]
Y = Y.astype("float32")


def trained(units=2, activation=None):
    keras.utils.set_random_seed(0)
    last = keras.layers.Dense(units, activation, name="targets")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, "relu"), last])
    model.compile(keras.optimizers.Adam(0.01, beta_1=0.8), "mse", metrics=["mae", keras.metrics.R2Score()])
    model.fit(X, Y[:, :units], epochs=5, verbose=0)
    return model


@pytest.mark.smoke
@pytest.mark.on_tensorflow
def test_it_predicts_as_before_and_learns_the_noise(tmp_path):
    old = trained()
    before, metrics = old.predict(X, verbose=0), old.evaluate(X, Y, verbose=0)
    new = heteroscedastic_regression(old, X, Y, num_factors=1, clone=True)
    assert isinstance(new, DistributionModel)
    assert new.head.name == "targets"
    assert_allclose(new.predict(X, verbose=0), before, rtol=1e-5, atol=1e-6)
    after = new.evaluate(X, Y, verbose=0)
    assert_allclose(after[1:], metrics[1:], rtol=1e-4)
    assert float(to_numpy(new.optimizer.learning_rate)) == pytest.approx(0.01)
    assert new.optimizer.beta_1 == 0.8
    assert new.fit(X, Y, epochs=5, verbose=0).history["loss"][-1] < after[0]
    assert_array_equal(old.predict(X, verbose=0), before)
    assert_array_equal(reloaded(new, tmp_path).predict(X, verbose=0), new.predict(X, verbose=0))


@pytest.mark.parametrize("arguments", [{}, {"num_factors": 2}, {"num_factors": 1, "parameter_efficient": True}])
def test_the_noise_starts_as_large_as_the_residuals_of_each_target(arguments):
    old = trained()
    new = heteroscedastic_regression(old, X, Y, **arguments)
    assert_array_equal(new.predict(X, verbose=0), old.predict(X, verbose=0))
    rmse = np.sqrt(np.square(Y - old.predict(X, verbose=0)).mean(0))
    assert rmse.max() > 5 * rmse.min()
    low, high = new.predict_interval(X, 0.5, verbose=0)
    assert_allclose((high - low) / (2 * norm.ppf(0.75)), np.broadcast_to(rmse, Y.shape), rtol=1e-3)


def test_a_given_scale_a_given_covariance_data_sets_and_one_target_without_an_axis():
    old = trained(1)
    residual = np.sqrt(np.square(Y[:, :1] - old.predict(X, verbose=0)).mean())
    batches = [(X[:300], Y[:300, 0]), (X[300:], Y[300:, 0])]
    for data, scale in (((X, Y[:, 0]), residual), ((iter(batches), None), residual), ((), 0.3)):
        given = {"initial_scale": scale} if not data else {"covariance": LowRank(1), "num_factors": None}
        new = heteroscedastic_regression(old, *data, **given)
        variance = to_numpy(new.head.distribution(np.ones((2, 8), "float32")).variance())
        assert_allclose(np.sqrt(variance), scale, rtol=1e-3)


def test_the_covariance_alone_is_learned_and_no_noise_is_finite():
    old = trained()
    before = old.predict(X, verbose=0)
    new = heteroscedastic_regression(old, X, Y, num_factors=1, train_mean=False)
    start = new.evaluate(X, Y, verbose=0)[0]
    assert new.fit(X, Y, epochs=10, verbose=0).history["loss"][-1] < start
    assert_array_equal(new.predict(X, verbose=0), before)
    assert all(layer.trainable for layer in old.layers)
    assert len(new.trainable_weights) == 4
    perfect = heteroscedastic_regression(old, X, before, num_factors=1)  # it starts at the least noise
    assert np.isfinite(perfect.fit(X, before, epochs=3, verbose=0).history["loss"]).all()


def test_a_map_of_a_regression_for_every_pixel_and_faithful_that_stops_features_of_shared_layers():
    inputs = keras.Input((4, 4, 3))
    old = keras.Model(inputs, keras.layers.Conv2D(1, 1)(keras.layers.Conv2D(5, 3, padding="same")(inputs)))
    x = RNG.normal(size=(6, 4, 4, 3)).astype("float32")
    new = heteroscedastic_regression(old, x, x[..., :1])
    assert not new.compiled
    assert_allclose(new.predict(x, verbose=0), old.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    assert new.predict_interval(x, verbose=0)[0].shape == (6, 4, 4, 1)
    old = trained()
    new = heteroscedastic_regression(old, initial_scale=1.0, form="faithful")
    assert new.loss.form == "faithful"
    assert new.head.stop_features
    assert old.layers[0] in new.layers
    assert old.layers[0] not in heteroscedastic_regression(old, initial_scale=1.0, clone=True).layers


@pytest.mark.parametrize("padding", [1e6, np.nan])
def test_masked_steps_have_no_residuals(padding):
    x = np.ones((3, 4, 2), "float32")
    x[:, 2:] = 0.0
    y, inputs = np.where(x[..., :1] > 0, 5.0, padding), keras.Input((4, 2))
    old = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.Masking()(inputs)))
    low, high = heteroscedastic_regression(old, x, y).predict_interval(x, 0.5, verbose=0)
    assert_allclose((high - low)[:, :2] / (2 * norm.ppf(0.75)), 3.0, rtol=1e-3)  # 5 - (1 + 1)
    y[0, 0] = np.nan
    with refuses("`y` must be finite"):
        heteroscedastic_regression(old, x, y)


INPUTS = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
LABEL_VECTORS = (INPUTS[:, :3] > 0).astype("float32")


def multi_label(activation="sigmoid"):
    keras.utils.set_random_seed(0)
    hidden, last = keras.layers.Dense(8, "relu"), keras.layers.Dense(3, activation, name="labels")
    model = keras.Sequential([keras.Input((4,)), hidden, last])
    loss = keras.losses.BinaryCrossentropy(from_logits=activation is None)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["binary_accuracy", keras.metrics.AUC(multi_label=True)])
    model.fit(INPUTS, LABEL_VECTORS, epochs=3, verbose=0)
    return model


def test_it_predicts_as_before_trains_jointly_and_keeps_the_metrics(tmp_path):
    old = multi_label()
    new = heteroscedastic(old, num_factors=2, joint=True)
    assert isinstance(new, DistributionModel)
    assert isinstance(new.loss, JointMultiLabelCrossentropy)
    assert new.head.name == "labels"
    assert_allclose(new.predict(INPUTS, verbose=0), old.predict(INPUTS, verbose=0), atol=0.02)
    before, after = (model.evaluate(INPUTS, LABEL_VECTORS, verbose=0) for model in (old, new))
    assert len(after) == 3
    assert_allclose(after[1:], before[1:], atol=0.05)
    assert new.fit(INPUTS, LABEL_VECTORS, epochs=3, verbose=0).history["loss"][-1] < after[0]
    assert_array_equal(reloaded(new, tmp_path).predict(INPUTS, verbose=0), new.predict(INPUTS, verbose=0))
    old = multi_label(None)
    new = heteroscedastic(old, joint=True, link="sigmoid")  # logits need the link
    assert_allclose(new.predict(INPUTS, verbose=0), 1.0 / (1.0 + np.exp(-old.predict(INPUTS, verbose=0))), atol=0.02)
    assert new.metrics_names == old.metrics_names
