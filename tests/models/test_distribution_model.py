"""A model of label vectors: trained by a joint loss, it predicts probabilities, and learns which labels go together."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, spearmanr

from keras_het.layers import HeteroscedasticDense, HeteroscedasticNormal, JointHeteroscedasticDense
from keras_het.losses import JointMultiLabelCrossentropy, MultivariateNormalNLL
from keras_het.models import DistributionModel
from tests.common import assert_finite, refuses, reloaded, to_numpy
from tests.gradients import layer_gradients

FEATURES, LABELS, FACTORS = 3, 6, 2


def label_vectors(count, seed):
    """Features, label vectors, and the planted covariance of the logits."""
    rng = np.random.default_rng(seed)
    x, factor = rng.normal(size=(count, FEATURES)), 2.0 * rng.normal(size=(LABELS, FACTORS))
    noise = rng.normal(size=(count, FACTORS)) @ factor.T
    u = x @ rng.normal(size=(FEATURES, LABELS)) + noise
    y = rng.random(u.shape) < 1.0 / (1.0 + np.exp(-u))
    return x.astype("float32"), y.astype("float32"), factor @ factor.T


def joint_model(loss=None, **arguments):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((FEATURES,))
    head = JointHeteroscedasticDense(LABELS, FACTORS, seed=0, name="head", **arguments)
    model = DistributionModel(inputs, head(inputs), name="joint")
    model.compile(keras.optimizers.Adam(0.05), loss or JointMultiLabelCrossentropy(32), metrics=["binary_accuracy"])
    return model


X, Y, PLANTED = label_vectors(1500, seed=0)


@pytest.mark.on_jax
def test_it_trains_predicts_evaluates_and_comes_back_from_a_file(tmp_path):
    model = joint_model()
    history = model.fit(X[:256], Y[:256], epochs=4, verbose=0, validation_data=(X[256:300], Y[256:300])).history
    assert history["loss"][-1] < history["loss"][0]
    p = model.predict(X[:20], verbose=0)
    assert p.shape == (20, LABELS)
    assert ((p > 0) & (p < 1)).all()
    loss, accuracy = model.evaluate(X[:256], Y[:256], verbose=0)
    found = np.mean((model.predict(X[:256], verbose=0) > 0.5) == Y[:256])
    assert accuracy == pytest.approx(found, abs=1e-6)
    assert int(model.head.clock.step) == 4 * 8
    loaded = reloaded(model, tmp_path)
    assert type(loaded) is DistributionModel
    assert_array_equal(loaded.predict(X[:20], verbose=0), p)
    assert_array_equal(loaded.predict_on_batch(X[:20]), model.predict_on_batch(X[:20]))
    assert loaded.evaluate(X[:256], Y[:256], verbose=0)[0] == pytest.approx(loss, rel=1e-6)


def test_the_predictions_are_those_of_the_head_of_each_label():
    """The same weights in a head of marginals give the same probabilities."""
    model, inputs = joint_model(), keras.Input((FEATURES,))
    head = HeteroscedasticDense(LABELS, FACTORS, link="sigmoid", temperature=1.0, seed=0)
    marginal = keras.Model(inputs, head(inputs))
    head.set_weights(model.head.get_weights())
    expected = 1.0 / (1.0 + np.exp(-marginal.predict(X[:9], verbose=0)))
    assert_allclose(model.predict(X[:9], verbose=0), expected, rtol=1e-5)
    assert_allclose(to_numpy(model.head.probabilities(X[:9])), expected, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.once
def test_the_joint_loss_learns_the_planted_correlations():
    model, below = joint_model(), np.tril_indices(LABELS, -1)
    model.fit(X, Y, batch_size=128, epochs=10, verbose=0)
    covariance = to_numpy(model.head.logit_covariance(X[:200], centered=False)).mean(0)
    assert spearmanr(covariance[below], PLANTED[below])[0] > 0.8


@pytest.mark.thorough
@pytest.mark.once
@pytest.mark.planted
def test_the_marginal_loss_does_not_learn_them():
    """Binary crossentropy of the probabilities fails the check above."""
    inputs = keras.Input((FEATURES,))
    keras.utils.set_random_seed(0)
    head = HeteroscedasticDense(LABELS, FACTORS, link="sigmoid", temperature=1.0, seed=0)
    model = keras.Model(inputs, head(inputs))
    model.compile(keras.optimizers.Adam(0.05), keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(X, Y, batch_size=128, epochs=10, verbose=0)
    end = to_numpy(head.logit_covariance(X[:200])).mean(0)
    below = np.tril_indices(LABELS, -1)
    assert spearmanr(end[below], PLANTED[below])[0] < 0.8


@pytest.mark.once
def test_unknown_rows_leave_the_mean():
    model, y = joint_model(), Y[:4].copy()
    outputs = model(X[:4])
    y[1:] = -1
    found, expected = (to_numpy(model.loss(*pair)) for pair in ((y, outputs), (y[:1], outputs[:1])))
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.once
def test_known_rates_of_missing_positives_give_the_true_probabilities():
    """Half of the positive labels are missing; all of the first label would be right."""
    rng = np.random.default_rng(0)
    hidden = np.array([0.0, *[0.5] * (LABELS - 1)])
    y = Y * (rng.random(Y.shape) >= hidden)
    means = []
    for rate in (0.0, hidden):
        model = joint_model(JointMultiLabelCrossentropy(8, false_negative_rate=rate))
        model.fit(X, y, batch_size=256, epochs=6, verbose=0)
        means.append(model.predict(X, verbose=0).mean(0))
    assert np.abs(means[0][1:] - Y.mean(0)[1:]).min() > 0.1
    assert_allclose(means[1], Y.mean(0), atol=0.06)


@pytest.mark.thorough
@pytest.mark.once
def test_rates_of_missing_positives_are_learned(tmp_path):
    """However certain the features are, p(label 1) is at most 1 - f: the rate shows there."""
    rng = np.random.default_rng(1)
    y = (rng.random(Y.shape) < 1.0 / (1.0 + np.exp(-6.0 * X @ rng.normal(size=(FEATURES, LABELS))))).astype("float32")
    hidden = np.array([0.0, *[0.4] * (LABELS - 1)])
    keras.utils.set_random_seed(0)
    inputs = keras.Input((FEATURES,))
    model = DistributionModel(inputs, JointHeteroscedasticDense(LABELS, 0, seed=0, learn_flips=True)(inputs))
    model.compile(keras.optimizers.Adam(0.1), JointMultiLabelCrossentropy(1))
    model.fit(X, y * (rng.random(Y.shape) >= hidden), batch_size=500, epochs=50, verbose=0)
    missing, false = model.head.flip_rates
    assert_allclose(missing, hidden, atol=0.08)
    assert false.max() < 0.05
    p = model.predict(X, verbose=0)
    assert_allclose(p.mean(0), y.mean(0), atol=0.06)
    loaded = reloaded(model, tmp_path)
    assert_array_equal(loaded.predict(X, verbose=0), p)
    assert_array_equal(loaded.head.flip_rates, model.head.flip_rates)


@pytest.mark.once
@pytest.mark.parametrize("factors", [0, 2])
def test_learned_rates_are_those_that_the_loss_would_be_given(factors):
    """The loss of a head that learns them, at its start, is the loss of a plain head with the rates of that start."""
    values = []
    for learns, rate in ((True, 0.0), (False, 0.05)):
        inputs = keras.Input((FEATURES,))
        keras.utils.set_random_seed(0)
        model = DistributionModel(
            inputs, JointHeteroscedasticDense(LABELS, factors, seed=0, learn_flips=learns)(inputs)
        )
        loss = JointMultiLabelCrossentropy(8, rate, rate)(Y[:9], model(X[:9]))
        values.append(float(to_numpy(loss)))
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.on_jax
def test_a_regression_predicts_means_and_intervals(tmp_path):
    rng = np.random.default_rng(0)
    y = X @ [[1.0, -1.0], [0.5, 0.0], [0.0, 2.0]] + [0.5, 1.0] * rng.normal(size=(len(X), 2))
    inputs = keras.Input((FEATURES,))
    model = DistributionModel(inputs, HeteroscedasticNormal(2, 1, seed=0)(inputs))
    model.compile(keras.optimizers.Adam(0.05), MultivariateNormalNLL(), metrics=["mae"])
    model.fit(X, y, batch_size=128, epochs=15, verbose=0)
    mean, (low, high) = model.predict(X, verbose=0), model.predict_interval(X, 0.9, verbose=0)
    assert mean.shape == low.shape == (len(X), 2)
    inside = (low < y) & (y < high)
    assert_allclose(inside.mean(0), 0.9, atol=0.04)
    assert_allclose((high - low).mean(0) / (2 * 1.645), [0.5, 1.0], rtol=0.1)
    covariance = model.predict_covariance(X, verbose=0)
    assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), ((high - low) / (2 * 1.6449)) ** 2, rtol=1e-3)
    assert_allclose(covariance.mean(0), np.cov((y - mean).T), atol=0.06)
    assert model.evaluate(X, y, verbose=0)[1] == pytest.approx(np.abs(mean - y).mean(), rel=1e-4)
    model.save(tmp_path / "model.keras")
    assert_array_equal(keras.models.load_model(tmp_path / "model.keras").predict(X, verbose=0), mean)


def regression(units=2, factors=1, **arguments):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((FEATURES,))
    head = HeteroscedasticNormal(units, factors, seed=0)
    model = DistributionModel(inputs, head(keras.layers.Dense(8, "relu")(inputs)))
    model.compile(keras.optimizers.Adam(0.05), MultivariateNormalNLL(**arguments))
    return model


@pytest.mark.once
@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("form", ["nll", "beta", "faithful"])
def test_constant_targets_have_a_finite_loss(form, units):
    """d has a least value, so no density is infinite."""
    model = regression(units, 1, form=form)
    history = model.fit(X[:320], np.full((320, units), 3.0), epochs=6, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    low, high = model.predict_interval(X, verbose=0)
    assert (high > low).all()


@pytest.mark.once
@pytest.mark.parametrize("form", ["nll", "beta", "faithful"])
def test_extreme_inputs_have_finite_losses_and_gradients_through_the_head(form):
    model, x = regression(form=form), X[:64].copy()
    model.fit(X, Y[:, :2], batch_size=128, epochs=2, verbose=0)  # the kernels of d and V leave their start, 0
    x[::4] *= 1e4
    x[1] = -1e4
    for target in (Y[:64, :2], 1e4 * Y[:64, :2]):
        loss = MultivariateNormalNLL(form)
        value, gradients = layer_gradients(model, lambda out, y=target, loss=loss: loss(y, out), x)
        assert_finite(value, gradients)
    assert np.isfinite(model.predict_distribution(x, verbose=0)).all()


@pytest.mark.once
def test_a_nan_target_makes_the_loss_nan_and_is_seen():
    y = np.array(Y[:, :2])
    y[5, 1] = np.nan
    assert np.isnan(regression().evaluate(X, y, batch_size=len(X), verbose=0))


@pytest.mark.once
def test_a_training_step_predicts_only_for_metrics_and_keeps_no_gradient_of_that(monkeypatch):
    calls, predictions = [], JointHeteroscedasticDense.predictions

    def counted(self, outputs):
        calls.append(outputs)
        return predictions(self, outputs)

    with_metric = joint_model()
    without = DistributionModel(with_metric.input, with_metric.output)
    without.compile("sgd", JointMultiLabelCrossentropy(8))
    monkeypatch.setattr(JointHeteroscedasticDense, "predictions", counted)
    assert np.isfinite(without.train_on_batch(X[:8], Y[:8]))
    assert not calls
    for _ in range(2):  # the first step makes the metrics, too
        calls.clear()
        assert len(with_metric.train_on_batch(X[:8], Y[:8])) == 2
    assert len(calls) == 1
    assert not getattr(calls[0], "requires_grad", False)


@pytest.mark.once
def test_a_model_of_labels_has_no_intervals():
    with refuses("The model must be a regression"):
        joint_model().predict_interval(X[:8])
    with refuses("to predict covariances of targets"):
        joint_model().predict_covariance(X[:8])


@pytest.mark.once
def test_a_masked_step_counts_neither_in_the_loss_nor_in_a_metric():
    x = np.random.default_rng(0).normal(size=(2, 4, FEATURES)).astype("float32")
    x[:, 3:] = 0.0
    inputs = keras.Input((4, FEATURES))
    model = DistributionModel(inputs, HeteroscedasticNormal(1, 0)(keras.layers.Masking()(inputs)))
    model.compile("sgd", MultivariateNormalNLL(), metrics=["mse"])
    y = np.ones((2, 4, 1), "float32")
    found, mean = model.predict_distribution(x, verbose=0)[:, :3], model.predict(x, verbose=0)[:, :3]
    expected = [-norm(found[..., 0], found[..., 1]).logpdf(1.0).mean(), np.square(1.0 - mean).mean()]
    assert_allclose(model.evaluate(x, y, verbose=0), expected, rtol=1e-5)
