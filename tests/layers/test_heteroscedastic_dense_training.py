"""Promises about training and inference: determinism, the step counter, and untouched global states."""

import copy
import random

import keras
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.common import StopAt, StopError, assert_same_arrays, reloaded, to_numpy
from tests.layers.heads import HEADS, LABELS, X, built_head, make_head, make_model, set_random_weights, targets
from tests.marks import grid


def fit(model, epochs=2, **arguments):
    """Fits on X in two batches without a shuffle; returns the weights."""
    model.fit(X, targets(model.layers[-1].link), batch_size=4, epochs=epochs, shuffle=False, verbose=0, **arguments)
    return model.get_weights()


@pytest.mark.on_jax
@pytest.mark.parametrize(("kind", "seed"), [("full", None), ("full", 5), ("sigmoid", None)])
def test_predict_is_deterministic_also_after_training_and_a_reload(kind, seed, tmp_path):
    model = make_model(make_head(kind, seed=seed))
    before = model.predict(X, verbose=0)
    fit(model)
    first, second = (model.predict(X, verbose=0) for _ in range(2))
    assert_array_equal(first, second)
    assert not np.allclose(before, first)
    loaded = reloaded(model, tmp_path)
    assert_array_equal(loaded.predict(X, verbose=0), first)
    assert_same_arrays(fit(loaded), fit(model))  # the seed, the counter and the optimizer came along


@pytest.mark.parametrize("kind", grid(HEADS, span=["full", "sigmoid"]))
def test_inference_depends_neither_on_the_seed_nor_on_the_step(kind):
    head, other = built_head(kind, seed=1), built_head(kind, seed=2)
    other.clock.step.assign(100)
    assert_array_equal(to_numpy(head(X)), to_numpy(other(X)))
    assert (int(head.clock.step.numpy()), int(other.clock.step.numpy())) == (0, 100)


@pytest.mark.parametrize("kind", grid(["full", "sampled sigmoid"], span=["full"]))
def test_training_noise_depends_on_the_seed_and_on_the_step(kind):
    head, same, other = built_head(kind, seed=1), built_head(kind, seed=1), built_head(kind, seed=2)
    first, second = to_numpy(head(X, training=True)), to_numpy(head(X, training=True))
    assert_array_equal(first, to_numpy(same(X, training=True)))
    for changed in (second, to_numpy(other(X, training=True)), to_numpy(head(X))):
        assert np.abs(changed - first).max() > 1e-3


def test_a_run_killed_and_resumed_equals_the_run_that_was_not_bit_for_bit(tmp_path):
    def make(weight_seed):
        head, dense = make_head("parameter-efficient", seed=3), keras.layers.Dense(X.shape[-1])
        return make_model(head, dense, optimizer="adam", weight_seed=weight_seed)

    expected = fit(make(0), epochs=4)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(StopError):
        fit(make(0), epochs=4, callbacks=[backup, StopAt(1, at_end=True)])
    resumed = make(1)  # its own weights are others and must be replaced
    epochs = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch))
    seen = []
    weights = fit(resumed, epochs=4, callbacks=[keras.callbacks.BackupAndRestore(tmp_path / "backup"), epochs])
    assert seen == [2, 3]
    assert_same_arrays(weights, expected)
    assert weights[-1] == 8


@pytest.mark.on_jax
def test_validation_evaluation_and_prediction_do_not_advance_the_noise():
    plain, validated = make_model(make_head("full")), make_model(make_head("full"))
    expected = fit(plain)
    weights = fit(validated, validation_data=(X, LABELS), validation_batch_size=4)
    assert_same_arrays(weights, expected)
    assert weights[-1] == 4
    validated.evaluate(X, LABELS, verbose=0)
    validated.predict(X, verbose=0)
    assert int(validated.layers[-1].clock.step.numpy()) == 4


def states_after(call):
    """Returns the next draws of the global generators of Python, NumPy and Keras after a call from known states."""
    keras.utils.set_random_seed(2021)
    call()
    return random.getstate(), np.random.get_state()[1].tolist(), to_numpy(keras.random.uniform((4,))).tolist()


def use(head):
    for training in (False, True):
        head(X, training=training)
    head.logit_distribution(X)
    head.logit_covariance(X)
    head.probabilities(X)
    type(head).from_config(head.get_config())


@pytest.mark.parametrize("kind", grid(["full", "sampled sigmoid"], span=["full"]))
def test_our_calls_leave_the_global_generators_alone(kind):
    # Keras' random initializers draw their seeds; tables for seven classes are made here for the first time.
    arguments = {"units": 7, "kernel_initializer": "zeros"}
    untouched = states_after(lambda: None)
    assert states_after(lambda: use(make_head(kind, seed=1, **arguments))) == untouched
    for part, draw in enumerate((random.random, np.random.random, lambda: keras.random.uniform((1,)))):
        assert states_after(draw)[part] != untouched[part]  # the test can fail


@pytest.mark.once
def test_a_seed_is_drawn_as_keras_draws_its_own():
    drawn = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        drawn.append((make_head("full", seed=None).seed, make_head("full", seed=None).seed))
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


@pytest.mark.parametrize("kind", grid(HEADS, span=["full", "sigmoid"]))
def test_our_calls_leave_the_arrays_and_objects_of_the_caller_alone(kind):
    x, config = X.copy(), make_head(kind).get_config()
    config_before, integrator = copy.deepcopy(config), HEADS[kind].get("integrator")
    integrator_before = integrator and integrator.get_config()
    head = type(make_head(kind)).from_config(config)
    head(x)
    set_random_weights(head)
    use(head)
    assert_array_equal(x, X)
    assert config == config_before
    assert (integrator and integrator.get_config()) == integrator_before
