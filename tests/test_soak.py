"""The soak: a short one has no fault, and a planted fault of each kind is found."""

import keras
import numpy as np
import pytest

from tests import soak

pytestmark = pytest.mark.thorough

EPOCHS, STEPS = 4, 3


class AfterEpochs(keras.callbacks.Callback):
    """Does something with the model after every epoch."""

    def __init__(self, harm):
        super().__init__()
        self.harm = harm

    def on_epoch_end(self, epoch, logs=None):
        self.harm(self.model)


class AtTheStart(AfterEpochs):
    """Does something with the model before the first epoch alone."""

    def on_train_begin(self, logs=None):
        self.harm(self.model)

    def on_epoch_end(self, epoch, logs=None):
        pass


KEPT = []


def leak(model):
    KEPT.append(np.ones(4 << 20))


def forget_the_step(model):
    model.get_layer("head").clock.step.assign(0)


def lose_a_step(model):
    model.get_layer("head").clock.step.assign(model.get_layer("head").clock.step - 1)


def spoil(model):
    model.get_layer("head").loc_layer.bias.assign([np.nan] * soak.UNITS)


@pytest.fixture(autouse=True)
def nothing_kept():
    yield
    KEPT.clear()


def test_a_short_training_has_no_fault(capsys):
    assert soak.main(["--steps", "500"]) == 0
    assert "500 steps in " in capsys.readouterr().out


def test_the_words_of_faults():
    sound = soak.Figures(100, 100, (50.0, 51.0), ((3, 7), (3, 7)), 2.0)
    assert sound.faults() == []
    assert str(sound) == (
        "100 steps in 2 s, counter 100; 50.0 MiB after the warm-up, 51.0 MiB at the end; 3 traces and 7 compilations "
        "after the warm-up, 3 and 7 at the end"
    )
    assert sound._replace(memory=(50.0, 90.0)).faults() == ["the memory has grown by 40.0 MiB, above 32"]
    assert sound._replace(counter=99).faults() == ["the counter is 99 after 100 steps"]
    assert sound._replace(programs=((3, 7), (3, 8))).faults() == ["programs were made again: ((3, 7), (3, 8))"]


@pytest.mark.planted
def test_a_planted_leak_and_lost_steps_are_found():
    figures, _ = soak.watched(EPOCHS, STEPS, 1, [AfterEpochs(leak), AfterEpochs(lose_a_step)])
    leaked, lost = figures.faults()
    assert leaked.startswith("the memory has grown by ")
    assert lost == "the counter is 8 after 12 steps"


@pytest.mark.planted
def test_a_loss_that_is_not_finite_ends_the_training():
    with pytest.raises(AssertionError, match="a loss of epoch 0 is not finite"):
        soak.watched(2, 2, 1, [AtTheStart(spoil)])


@pytest.mark.planted
def test_a_counter_that_a_checkpoint_loses_is_found():
    _, weights = soak.watched(2, 2, 2)
    assert soak.same(soak.resumed(2, 2, 3), weights)
    assert not soak.same(soak.resumed(2, 2, 3, [AtTheStart(forget_the_step)]), weights)


@pytest.mark.planted
@pytest.mark.skipif(keras.config.backend() == "torch", reason="PyTorch compiles nothing")
def test_a_program_that_is_made_again_is_found():
    again = AfterEpochs(lambda model: model.make_train_function(force=True))
    figures, _ = soak.watched(EPOCHS, STEPS, 1, [again])
    assert any(fault.startswith("programs were made again") for fault in figures.faults())
