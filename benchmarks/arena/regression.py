"""Rows of the arena that take classification for a regression: squared log-ratios, and SGN with what it adds to them.

SGN is there with the averages of predictions that the package keeps for each example, and with the network of averaged
weights that the paper has. The paper's rates of decay are for many more steps than here; so one of the strengths is its
own, and the momentum is a number for each epoch.
"""

import functools

import keras
import numpy as np
from keras import ops

from benchmarks.arena.trial import BATCH, Method, Plan, Stage, of_loss
from benchmarks.baselines import LogisticNormal, ShiftedGaussianNLL
from benchmarks.baselines.log_ratios import log_ratios
from keras_het.base.internals import unlocked
from keras_het.losses import LogRatioSquaredError, MultivariateNormalNLL, with_index
from keras_het.models import DistributionModel

SMOOTHING, MOMENTUM = 0.001, 0.9  # of a label, and of the averages in each epoch
DECAYS = (0.995, 0.97, 0.94)  # of a label in each epoch: after 50 of them .78, .22 and .05 of it are left
SOURCE = "Englesson and Azizpour 2024"


def regression(trial, num_factors=1, kind=DistributionModel):
    """The network of the task, which ends in a Gaussian of log-ratios."""
    *body, _ = trial.network().layers
    inputs = keras.Input(trial.task.train.x.shape[1:])
    features = functools.reduce(lambda x, layer: layer(x), body, inputs)
    return kind(inputs, LogisticNormal(trial.task.units, num_factors, seed=trial.seed)(features))


def logarithms(p):
    """Log-probabilities of what such a model predicts."""
    return ops.log(ops.maximum(p, np.finfo("float32").tiny))


def of_predictions(trial, num_factors=1):
    """SGN with the averages of the predictions of each example; the strength is the decay of a label."""
    count, model = len(trial.task.train.y), regression(trial, num_factors)
    loss = ShiftedGaussianNLL(count, trial.task.units, trial.strength, MOMENTUM, SMOOTHING)
    model.compile(trial.optimizer(model), loss.attach(model))
    return Plan(model, [Stage(trial.task.train, {"sample_weight": with_index(count)})], logarithms)


def of_weights(trial):
    """SGN with the predictions of a network of averaged weights."""
    steps, model = -(-len(trial.task.train.y) // BATCH), regression(trial, kind=WithAverage)
    model.add_average(trial.strength ** (1 / steps), MOMENTUM ** (1 / steps))
    model.compile(trial.optimizer(model), MultivariateNormalNLL())
    return Plan(model, [Stage(trial.task.train)], logarithms)


class WithAverage(DistributionModel):
    """A model whose targets are drawn, step by step, to the predictions of a network of averaged weights."""

    def add_average(self, decay, momentum):
        """Makes that network; `decay` and `momentum` are of each step."""
        own = list(self.weights)
        with unlocked(self):
            self.decay, self.momentum = decay, momentum
            self.steps = self.add_weight(name="steps", shape=(), initializer="zeros", trainable=False)
            self.average = keras.models.clone_model(keras.Model(self.inputs, self.outputs))
            self.average.trainable = False
        self.pairs = lambda: zip(self.average.weights, own, strict=True)  # no attribute: Keras would track a list
        for average, weight in self.pairs():
            average.assign(ops.convert_to_numpy(weight))  # a copy: JAX gives every buffer away in a step

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Keras calls it."""
        units = self.head.units
        target = log_ratios(ops.log((1 - SMOOTHING) * ops.one_hot(y, units) + SMOOTHING / units))
        if training:
            step = ops.convert_to_tensor(self.steps) * 1
            kept = self.decay**step
            target = kept * target + (1 - kept) * ops.stop_gradient(self.average(x)[..., : units - 1])
            # At the start a shorter average: else the first weights, which are random, would stay in it.
            momentum = ops.minimum(self.momentum, (1 + step) / (10 + step))
            for average, weight in self.pairs():
                average.assign(momentum * average + (1 - momentum) * weight)
            self.steps.assign(step + 1)
        return keras.Model.compute_loss(self, x, target, y_pred, sample_weight, training)


METHODS = [
    Method(
        "squared log-ratios",
        f"{SOURCE}, without covariance and shift",
        (0.1, 0.01, 0.001),
        of_loss(lambda smoothing, task: LogRatioSquaredError(smoothing, from_logits=True)),
        heads=("Dense",),
    ),
    Method("SGN", SOURCE, DECAYS, of_predictions, heads=("Dense",)),
    Method(
        "SGN without covariance",
        SOURCE,
        DECAYS,
        lambda trial: of_predictions(trial, num_factors=0),
        heads=("Dense",),
    ),
    Method("SGN, averaged network", SOURCE, DECAYS, of_weights, heads=("Dense",)),
]
