"""Rows of the arena that are regressions: the network of averaged weights, and the targets that it draws."""

import keras
import numpy as np
import pytest
from scipy import linalg

from benchmarks.arena import regression, training
from benchmarks.arena.trial import Trial

pytest.importorskip("sklearn")

pytestmark = pytest.mark.once

MOMENTUM = 0.7


class Weights(keras.callbacks.Callback):
    """The weights of the network before every step."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_begin(self, batch, logs=None):
        known = {id(weight) for weight in self.model.average.weights} | {id(self.model.steps)}
        self.steps.append([weight.numpy() for weight in self.model.weights if id(weight) not in known])


def trained(momentum=MOMENTUM):
    """A model after twelve steps, and its weights before each of them."""
    task = training.task_of("digits", "symmetric", 0, 2)
    task = task._replace(train=type(task.train)(*(part[:48] for part in task.train)))
    model = regression.regression(Trial(task, "Dense", 0.9, 0), kind=regression.WithAverage)
    model.add_average(0.9, momentum)
    model.compile(keras.optimizers.SGD(1e-3), regression.MultivariateNormalNLL())
    weights = Weights()
    model.fit(*task.train, batch_size=4, verbose=0, callbacks=[weights])
    return model, weights.steps, task


def distance(momentum=MOMENTUM):
    """How far the averaged weights are from the average by hand."""
    model, steps, _ = trained(momentum)
    average = steps[0]
    for count, step in enumerate(steps):
        share = min(MOMENTUM, (1 + count) / (10 + count))
        average = [share * old + (1 - share) * new for old, new in zip(average, step, strict=True)]
    return max(np.abs(weight.numpy() - one).max() for weight, one in zip(model.average.weights, average, strict=True))


def test_the_second_network_has_averaged_weights():
    assert distance() < 1e-6


@pytest.mark.planted
def test_another_momentum_is_caught():
    assert distance(0.5) > 1e-5


def test_targets_are_drawn_to_its_predictions_in_training_alone():
    """The loss of a batch by SciPy's matrix, with what is left of a label after twelve steps."""
    model, _, task = trained()
    x, y = (keras.ops.convert_to_tensor(part[:8]) for part in task.train)
    units = task.units
    outputs, average = (np.asarray(keras.ops.convert_to_numpy(one(x)), "float64") for one in (model, model.average))
    label = np.log(0.999 * np.eye(units)[task.train.y[:8]] + 0.001 / units) @ linalg.helmert(units).T
    kept = 0.9**12
    for training_, target in ((False, label), (True, kept * label + (1 - kept) * average[:, : units - 1])):
        loss = model.compute_loss(x, y, model(x), training=training_)
        assert float(keras.ops.convert_to_numpy(loss)) == pytest.approx(nll(target, outputs, units - 1), rel=1e-4)


def nll(target, outputs, size):
    covariance = [np.eye(size) + np.outer(v, v) for v in outputs[:, 2 * size : -1]]
    residuals = target - outputs[:, :size]
    distances = [
        r @ np.linalg.solve(c, r) + np.linalg.slogdet(c)[1] for r, c in zip(residuals, covariance, strict=True)
    ]
    return 0.5 * (np.mean(distances) + size * np.log(2 * np.pi))
