"""Learned temperature: gradient, bounds, files and conversion."""

import keras
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

import keras_het
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense, LearnedTemperature
from tests import layer_contract
from tests.common import compiled, refuses, reloaded, sparse_crossentropy, to_numpy
from tests.gradients import layer_gradients
from tests.layers.heads import FEATURES, LABELS, UNITS, X, set_random_weights

pytestmark = pytest.mark.once

CROSSENTROPY = sparse_crossentropy()


def make_head(link="softmax", initial=2.0, **arguments):
    integrator = QuasiMonteCarlo(32) if link == "softmax" else None
    temperature = LearnedTemperature(0.5, 20.0, initial)
    return HeteroscedasticDense(
        UNITS, 2, link=link, temperature=temperature, integrator=integrator, seed=0, **arguments
    )


def built(link, initial=2.0):
    head = make_head(link, initial)
    head.build((None, FEATURES))
    theta = head.learned_temperature.theta.numpy()
    set_random_weights(head)
    head.learned_temperature.theta.assign(theta)
    return head


@pytest.mark.smoke
@pytest.mark.parametrize("link", ["softmax", "normal_cdf"])
def test_outputs_are_those_of_the_number_and_the_gradient_is_that_of_finite_differences(link):
    head = built(link)
    fixed = HeteroscedasticDense(UNITS, 2, link=link, temperature=2.0, integrator=head.integrator, seed=0)
    fixed.build((None, FEATURES))
    fixed.set_weights(
        [weight for weight, owner in zip(head.get_weights(), head.weights, strict=True) if "theta" not in owner.path]
    )
    assert_allclose(to_numpy(head(X)), to_numpy(fixed(X)), rtol=1e-5, atol=1e-6)
    assert_allclose(to_numpy(head(X, training=True)), to_numpy(fixed(X, training=True)), rtol=1e-5, atol=1e-6)

    def loss(outputs):
        return ops.sum(ops.square(outputs)) / 100.0

    theta, values = head.learned_temperature.theta.numpy(), []
    for move in (1e-2, -1e-2, 0.0):
        head.learned_temperature.theta.assign(theta + move)
        head.clock.step.assign(1)
        values.append(float(to_numpy(loss(head(X, training=True)))))
    head.clock.step.assign(1)
    slope = layer_gradients(head, loss, X, training=True)[1]["temperature/theta"]
    assert_allclose(slope, (values[0] - values[1]) / 2e-2, rtol=5e-3)


def test_it_moves_within_its_bounds_and_its_weight_stands_before_the_step():
    head = make_head(name="head")
    model = compiled(keras.Sequential([keras.Input((FEATURES,)), head]), keras.optimizers.Adam(5.0), CROSSENTROPY)
    before = head.temperature
    model.fit(X, LABELS, epochs=5, verbose=0)
    assert 0.5 <= head.temperature <= 20.0
    assert abs(head.temperature - before) > 1.0
    assert [weight.path.split("head/")[-1] for weight in head.weights][-2:] == ["temperature/theta", "clock/step"]


def test_the_contract_of_layers(tmp_path):
    layer_contract.check_config(make_head)
    layer_contract.check_train_step(make_head, X, LABELS, CROSSENTROPY)
    model = keras.Sequential([keras.Input((FEATURES,)), built("softmax", 7.0)])
    loaded = reloaded(model, tmp_path)
    assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    assert loaded.layers[-1].temperature == pytest.approx(7.0)


def test_a_conversion_starts_at_the_old_predictions_and_goes_back():
    old = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(UNITS, "softmax")])
    new = keras_het.heteroscedastic(old, temperature=LearnedTemperature(0.5, 20.0, 3.0))
    assert_allclose(new.predict(X, verbose=0), old.predict(X, verbose=0), atol=0.02)
    head = new.layers[-1]
    head.learned_temperature.theta.assign(0.0)
    logits = keras_het.homoscedastic(new, keep_activation=False).predict(X, verbose=0)
    assert_allclose(logits, to_numpy(head.logit_distribution(X).loc) / 10.25, rtol=1e-4, atol=1e-5)


def test_two_heads_do_not_share_one():
    temperature = LearnedTemperature()
    HeteroscedasticDense(3, temperature=temperature, name="first")
    with refuses(r"`temperature` must be new for every head. Received: the temperature of 'first'"):
        HeteroscedasticDense(3, temperature=temperature)
