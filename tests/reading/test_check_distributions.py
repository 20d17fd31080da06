"""`check` of distribution models: losses, metrics and labels that fit, and others that do not."""

import keras
import numpy as np
import pytest

import keras_het
from keras_het import layers, losses
from tests.common import compiled, refuses, texts_of_warnings

pytestmark = pytest.mark.once
HEADS = {
    "labels": (lambda: layers.JointHeteroscedasticDense(3, 1), losses.JointMultiLabelCrossentropy(4), (4,)),
    "pixels": (lambda: layers.StochasticSegmentation(3, 1), losses.JointSegmentationCrossentropy(3), (2, 2, 4)),
    "targets": (lambda: layers.HeteroscedasticNormal(3, 1), losses.MultivariateNormalNLL(), (4,)),
}
METRICS = {"labels": "binary_accuracy", "pixels": "accuracy", "targets": "mae"}
X = {name: np.ones((5, *shape)) for name, (_, _, shape) in HEADS.items()}
Y = {
    "labels": np.tile([[0.0], [1.0], [1.0], [0.0], [1.0]], (1, 3)),
    "pixels": np.arange(20).reshape(5, 2, 2) % 3,
    "targets": np.random.default_rng(0).normal(size=(5, 3)),
}


def model_of(name, loss=None, metrics=()):
    make, own, shape = HEADS[name]
    inputs = keras.Input(shape)
    model = keras_het.models.DistributionModel(inputs, make()(inputs), name="model")
    return compiled(model, "adam", loss or own, metrics=list(metrics))


@pytest.mark.parametrize("name", HEADS)
def test_right_losses_metrics_and_labels_pass_without_a_warning(name):
    keras_het.check(model_of(name, metrics=[METRICS[name]]), X[name], Y[name])  # a warning would be an error


def test_metrics_get_probabilities():
    with pytest.raises(ValueError, match="`metrics` must accept probabilities"):
        keras_het.check(model_of("labels", metrics=[keras.metrics.BinaryCrossentropy(from_logits=True)]))


@pytest.mark.parametrize(("name", "labels", "text"), [
    ("labels", 2.0 * Y["labels"], r"`y` must be 0 or 1, or -1 for missing. Received: 2 at \[1, 0\]"),
    ("pixels", Y["pixels"] + 1, r"`y` must be in \[0, 3\), the classes of the model"),
    ("targets", np.full((5, 3), np.nan), "`y` must be finite. Received"),
])  # fmt: skip
def test_labels_that_do_not_fit_are_refused(name, labels, text):
    with pytest.raises(ValueError, match=text):
        keras_het.check(model_of(name), X[name], labels)


@pytest.mark.parametrize("y", [np.random.default_rng(0).normal(size=(8, 2)), np.ones((8, 2))], ids=["fits", "constant"])
def test_targets_are_checked_before_the_shape_of_the_output_is_known(y):
    model = keras.Sequential([layers.HeteroscedasticNormal(2, num_factors=1)])
    model.compile("sgd", losses.MultivariateNormalNLL())
    with texts_of_warnings() as texts:
        keras_het.check(model, None, y)
    assert texts == (["`y` has constant targets, [0, 1], which have no noise to learn."] if np.all(y == 1) else [])


def test_unknown_labels_and_constant_targets_are_warned_of():
    with pytest.warns(UserWarning, match="labels of -1. The loss ignores them, but metrics of Keras count them"):
        keras_het.check(model_of("labels"), X["labels"], np.where(np.eye(5, 3) == 1, -1.0, Y["labels"]))
    y = Y["targets"].copy()
    y[:, 1] = 2.0
    with pytest.warns(UserWarning, match=r"constant targets, \[1\], which have no noise to learn"):
        keras_het.check(model_of("targets"), X["targets"], y)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_without_its_model_is_judged_as_with_it(name):
    make, own, shape = HEADS[name]
    model = compiled(keras.Sequential([keras.Input(shape), make()]), "adam", own)
    keras_het.check(model, X[name], Y[name])
    with pytest.raises(ValueError, match="`y` must"):
        keras_het.check(model, X[name], Y[name][:, :1])
    model.compile("adam", "mse")
    with refuses(rf"`loss` must accept distributions.* Use keras_het.losses.{type(own).__name__}"):
        keras_het.check(model)
    model.compile("adam", own, metrics=[METRICS[name]])
    with pytest.raises(ValueError, match="`metrics` must belong to a keras_het"):
        keras_het.check(model)


def test_wrong_and_right_losses_of_a_plain_model():
    for _, loss, shape in HEADS.values():
        model = compiled(keras.Sequential([keras.Input(shape), keras.layers.Dense(3)]), "adam", loss)
        with pytest.raises(ValueError, match="`loss` must accept logits"):
            keras_het.check(model)
