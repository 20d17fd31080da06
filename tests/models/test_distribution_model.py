"""Distribution models of label vectors, maps and targets: training, predictions and refusals."""

import re

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, spearmanr

import keras_het
from keras_het.layers import (
    HeteroscedasticDense,
    HeteroscedasticNormal,
    JointHeteroscedasticDense,
    StochasticSegmentation,
)
from keras_het.losses import JointMultiLabelCrossentropy, JointSegmentationCrossentropy, MultivariateNormalNLL
from keras_het.models import DistributionModel
from tests.common import assert_finite, compiled, refuses, reloaded, to_numpy
from tests.gradients import layer_gradients
from tests.marks import grid

FEATURES, LABELS, FACTORS = 3, 6, 2


def label_vectors(count, seed):
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


@pytest.mark.on_tensorflow
def test_the_predictions_are_those_of_the_head_of_each_label_and_unknown_rows_leave_the_mean():
    model, head = joint_model(), HeteroscedasticDense(LABELS, FACTORS, link="sigmoid", temperature=1.0, seed=0)
    marginal = keras.Sequential([keras.Input((FEATURES,)), head])
    head.set_weights(model.head.get_weights())
    expected = 1.0 / (1.0 + np.exp(-marginal.predict(X[:9], verbose=0)))
    assert_allclose(model.predict(X[:9], verbose=0), expected, rtol=1e-5)
    assert_allclose(to_numpy(model.head.probabilities(X[:9])), expected, rtol=1e-5)
    outputs, y = model(X[:4]), np.where(np.arange(4)[:, None] > 0, -1, Y[:4])
    assert_allclose(*to_numpy(model.loss(y, outputs), model.loss(y[:1], outputs[:1])), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.once
def test_the_joint_loss_learns_the_planted_correlations():
    model, below = joint_model(), np.tril_indices(LABELS, -1)
    model.fit(X, Y, batch_size=128, epochs=10, verbose=0)
    covariance = to_numpy(model.head.logit_covariance(X[:200], centered=False)).mean(0)
    assert spearmanr(covariance[below], PLANTED[below])[0] > 0.8


@pytest.mark.once
def test_a_regression_predicts_means_and_intervals(tmp_path):
    y = X @ [[1.0, -1.0], [0.5, 0.0], [0.0, 2.0]] + [0.5, 1.0] * np.random.default_rng(0).normal(size=(len(X), 2))
    inputs = keras.Input((FEATURES,))
    model = DistributionModel(inputs, HeteroscedasticNormal(2, 1, seed=0)(inputs))
    model.compile(keras.optimizers.Adam(0.05), MultivariateNormalNLL(), metrics=["mae"])
    model.fit(X, y, batch_size=128, epochs=15, verbose=0)
    mean, (low, high) = model.predict(X, verbose=0), model.predict_interval(X, 0.9, verbose=0)
    assert mean.shape == low.shape == (len(X), 2)
    assert_allclose(((low < y) & (y < high)).mean(0), 0.9, atol=0.04)
    assert_allclose((high - low).mean(0) / (2 * 1.645), [0.5, 1.0], rtol=0.1)
    covariance = model.predict_covariance(X, verbose=0)
    assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), ((high - low) / (2 * 1.6449)) ** 2, rtol=1e-3)
    assert_allclose(covariance.mean(0), np.cov((y - mean).T), atol=0.06)
    assert model.evaluate(X, y, verbose=0)[1] == pytest.approx(np.abs(mean - y).mean(), rel=1e-4)
    assert_array_equal(reloaded(model, tmp_path).predict(X, verbose=0), mean)


def regression(units=2, factors=1, **arguments):
    keras.utils.set_random_seed(0)
    inputs, head = keras.Input((FEATURES,)), HeteroscedasticNormal(units, factors, seed=0)
    model = DistributionModel(inputs, head(keras.layers.Dense(8, "relu")(inputs)))
    return compiled(model, keras.optimizers.Adam(0.05), MultivariateNormalNLL(**arguments))


@pytest.mark.once
@pytest.mark.parametrize("form", ["nll", "beta", "faithful"])
def test_constant_targets_and_extreme_inputs_have_finite_losses_and_gradients_through_the_head(form):
    """d has a least value, so no density is infinite."""
    for units in (1, 2):
        model = regression(units, 1, form=form)
        assert np.isfinite(model.fit(X[:320], np.full((320, units), 3.0), epochs=6, verbose=0).history["loss"]).all()
        low, high = model.predict_interval(X, verbose=0)
        assert (high > low).all()
    model, x = regression(form=form), X[:64].copy()
    model.fit(X, Y[:, :2], batch_size=128, epochs=2, verbose=0)  # the kernels of d and V leave their start, 0
    x[::4] *= 1e4
    x[1] = -1e4
    for target in (Y[:64, :2], 1e4 * Y[:64, :2]):
        loss = MultivariateNormalNLL(form)
        assert_finite(*layer_gradients(model, lambda out, y=target, loss=loss: loss(y, out), x))
    assert np.isfinite(model.predict_distribution(x, verbose=0)).all()


@pytest.mark.once
def test_a_training_step_predicts_only_for_metrics_and_keeps_no_gradient_of_that(monkeypatch):
    calls, predictions = [], JointHeteroscedasticDense.predictions
    with_metric = joint_model()
    without = DistributionModel(with_metric.input, with_metric.output)
    without.compile("sgd", JointMultiLabelCrossentropy(8))
    monkeypatch.setattr(
        JointHeteroscedasticDense, "predictions", lambda self, x: calls.append(x) or predictions(self, x)
    )
    assert np.isfinite(without.train_on_batch(X[:8], Y[:8]))
    assert not calls
    with_metric.run_eagerly = True  # a compiled step calls nothing
    for _ in range(2):  # the first step makes the metrics, too
        calls.clear()
        assert len(with_metric.train_on_batch(X[:8], Y[:8])) == 2
    assert len(calls) == 1
    assert not getattr(calls[0], "requires_grad", False)


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


CLASSES, IGNORED = 3, 255
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(8, 4, 4, 2)).astype("float32")
MAPS = (IMAGES[..., 0] > 0) + 1 * (IMAGES[..., 1] > 0.5)


def segmentation(num_factors=4, loss=None, shape=(4, 4, 2), optimizer=None, **options):
    keras.utils.set_random_seed(0)
    inputs = keras.Input(shape)
    features = keras.layers.Dense(8, "relu")(inputs)
    model = DistributionModel(inputs, StochasticSegmentation(CLASSES, num_factors, seed=0, name="head")(features))
    loss = loss or JointSegmentationCrossentropy(CLASSES, 8)
    optimizer = optimizer or keras.optimizers.Adam(0.03)
    return compiled(model, optimizer, loss, metrics=["sparse_categorical_accuracy"], **options)


@pytest.mark.parametrize("is_map", grid([False, True], span=[True]))
def test_it_trains_predicts_evaluates_and_comes_back_from_a_file(is_map, tmp_path):
    model, x, y = (segmentation(), IMAGES, MAPS) if is_map else (joint_model(), X[:256], Y[:256])
    history = model.fit(x, y, batch_size=len(x) // 2, epochs=8, verbose=0, validation_data=(x, y)).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    p = model.predict(x, verbose=0)
    assert ((p > 0) & (p < 1)).all()
    assert not is_map or p.sum(-1) == pytest.approx(1.0, abs=1e-5)
    loss, accuracy = model.evaluate(x, y[..., None] if is_map else y, verbose=0)
    assert accuracy == pytest.approx(np.mean((p.argmax(-1) if is_map else p > 0.5) == y), abs=1e-6)
    assert int(model.head.clock.step) == 2 * 8
    loaded = reloaded(model, tmp_path)
    assert type(loaded) is DistributionModel
    assert_array_equal(loaded.predict(x, verbose=0), p)
    assert_array_equal(loaded.predict_on_batch(x), model.predict_on_batch(x))
    assert loaded.evaluate(x, y, verbose=0)[0] == pytest.approx(loss, rel=1e-6)


@pytest.mark.once
def test_ignored_pixels_leave_the_loss_and_images_of_them_alone_its_mean():
    loss = JointSegmentationCrossentropy(CLASSES, 8, ignore_class=IGNORED)
    outputs, y = segmentation().predict_distribution(IMAGES, verbose=0), MAPS.copy()
    y[1:], y[0, :2] = IGNORED, IGNORED
    found = float(loss(y, outputs))
    assert found == pytest.approx(float(loss(y[:1, 2:], outputs[:1, 2:])), rel=1e-5)
    total = JointSegmentationCrossentropy(CLASSES, 8, IGNORED, reduction="sum")
    assert float(total(y, outputs)) == pytest.approx(found, rel=1e-6)
    nothing = np.full_like(MAPS, IGNORED)
    assert float(loss(nothing, outputs)) == float(total(nothing, outputs)) == 0.0
    assert np.isnan(float(JointSegmentationCrossentropy(CLASSES, 8)(y, outputs)))


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("num_factors", [4, 0])
def test_images_of_unknown_size_train_as_those_of_a_known_one(num_factors):
    """Fully convolutional networks; more images than fit into a block of unknown images, and two sizes."""
    losses, y = [], np.where(np.arange(4) == 0, IGNORED, MAPS)
    for shape in ((None, None, 2), (4, 4, 2)):
        loss = JointSegmentationCrossentropy(CLASSES, 8, ignore_class=IGNORED)
        options = {"optimizer": keras.optimizers.SGD(0.1), "run_eagerly": shape[0] is not None}
        model = segmentation(num_factors, loss, shape, **options)
        if shape[0] is None:  # of another size first, so that the next program is of both
            start = model.get_weights()
            assert np.isfinite(model.train_on_batch(np.tile(IMAGES[:3], (1, 2, 1, 1)), np.tile(MAPS[:3], (1, 2, 1)))[0])
            model.set_weights(start)
        losses.append([model.train_on_batch(IMAGES, y)[0] for _ in range(3)])
    assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert abs(losses[0][2] - losses[0][0]) > 0.01


SIZE = 3
HEADS = {  # and the loss of each
    "labels": (lambda: JointHeteroscedasticDense(5, 2), JointMultiLabelCrossentropy(4)),
    "pixels": (lambda: StochasticSegmentation(2, 2), JointSegmentationCrossentropy(2, 4)),
    "one target": (lambda: HeteroscedasticNormal(1), MultivariateNormalNLL()),
    "targets": (lambda: HeteroscedasticNormal(3, 2), MultivariateNormalNLL()),
}
OF_FIVE = "`y` must have shape (N, 5), with 0 or 1 for each class. Received: shape "
MISFITS = [  # by its width alone a tensor may be the distribution of other labels, or numbers that broadcast
    *(("labels", None, shape, f"{OF_FIVE}{shape}") for shape in [(8, 1), (8,), (8, 3), (8, 15)]),
    ("pixels", None, (8,), "`y` must be integers of shape (N, 4). Received: shape (8,)"),
    ("pixels", None, (8, 4, 2), "`y` must be integers of shape (N, 4). For label vectors use y.argmax(-1). Received"),
    ("pixels", JointSegmentationCrossentropy(3), (8, 4), "`loss` must have num_classes=2, the units of the model"),
    *(("targets", None, shape, "`y` must have shape (N, 3). Re") for shape in [(8, 1), (8,), (8, 2), (8, 4)]),
    ("one target", "mse", (8, 1), "`loss` must accept distributions, which the model"),
    ("targets", JointMultiLabelCrossentropy(4), (8, 3), "`loss` must accept distributions"),
    ("labels", MultivariateNormalNLL(), (8, 5), "`loss` must accept distributions"),
]


def untrained(name, loss=None):
    make, own = HEADS[name]
    inputs = keras.Input((4, SIZE) if name == "pixels" else (SIZE,))
    return compiled(DistributionModel(inputs, make()(inputs)), "sgd", loss or own), np.ones((8, *inputs.shape[1:]))


@pytest.mark.once
@pytest.mark.parametrize(("name", "loss", "shape", "text"), MISFITS)
def test_labels_and_losses_of_another_head_are_refused(name, loss, shape, text):
    model, x = untrained(name, loss)
    with refuses(re.escape(text)):
        model.train_on_batch(x, np.zeros(shape))
    with refuses(re.escape(text)):
        keras_het.check(model, x, np.zeros(shape))


def test_a_compiled_step_refuses_them_before_a_metric_broadcasts_them():
    """Keras builds the metrics before the loss."""
    model, x = untrained("labels")
    with refuses(re.escape(OF_FIVE)):  # TensorFlow does not know the 8
        model.fit(x, np.zeros((8, 1)), verbose=0)
    model = compiled(regression(), "sgd", MultivariateNormalNLL(), metrics=["mae"])
    with refuses(re.escape("`y` must have shape (N, 2). Received: shape (")):
        model.fit(np.zeros((8, FEATURES)), np.zeros(8), verbose=0)


@pytest.mark.once
@pytest.mark.parametrize(("name", "shape"), [("labels", (8, 5, 1)), ("pixels", (8, 4, 1)), ("one target", (8,))])
def test_labels_with_an_axis_of_one_and_without_are_the_same(name, shape):
    model, x = untrained(name)
    y = np.arange(np.prod(shape)) % 2.0
    found = [model.evaluate(x, y.reshape(form), verbose=0) for form in (shape, (8, -1))]
    assert found[0] == found[1]
