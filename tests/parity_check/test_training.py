"""Recordings of training: the effects of a training step beyond inference, and the state that it must not change."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_het import parity
from keras_het.parity.arrays import Slices
from keras_het.parity.recording import Recording
from tests.gradients import value_and_gradients

pytestmark = pytest.mark.once

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
X = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
Y = np.arange(4) % 3


def sequential(*stack, shape=(6,)):
    model = keras.Sequential([keras.Input(shape), *stack, layers.Dense(3, name="logits")], name="model")
    model.compile(keras.optimizers.SGD(0.1), LOSS)
    return model


def test_training_steps_run_in_training_mode():
    """Batch statistics move, and the bias before them has no gradient."""
    model = sequential(layers.Dense(8, name="dense"), layers.BatchNormalization(name="norm"), layers.Dropout(0.5))
    recording = parity.record(model, X, Y)
    assert np.max(np.abs(recording.arrays["training"]["model/norm/moving_mean"])) > 1e-4
    assert np.max(np.abs(recording.arrays["gradients"]["model/dense/bias"])) < 1e-6
    assert recording.failures == {}


class OwnPredictStep(keras.Sequential):
    def predict_step(self, *arguments, **options):
        return super().predict_step(*arguments, **options)


def test_the_model_keeps_no_arrays_of_its_own_step():
    """A later step of Keras would write them over the weights."""
    model = OwnPredictStep([keras.Input((6,)), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), LOSS)
    recording = parity.record(model, X, Y)
    assert "predictions" in recording.arrays
    assert not getattr(model, "_jax_state", None)


class NoTraining(keras.Model):
    def __init__(self):
        super().__init__(name="model")
        self.norm = layers.BatchNormalization(name="norm")
        self.logits = layers.Dense(3, name="logits")

    def call(self, inputs):
        return self.logits(self.norm(inputs))


def test_a_model_without_the_argument_trains_its_layers():
    model = NoTraining()
    model.compile("sgd", LOSS)
    recording = parity.record(model, X, Y)
    assert recording.failures == {}
    assert np.max(np.abs(recording.arrays["training"]["model/norm/moving_mean"])) > 1e-4


@pytest.mark.smoke
def test_the_gradient_counts_losses_of_layers():
    """Also on JAX, where Keras' trainer collects them for the outer model alone."""
    dense = layers.Dense(8, name="dense", activity_regularizer=keras.regularizers.L2(0.3))
    model = sequential(dense)
    recording = parity.record(model, X, Y)
    logits = model.layers[-1]
    fixed = [keras.ops.convert_to_tensor(variable) for variable in (dense.bias, logits.kernel, logits.bias)]

    def loss(tensors):
        hidden = keras.ops.matmul(keras.ops.convert_to_tensor(X), tensors[0]) + fixed[0]
        outputs = keras.ops.matmul(hidden, fixed[1]) + fixed[2]
        return LOSS(Y, outputs) + 0.3 * keras.ops.sum(hidden**2) / len(X)

    value, gradients = value_and_gradients(loss, [dense.kernel.numpy()])
    np.testing.assert_allclose(recording.arrays["loss"][""], value, rtol=1e-5)
    np.testing.assert_allclose(recording.arrays["gradients"]["model/dense/kernel"], gradients[0], rtol=1e-4, atol=1e-5)


@keras.saving.register_keras_serializable("tests")
class OwnLoss(keras.Sequential):
    """Computes with its labels, as tensors; `fit` passes tensors."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(keras.ops.square(y - y_pred))


@pytest.mark.smoke
def test_an_own_loss_gets_tensors():
    model = OwnLoss([keras.Input((6,)), layers.Dense(6, name="dense", kernel_initializer="zeros")])
    model.compile("sgd")
    recording = parity.record(model, X, X)
    assert recording.failures == {}
    assert recording.arrays["loss"][""] == pytest.approx(np.mean(X**2), rel=1e-5)


def test_metrics_of_several_outputs_stay():
    inputs = keras.Input((6,))
    model = keras.Model(inputs, [layers.Dense(3, name="a")(inputs), layers.Dense(1, name="b")(inputs)], name="model")
    model.compile("adam", [LOSS, "mse"])
    y = [Y, X[:, :1]]
    assert parity.record(model, X, y).failures == {}
    model.train_on_batch(X, y)
    before = [np.array(keras.ops.convert_to_numpy(value)) for value in model.metrics_variables]
    parity.record(model, X, y)
    after = [keras.ops.convert_to_numpy(value) for value in model.metrics_variables]
    assert any(np.any(value) for value in before)
    np.testing.assert_equal(after, before)
    assert all(getattr(weight.value, "grad", None) is None for weight in model.trainable_variables)


def test_a_layer_in_a_loop_is_left_out_however_often_it_is_called():
    traced, looped = (
        Recording(name, arrays={"weights": {}, "layers": {call: np.ones(2) for call in calls}}, omitted=omitted)
        for name, calls, omitted in (
            ("jax", ["outer (Loop)"], ["outer/inner (Dense)"]),
            ("torch", ["outer/inner (Dense)", "outer/inner (Dense), call 2", "outer (Loop)"], []),
        )
    )
    comparison = parity.compare(traced, looped)
    assert [row.name for row in comparison.rows] == ["outer (Loop)"]
    assert comparison.is_equal


def test_rounding_errors_on_one_backend_do_not_hide_a_gradient_on_the_other():
    zero, half = (
        Recording(
            name, arrays={"gradients": {"bias": np.full(2, gradient)}}, rounding={"gradients": {"bias": rounding}}
        )
        for name, gradient, rounding in (
            ("jax", 1e-9, Slices.of(np.array(1.5e-9))),
            ("torch", 0.5, Slices.of(np.array(1e-7))),
        )
    )
    assert not parity.compare(zero, zero).different
    (row,) = parity.compare(zero, half).rows
    assert row.rounding == pytest.approx(4 * 2**-24)
    assert row.ratio > 1


def test_optimizers_start_again_for_the_run_with_rounding():
    """Adam's moments of the first run would change the second by far more than rounding does."""
    model = sequential()
    model.compile("adam", LOSS)
    assert max(s.rows.max() for s in parity.record(model, X, Y).rounding["training"].values()) < 1e-5
