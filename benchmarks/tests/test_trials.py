"""Shared classifier: kernels decay and biases do not, and early stopping reads noisy labels alone."""

import keras
import numpy as np
import pytest

from benchmarks.lib import noises, trials

pytestmark = pytest.mark.once


def test_weights_decay_but_biases_do_not(monkeypatch):
    monkeypatch.setattr(trials, "LEARNING_RATE", 0.1)
    model = trials.make_model(noises.make("none", 0), 0)
    before = [weight.copy() for weight in model.get_weights()]
    zeros = [keras.ops.zeros(weight.shape) for weight in model.trainable_variables]
    for variable in model.trainable_variables[1::2]:
        variable.assign(keras.ops.ones(variable.shape))
    model.optimizer.apply(zeros, model.trainable_variables)
    for kernel, old in zip(model.get_weights()[::2], before[::2], strict=True):
        np.testing.assert_allclose(kernel, 0.9 * old, rtol=1e-5)
    assert all((bias == 1.0).all() for bias in model.get_weights()[1::2])


def test_the_epoch_is_chosen_by_noisy_labels(monkeypatch):
    noisy, clean = iter([0.3, 0.5, 0.5, 0.4]), iter([0.9, 0.7, 0.8, 1.0])
    monkeypatch.setattr(trials, "accuracy", lambda outputs, labels: next(noisy if len(labels) == 256 else clean))
    task = noises.make("pair", 0)._replace(epochs=2)
    assert trials.early_stopping(task, 0, starts=2) == 0.7
