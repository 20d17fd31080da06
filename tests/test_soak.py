"""Soak: a short one has no fault, and a planted fault of each kind is detected."""

import keras
import numpy as np
import pytest

from tests import soak

pytestmark = pytest.mark.thorough

EPOCHS, STEPS = 5, 3
LEAKED = []


def after_epochs(harm):
    return keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: harm(MODELS[-1]))


def at_the_start(harm):
    return keras.callbacks.LambdaCallback(on_train_begin=lambda logs: harm(MODELS[-1]))


def leak(model):
    LEAKED.append(np.ones(4 << 20))


def lose_a_step(model):
    model.get_layer("head").clock.step.assign(model.get_layer("head").clock.step - 1)


def forget_the_step(model):
    model.get_layer("head").clock.step.assign(0)


def spoil(model):
    model.get_layer("head").loc_layer.bias.assign([np.nan] * soak.UNITS)


MODELS = []  # those that a test has made, the last one in training


@pytest.fixture(autouse=True)
def models(monkeypatch):
    def make():
        MODELS.append(make_model())
        return MODELS[-1]

    make_model = soak.make_model
    monkeypatch.setattr(soak, "make_model", make)
    yield
    MODELS.clear()
    LEAKED.clear()


def test_a_short_training_has_no_fault(capsys):
    assert soak.main(["--steps", "500"]) == 0
    assert "500 steps in " in capsys.readouterr().out


@pytest.mark.planted
def test_a_planted_leak_and_lost_steps_are_found():
    leaked, lost = soak.watched(EPOCHS, STEPS, 1, [after_epochs(leak), after_epochs(lose_a_step)])[0]
    assert leaked.startswith("the memory has grown by ")
    assert lost == "the counter is 10 after 15 steps"


@pytest.mark.planted
def test_a_loss_that_is_not_finite_ends_the_training():
    with pytest.raises(AssertionError, match="is not finite"):
        soak.watched(2, 2, 1, [at_the_start(spoil)])


@pytest.mark.planted
def test_a_counter_that_a_checkpoint_loses_is_found():
    _, weights = soak.watched(2, 2, 2)
    assert all(map(np.array_equal, soak.resumed(2, 2, 3), weights))
    assert not all(map(np.array_equal, soak.resumed(2, 2, 3, [at_the_start(forget_the_step)]), weights))


@pytest.mark.planted
@pytest.mark.skipif(keras.config.backend() == "torch", reason="PyTorch compiles nothing")
def test_a_program_that_is_made_again_is_found():
    again = after_epochs(lambda model: model.make_train_function(force=True))
    faults, _ = soak.watched(EPOCHS, STEPS, 1, [again])
    assert any(fault.startswith("programs were made again") for fault in faults)
