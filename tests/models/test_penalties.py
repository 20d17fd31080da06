"""A converted model keeps the penalties, constraints, frozen weights and weight decay of its last layer."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers, regularizers
from numpy.testing import assert_allclose, assert_array_equal

from keras_het import heteroscedastic, homoscedastic
from keras_het.models import heteroscedastic_regression
from tests.common import refuses, reloaded, texts_of_warnings, to_numpy
from tests.marks import grid
from tests.models.checks import sharpen

pytestmark = pytest.mark.once

FEATURES, UNITS = 8, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, FEATURES)).astype("float32")
Y = (X @ RNG.normal(size=(FEATURES, UNITS)) + RNG.gumbel(size=(400, UNITS))).argmax(axis=1)
PENALTIES = {
    "L2": {"kernel_regularizer": regularizers.L2(0.01)},
    "L1": {"kernel_regularizer": regularizers.L1(0.01), "bias_regularizer": regularizers.L1(0.1)},
    "orthogonal": {"kernel_regularizer": regularizers.OrthogonalRegularizer(0.01, mode="columns")},
}


def model_of(activation="softmax", **arguments):
    return keras.Sequential([keras.Input((FEATURES,)), layers.Dense(UNITS, activation, **arguments)])


def penalty(model):
    return float(sum(to_numpy(loss) for loss in model.losses))


@pytest.mark.parametrize("temperature", grid([1.0, 4.0], span=[4.0]))
@pytest.mark.parametrize("name", PENALTIES)
def test_the_penalty_of_a_converted_model_is_the_old_one(name, temperature, tmp_path):
    old = sharpen(model_of(**PENALTIES[name]))
    new = heteroscedastic(old, 2, temperature=temperature, seed=0)
    back = homoscedastic(new)
    for model in (new, reloaded(new, tmp_path), back):
        assert penalty(model) == pytest.approx(penalty(old), rel=1e-4)
        assert np.abs(model.predict(X, verbose=0) - old.predict(X, verbose=0)).max() < 0.02
    zeros = keras.initializers.serialize(keras.initializers.Zeros())
    assert back.layers[-1].get_config() == {**old.layers[-1].get_config(), "kernel_initializer": zeros}


def clip(weights):
    return keras.ops.clip(weights, -1.0, 1.0)


@pytest.mark.parametrize("temperature", grid([1.0, 4.0], span=[4.0]))
def test_constraints_hold_for_the_same_logits(temperature, tmp_path):
    old = sharpen(model_of(kernel_constraint=keras.constraints.UnitNorm(), bias_constraint=keras.constraints.NonNeg()))
    new = heteroscedastic(old, 2, temperature=temperature, seed=0)
    new = reloaded(new, tmp_path)
    new.compile("sgd", "sparse_categorical_crossentropy")
    new.fit(X, Y, verbose=0)
    for kernel, bias in (
        [to_numpy(weight) / temperature for weight in new.layers[-1].loc_layer.weights],
        [to_numpy(weight) for weight in homoscedastic(new).layers[-1].weights],
    ):
        assert_allclose(np.linalg.norm(kernel, axis=0), 1.0, rtol=1e-4)
        assert bias.min() >= 0.0
    back = homoscedastic(new).layers[-1]
    assert isinstance(back.kernel_constraint, keras.constraints.UnitNorm)
    assert isinstance(back.bias_constraint, keras.constraints.NonNeg)
    old = sharpen(model_of(kernel_constraint=clip))  # a function
    new = heteroscedastic(old, 2, temperature=temperature, seed=0)
    new.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    new.fit(X, Y, verbose=0)
    expected = np.clip(to_numpy(old.layers[-1].kernel), -1.0, 1.0)
    assert_allclose(to_numpy(new.layers[-1].loc_layer.kernel) / temperature, expected, rtol=1e-5)
    assert homoscedastic(new).layers[-1].kernel_constraint is clip


@pytest.mark.smoke
def test_a_frozen_layer_stays_frozen_and_its_noise_learns(tmp_path):
    old = sharpen(model_of(trainable=False))
    new = heteroscedastic(old, 2, seed=0)
    new.compile("sgd", "sparse_categorical_crossentropy")
    for model in (new, reloaded(new, tmp_path)):
        head = model.layers[-1]
        assert [weight.path.split("/")[-2] for weight in head.trainable_weights] == ["scale_diag"] * 2 + ["factor"] * 2
        model.fit(X, Y, verbose=0)
        assert_array_equal(to_numpy(head.loc_layer.kernel), to_numpy(old.layers[-1].kernel))
    assert not homoscedastic(new).layers[-1].trainable
    assert heteroscedastic(old, units=3).layers[-1].loc_layer.trainable


def test_an_activity_regularizer_is_kept_if_it_sees_the_same_outputs():
    regularizer = regularizers.L2(0.1)
    for activation, is_kept in (("softmax", True), (keras.ops.softmax, True), ("sigmoid", True), (None, False)):
        old = model_of(activation, activity_regularizer=regularizer)
        with texts_of_warnings() as texts:
            new = heteroscedastic(old, 2, seed=0)
        assert (new.layers[-1].activity_regularizer is not None) == is_kept
        assert (texts == []) == is_kept
        if is_kept:
            assert homoscedastic(new).layers[-1].activity_regularizer is not None
            new(X), old(X)
            assert penalty(new) == pytest.approx(penalty(old), rel=0.02)
    assert "has no activity regularizer: 'dense" in texts[0]
    with texts_of_warnings() as texts:
        heteroscedastic(old, 2, seed=0, activity_regularizer=None)
    assert texts == []


def test_the_constraint_of_a_convolution_is_left_out_with_a_warning_and_a_wrong_temperature_refused():
    inputs = keras.Input((4, 4, 3))
    constraint = keras.constraints.MaxNorm(0.3, axis=[0, 1, 2])
    old = keras.Model(inputs, layers.Conv2D(UNITS, 1, kernel_constraint=constraint, name="maps")(inputs))
    with texts_of_warnings() as texts:
        new = heteroscedastic(old, 2, seed=0)
    assert new.layers[-1].kernel_constraint is None
    assert "has no kernel constraint: the constraint of 'maps' is for the axes of a convolution" in texts[0]
    for temperature, regularizer in itertools.product(("5", None, 0.0, -1.0), (None, "l2")):
        with refuses("`temperature` must be a finite float32 number greater than 0"):
            heteroscedastic(model_of(kernel_regularizer=regularizer), temperature=temperature)


def test_a_regression_keeps_the_same():
    old = model_of(None, trainable=False, kernel_constraint="non_neg", kernel_regularizer="l2")
    optimizer = keras.optimizers.AdamW(0.1)
    optimizer.exclude_from_weight_decay([old.layers[-1].kernel])
    old.compile(optimizer, "mse")
    new = heteroscedastic_regression(old, initial_scale=1.0)
    mean = new.head.loc_layer if hasattr(new, "head") else new.layers[-1].loc_layer
    assert not mean.trainable
    assert isinstance(mean.kernel_constraint, keras.constraints.NonNeg)
    assert new.compiled
