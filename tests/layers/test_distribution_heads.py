"""Heads that return a distribution keep the contract of layers, and their models can be exported."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.stats import norm

from keras_het import layers, losses
from keras_het.models import DistributionModel
from tests import layer_contract, reference
from tests.common import built, to_numpy
from tests.gradients import layer_gradients
from tests.layers.heads import numpy_distribution, set_random_weights
from tests.layers.test_heteroscedastic_dense_export import assert_plain, export_onnx, onnx_warnings, with_torch
from tests.marks import grid

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
    make, task, axes = HEADS[kind]
    x = np.random.default_rng(2).normal(size=(EXAMPLES, *axes, FEATURES)).astype("float32")
    return functools.partial(make, seed=seed, **arguments), x, *LOSSES[task]


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.once
def test_contract(kind, tmp_path):
    make, x, loss, y = parts(kind)
    layer_contract.check_layer(make, x, y, loss, tmp_path)
    layer_contract.check_config(functools.partial(make, use_bias=False, kernel_regularizer="l2", name="mine"))
    layer_contract.check_unknown_batch(make, x)
    layer_contract.check_half_precision(make, x, y, loss, "mixed_bfloat16")
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
@pytest.mark.parametrize("kind", grid(["labels", "pixels", "targets"], span=["pixels"], beyond=pytest.mark.thorough))
def test_saved_model_gives_what_the_model_predicts(kind, tmp_path):
    import tensorflow as tf

    model, x = exported_model(kind)
    model.export(tmp_path / "model", format="tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")  # `serve` alone does not keep the variables
    check_predictions(loaded.serve, model, x)


def check_predictions(run, model, x):
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


INPUTS = parts("targets")[1]


def normal_head(num_factors=2, **arguments):
    head = built(layers.HeteroscedasticNormal(UNITS, num_factors, seed=0, **arguments), INPUTS.shape)
    rng = np.random.default_rng(1)
    head.set_weights([0.3 * rng.normal(size=weight.shape) for weight in head.get_weights()])
    return head


def moments(head):
    mean, scale_diag, factor, _ = numpy_distribution(head, INPUTS)
    factors = [None] * len(INPUTS) if factor is None else factor
    return mean, np.stack([*map(reference.noise_covariance, scale_diag, factors)])


@pytest.mark.parametrize("num_factors", [0, 2])
def test_mean_covariance_and_intervals_are_those_of_the_weights(num_factors):
    head = normal_head(num_factors)
    mean, covariance = moments(head)
    outputs = head(INPUTS)
    assert tuple(outputs.shape) == head.compute_output_shape(INPUTS.shape) == (EXAMPLES, UNITS * (2 + num_factors) + 1)
    assert_allclose(to_numpy(head.predictions(outputs)), mean, rtol=1e-5, atol=1e-6)
    assert_allclose(to_numpy(head.distribution(INPUTS).covariance()), covariance, rtol=1e-5, atol=1e-6)
    ends = norm.interval(0.8, mean, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)))
    for end, right in zip(head.interval(outputs, 0.8), ends, strict=True):
        assert_allclose(to_numpy(end), right, rtol=1e-5, atol=1e-5)


@pytest.mark.once
@pytest.mark.parametrize("arguments", [{}, {"num_factors": 2}, {"num_factors": 2, "parameter_efficient": True}])
def test_the_noise_starts_at_the_initial_scale_for_all_inputs(arguments):
    for scale in (None, 0.2):
        head = layers.HeteroscedasticNormal(UNITS, initial_scale=scale, seed=0, **arguments)
        assert_allclose(to_numpy(head.distribution(INPUTS).variance()), (scale or 1.0) ** 2, rtol=1e-4)


@pytest.mark.once
def test_stopped_features_get_no_gradient_from_the_noise():
    of_noise, of_mean = (lambda out: ops.sum(out[:, UNITS:])), (lambda out: ops.sum(out[:, :UNITS]))

    def largest(loss, **arguments):
        """Returns the largest slope of each weight; PyTorch and TensorFlow have no gradient of a weight without one."""
        body = keras.layers.Dense(FEATURES, name="body")
        model = keras.Sequential([keras.Input((FEATURES,)), body, normal_head(**arguments)])
        slopes = layer_gradients(model, loss, INPUTS)[1]
        return {name: 0.0 if slope is None else np.abs(slope).max() for name, slope in slopes.items()}

    assert largest(of_noise)["body/kernel"] > 0
    assert largest(of_mean, stop_features=True)["body/kernel"] > 0
    assert largest(of_noise, stop_features=True)["body/kernel"] == 0
    assert max(largest(of_noise, stop_features=True).values()) > 0
