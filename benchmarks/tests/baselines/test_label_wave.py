"""When training stops by the changes of predictions, and which weights it leaves."""

import warnings

import keras
import numpy as np
import pytest

from benchmarks.baselines import LabelWave
from keras_het.callbacks import TrainingDynamics

pytestmark = pytest.mark.once

X, LABELS = np.eye(8, dtype="float32").repeat(5, axis=0), np.arange(8).repeat(5)


class Planned(keras.callbacks.Callback):
    """Sets the weights of each epoch so that so many predictions change, and keeps them."""

    def __init__(self, changes):
        super().__init__()
        self.changes, self.weights, self.predicted = changes, [], np.zeros(len(X), int)

    def on_epoch_end(self, epoch, logs=None):
        if epoch:
            self.predicted[: self.changes[epoch - 1]] = 1 - self.predicted[: self.changes[epoch - 1]]
        self.model.layers[0].set_weights([np.eye(2)[self.predicted]])
        self.weights.append(np.eye(2)[self.predicted])


def model_of():
    """A model in which every example has an input of its own."""
    model = keras.Sequential([keras.Input((len(X),)), keras.layers.Dense(2, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def run(changes, width, patience, epochs=None, before=True):
    """The model after `fit`, the weights of each epoch, and the callback."""
    x, labels = np.eye(len(X), dtype="float32"), LABELS % 2
    model, planned, dynamics = model_of(), Planned(changes), TrainingDynamics(x, labels)
    wave = LabelWave(dynamics, width=width, patience=patience)
    callbacks = [planned, dynamics, wave] if before else [planned, wave, dynamics]
    model.fit(x, labels, epochs=epochs or len(changes) + 1, verbose=0, callbacks=callbacks)
    return model, planned.weights, dynamics


def by_hand(changes, width, patience):
    """The rule, slowly: at each epoch look at all means so far."""
    for epoch in range(width, len(changes) + 1):
        means = [sum(changes[end - width : end]) / width for end in range(width, epoch + 1)]
        best = means.index(min(means)) + width
        if epoch - best >= patience:
            return best, epoch
    return (best, None) if len(changes) >= width else (None, None)


def test_the_rule_is_that_by_hand():
    rng = np.random.default_rng(0)
    found = set()
    for _ in range(300):
        changes = rng.integers(0, 40, size=rng.integers(0, 12)).tolist()
        width, patience = rng.integers(1, 4), rng.integers(1, 4)
        found.add(expected := by_hand(changes, width, patience))
        assert LabelWave.best_epoch(changes, width, patience) == expected
    assert len(found) > 20


@pytest.mark.planted
def test_the_mean_passes_over_a_single_small_number():
    changes = [20, 8, 18, 10, 9, 30, 31, 32, 33]
    assert LabelWave.best_epoch(changes, 1, 2) == (2, 4)
    assert LabelWave.best_epoch(changes, 3, 2) == (4, 6)


@pytest.mark.smoke
def test_training_stops_and_has_the_weights_of_the_minimum():
    model, weights, dynamics = run([20, 12, 6, 9, 14, 20, 25, 30], 2, 3)
    np.testing.assert_array_equal(dynamics.changes, [20, 12, 6, 9, 14, 20, 25])  # 6 + 9 is the least, at epoch 4
    assert len(weights) == 8
    assert not np.array_equal(weights[4], weights[7])
    np.testing.assert_array_equal(model.get_weights()[0], weights[4])


def test_a_training_that_ends_before_has_the_weights_of_the_minimum_too():
    model, weights, dynamics = run([20, 12, 6, 9, 14], 1, 9)
    assert dynamics.epochs == 6
    np.testing.assert_array_equal(model.get_weights()[0], weights[3])
    model, weights, _ = run([20, 12], 3, 9)  # no mean yet: the last weights stay
    np.testing.assert_array_equal(model.get_weights()[0], weights[-1])


def test_weights_from_before_an_interruption_are_missed():
    model, _, dynamics = run([20, 6, 9, 14], 1, 9)
    wave = LabelWave(dynamics, width=1, patience=9)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.fit(dynamics.x, dynamics.labels, initial_epoch=5, epochs=6, verbose=0, callbacks=[Flip(), dynamics, wave])
    texts = [str(warning.message) for warning in caught]
    assert any("LabelWave has not the weights of epoch 2, which was before this call" in text for text in texts)


@pytest.mark.smoke
def test_a_fit_that_goes_on_has_the_weights_of_the_whole_run():
    changes = [20, 6, 9, 14, 30]
    whole, weights, _ = run(changes, 1, 9)
    x, labels = np.eye(len(X), dtype="float32"), LABELS % 2
    model, planned, dynamics = model_of(), Planned(changes), TrainingDynamics(x, labels)
    callbacks = [planned, dynamics, LabelWave(dynamics, width=1, patience=9)]
    model.fit(x, labels, epochs=4, verbose=0, callbacks=callbacks)
    model.fit(x, labels, initial_epoch=4, epochs=6, verbose=0, callbacks=callbacks)
    assert dynamics.epochs == 6
    np.testing.assert_array_equal(model.get_weights()[0], weights[2])
    np.testing.assert_array_equal(model.get_weights()[0], whole.get_weights()[0])


def test_a_first_fit_may_begin_at_a_later_epoch():
    x, labels = np.eye(len(X), dtype="float32"), LABELS % 2
    planned, dynamics = Planned([0, 0, 0, 20, 6, 9, 14]), TrainingDynamics(x, labels)
    wave, model = LabelWave(dynamics, width=1, patience=2), model_of()
    model.fit(x, labels, initial_epoch=3, epochs=12, verbose=0, callbacks=[planned, dynamics, wave])
    assert dynamics.changes.tolist() == [20, 6, 9, 14]
    np.testing.assert_array_equal(model.get_weights()[0], planned.weights[2])


def test_training_on_after_a_stop_is_refused_before_an_epoch():
    model, _, dynamics = run([20, 6, 9, 14], 1, 2)
    before = model.get_weights()[0]
    wave = LabelWave(dynamics, width=1, patience=2)
    with pytest.raises(ValueError) as error:
        model.fit(dynamics.x, dynamics.labels, initial_epoch=5, epochs=9, verbose=0, callbacks=[Flip(), dynamics, wave])
    assert str(error.value) == (
        "`dynamics` must be new for a `fit` that trains on after it has stopped. Received: one that stopped training "
        "after epoch 4, for the best epoch 2"
    )
    np.testing.assert_array_equal(model.get_weights()[0], before)


class Flip(keras.callbacks.Callback):
    """Changes all predictions."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[0].set_weights([self.model.get_weights()[0][:, ::-1].copy()])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: LabelWave(None), "`dynamics` must be a TrainingDynamics. Received: a NoneType"),
        (
            lambda: LabelWave(TrainingDynamics(X, LABELS), width=0),
            "`width` must be an integer at least 1. Received: width=0",
        ),
        (
            lambda: LabelWave(TrainingDynamics(X, LABELS), patience=0.5),
            "`patience` must be an integer at least 1. Received: patience=0.5",
        ),
        (
            lambda: run([3, 3, 3], 1, 2, before=False),
            "`dynamics` must stand before LabelWave in the list of callbacks. Received: one that has not seen epoch 0",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == text
