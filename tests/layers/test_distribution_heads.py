"""Heads that return a distribution keep the contract of layers, and their models can be exported."""

import functools

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from keras_het import layers, losses
from keras_het.models import DistributionModel
from tests import layer_contract
from tests.common import to_numpy
from tests.layers.heads import set_random_weights
from tests.layers.test_heteroscedastic_dense_export import assert_plain, export_onnx, onnx_warnings, with_torch

UNITS, FEATURES, PIXELS, EXAMPLES = 3, 4, 5, 6
RNG = np.random.default_rng(0)
HEADS = {  # how to make one; its loss; the axes between examples and features
    "labels": (lambda **arguments: layers.JointHeteroscedasticDense(UNITS, 2, **arguments), "labels", ()),
    "pixels": (lambda **arguments: layers.StochasticSegmentation(UNITS, 2, **arguments), "pixels", (PIXELS,)),
    "targets": (lambda **arguments: layers.HeteroscedasticNormal(UNITS, 2, **arguments), "targets", ()),
    "diagonal": (lambda **arguments: layers.JointHeteroscedasticDense(UNITS, 0, **arguments), "labels", ()),
}
LOSSES = {
    "labels": (losses.JointMultiLabelCrossentropy(8), RNG.integers(2, size=(EXAMPLES, UNITS)).astype("float32")),
    "pixels": (losses.JointSegmentationCrossentropy(UNITS, 8), RNG.integers(UNITS, size=(EXAMPLES, PIXELS))),
    "targets": (losses.MultivariateNormalNLL(), RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")),
}


def parts(kind, seed=1, **arguments):
    """Returns a function that makes the head, features, and (loss, labels)."""
    make, task, axes = HEADS[kind]
    x = np.random.default_rng(2).normal(size=(EXAMPLES, *axes, FEATURES)).astype("float32")
    return functools.partial(make, seed=seed, **arguments), x, *LOSSES[task]


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.once
def test_contract(kind, tmp_path):
    make, x, loss, y = parts(kind)
    layer_contract.check_config(make)
    layer_contract.check_config(functools.partial(make, use_bias=False, kernel_regularizer="l2", name="mine"))
    layer_contract.check_shapes(make, x)
    layer_contract.check_unknown_batch(make, x)
    layer_contract.check_train_step(make, x, y, loss)
    layer_contract.check_half_precision(make, x, y, loss, "mixed_bfloat16")
    layer_contract.check_saved_model(make, x, tmp_path)
    layer_contract.check_saved_weights(make, x, tmp_path)
    for activation in (None, "linear", keras.activations.linear) if kind != "targets" else ():
        assert make(activation=activation).get_config()["activation"] == "linear"


def exported_model(kind):
    make, x, *_ = parts(kind)
    inputs = keras.Input(x.shape[1:])
    model = DistributionModel(inputs, make()(keras.layers.Dense(FEATURES, "relu")(inputs)))
    set_random_weights(model)
    return model, x


@pytest.mark.once
@onnx_warnings
@with_torch
@pytest.mark.parametrize("kind", HEADS)
def test_onnx_gives_what_the_model_predicts(kind, tmp_path):
    model, x = exported_model(kind)
    operations, run = export_onnx(model, tmp_path, x)
    assert_plain(operations)
    check_predictions(run, model, x)


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="a SavedModel needs TensorFlow")
@pytest.mark.parametrize("kind", ["labels", "pixels", "targets"])
def test_saved_model_gives_what_the_model_predicts(kind, tmp_path):
    import tensorflow as tf

    model, x = exported_model(kind)
    model.export(tmp_path / "model", format="tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")  # `serve` alone does not keep the variables
    check_predictions(loaded.serve, model, x)


def check_predictions(run, model, x):
    """Probabilities or means, for any batch size."""
    for part in (x[:1], x):
        result, expected = np.asarray(run(part)), model.predict(part, verbose=0)
        assert result.shape == (*part.shape[:-1], UNITS)
        assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.once
@pytest.mark.parametrize("loss", [
    losses.JointMultiLabelCrossentropy(16, [0.1, 0.2], 0.05, seed=3, reduction="sum"),
    losses.JointSegmentationCrossentropy(3, 16, 255, seed=3, reduction="sum"),
    losses.MultivariateNormalNLL("beta", 0.25, reduction="sum", dtype="mixed_float16"),
], ids=LOSSES)  # fmt: skip
def test_a_loss_comes_back_from_its_config_and_computes_in_full_precision(loss):
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    assert again.dtype == "float32"


@pytest.mark.once
@pytest.mark.parametrize("kind", ["labels", "pixels"])
def test_the_noise_of_a_loss_is_new_at_every_step_and_the_same_in_evaluation(kind):
    make, x, loss, y = parts(kind)
    head = make()

    def value(training):
        return float(to_numpy(loss(y, head(x, training=training))))

    values = [value(True), value(True)]
    assert values[0] != values[1]
    head.clock.step.assign(0)
    assert value(True) == values[0]
    assert value(False) == value(False)
