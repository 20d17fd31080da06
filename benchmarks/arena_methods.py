"""The methods that the arena compares: a row each, with its source and what it may choose from.

A method makes a `Plan` of a `Trial`: a compiled model, and the data and arguments of `fit`, in stages if there are more than one. What
every method shares, the network, its head, the optimizer and the length of training, a trial gives; the noisy labels of validation
choose among trials and epochs, and no method does that itself.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tasks
from scipy.special import softmax

from keras_het import label_noise
from keras_het.callbacks import ReleaseTransition
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.losses import (
    BootstrappedCrossentropy,
    EarlyLearningRegularizedCrossentropy,
    ForwardCorrectedCrossentropy,
    with_index,
)
from keras_het.regularizers import Trace

BATCH, LEARNING_RATE, L2 = 128, 4e-3, 1e-3
FACTORS, NODES, TEMPERATURE = 5, 64, 5.0  # of the heteroscedastic head
FIRST, RELEASE = 0.3, 0.2  # shares of the epochs: how long a first training is, and when a T is released
crossentropy = functools.partial(keras.losses.SparseCategoricalCrossentropy, from_logits=True)


class Stage(NamedTuple):
    """One call of `fit`.

    data: (x, y), or a PyDataset alone.
    arguments: further ones of `fit`, such as sample_weight, class_weight, callbacks.
    until: the share of all epochs at which it ends.
    """

    data: tuple
    arguments: dict[str, Any] = {}  # noqa: RUF012
    until: float = 1.0


class Plan(NamedTuple):
    """What is trained on what.

    outputs: makes logits or log-probabilities, `(N, K)`, of what the model predicts, such as those of the first of two networks.
    """

    model: keras.Model
    stages: list[Stage]
    outputs: Callable = lambda predicted: predicted


class Trial(NamedTuple):
    """One training of a method; the task has neither test data nor truth, unless the method says that it knows them."""

    task: tasks.Task
    head: str
    strength: Any
    seed: int

    def network(self, temperature=None, tail=(), start=0):
        """The network of the task and a head, which makes log-probabilities, not compiled; `start` is another start for each number."""
        keras.utils.set_random_seed(1000 * start + self.seed)
        l2 = functools.partial(keras.regularizers.L2, L2)
        layers = self.task.backbone(self.task.train.x.shape[1:], l2)
        return keras.Sequential([*layers, *HEADS[self.head](self.task.units, l2, temperature, self.seed), *tail])

    def compiled(self, loss=None, **arguments):
        """`network`, with the optimizer that is the same for all, and crossentropy if there is no other loss."""
        model = self.network(**arguments)
        model.compile(keras.optimizers.Adam(LEARNING_RATE), loss or crossentropy())
        return model

    def plan(self, loss=None, fit=None, **arguments):
        """Of one network on the noisy labels as they are; `fit` has further arguments of `fit`."""
        return Plan(self.compiled(loss, **arguments), [Stage(self.task.train, fit or {})])

    def first(self):
        """A model of the noisy labels after a short training, in which few of them are learned by heart."""
        model = self.compiled()
        model.fit(*self.task.train, batch_size=BATCH, epochs=max(1, int(FIRST * self.task.epochs)), verbose=0)
        return model


def dense(units, l2, temperature, seed):
    """Log-probabilities of a Dense layer, its logits divided by a temperature."""
    if temperature is None:
        return [keras.layers.Dense(units, "log_softmax", kernel_regularizer=l2())]
    logits = keras.layers.Dense(units, kernel_regularizer=l2())
    return [logits, keras.layers.Rescaling(1 / temperature), keras.layers.Activation("log_softmax")]


def heteroscedastic(units, l2, temperature, seed):
    """The full head, as the README advises where nothing is chosen."""
    arguments = {"temperature": temperature or TEMPERATURE, "integrator": QuasiMonteCarlo(NODES), "kernel_regularizer": l2(), "seed": seed}
    return [HeteroscedasticDense(units, min(FACTORS, units), **arguments)]


HEADS = {"Dense": dense, "heteroscedastic": heteroscedastic}


class Method(NamedTuple):
    """A row of the arena.

    strengths: of three trials, or of one if there is nothing to choose.
    make: a function of a `Trial` that returns a `Plan`.
    knows: what it is told beside the noisy labels, which makes it a bound.
    stops_early: the epoch is chosen, too; otherwise it is the last.
    """

    name: str
    source: str
    strengths: tuple
    make: Callable[[Trial], Plan]
    knows: str = ""
    stops_early: bool = True


def of_loss(make):
    """Trains with a loss of the strength and the task."""
    return lambda trial: trial.plan(make(trial.strength, trial.task))


def of_indexed_loss(make):
    """The same for a loss that remembers something of each example."""

    def plan(trial):
        loss = make(trial.strength, trial.task)
        found = trial.plan(loss, {"sample_weight": with_index(len(trial.task.train.y))})
        loss.attach(found.model)
        return found

    return plan


def of_transition(regularizer):
    """Learns T behind the head, with a penalty of the strength."""

    def plan(trial):
        flips = NoiseTransition(trial.task.units, regularizer=regularizer(trial.strength))
        return trial.plan(fit={"callbacks": [ReleaseTransition(int(RELEASE * trial.task.epochs))]}, tail=[flips])

    return plan


ESTIMATES = {
    "confident joint": label_noise.estimate_by_confident_joint,
    "anchors": lambda labels, p: label_noise.estimate_by_anchors(p),
    "anchors, 97%": lambda labels, p: label_noise.estimate_by_anchors(p, 0.97),
}


def estimated_transition(trial):
    """Forward correction with the T of a first training."""
    known = [np.concatenate(parts) for parts in zip(trial.task.train, trial.task.validation, strict=True)]
    p = softmax(trial.first().predict(known[0], batch_size=2048, verbose=0).astype("float64"), axis=-1)
    return trial.plan(ForwardCorrectedCrossentropy(ESTIMATES[trial.strength](known[1], p), from_logits=True))


def true_transition(trial):
    """Forward correction with the true T."""
    return trial.plan(ForwardCorrectedCrossentropy(trial.task.truth.transition, from_logits=True))


def true_labels(trial):
    """Crossentropy with the true labels, without the examples that have none."""
    labels = trial.task.truth.labels
    return Plan(trial.compiled(), [Stage((trial.task.train.x[labels >= 0], labels[labels >= 0]))])


def smoothed(trial):
    """Keras' own smoothing."""
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=trial.strength)
    x, y = trial.task.train
    return Plan(trial.compiled(loss), [Stage((x, keras.utils.to_categorical(y, trial.task.units)))])


class Mixtures(keras.utils.PyDataset):
    """Batches in which examples and labels are mixed with those of another order, by shares from Beta(alpha, alpha)."""

    def __init__(self, x, y, alpha, seed):
        super().__init__()
        self.x, self.y, self.alpha, self.rng = x, y, alpha, np.random.default_rng(seed)
        self.order = self.rng.permutation(len(x))

    def __len__(self):
        """Of batches."""
        return len(self.x) // BATCH

    def __getitem__(self, index):
        """A batch."""
        first = self.order[index * BATCH : (index + 1) * BATCH]
        second, share = self.rng.permutation(first), self.rng.beta(self.alpha, self.alpha)
        return tuple((share * part[first] + (1.0 - share) * part[second]).astype("float32") for part in (self.x, self.y))

    def on_epoch_end(self):
        """Keras calls it."""
        self.order = self.rng.permutation(len(self.x))


def mixup(trial):
    """Crossentropy of mixtures."""
    x, y = trial.task.train
    data = Mixtures(x, keras.utils.to_categorical(y, trial.task.units), trial.strength, trial.seed)
    return Plan(trial.compiled(keras.losses.CategoricalCrossentropy(from_logits=True)), [Stage((data,))])


PLAIN, BASE = "crossentropy, last epoch", "crossentropy, stopped early"
METHODS = [
    Method("true labels", "a bound", (None,), true_labels, knows="the true labels"),
    Method("forward, true T", "a bound, Patrini et al. 2017", (None,), true_transition, knows="the true T"),
    Method(PLAIN, "", (None,), lambda trial: trial.plan(), stops_early=False),
    Method(BASE, "three starts", (0, 1, 2), lambda trial: trial.plan(start=trial.strength)),
    Method("temperature", "Collier et al. 2021", (1.5, 5.0, 15.0), lambda trial: trial.plan(temperature=trial.strength)),
    Method("label smoothing", "Szegedy et al. 2016", (0.1, 0.3, 0.5), smoothed),
    Method("mixup", "Zhang et al. 2018", (0.4, 2.0, 8.0), mixup),
    Method(
        "bootstrapping, soft",
        "Reed et al. 2014",
        (0.95, 0.8, 0.6),
        of_loss(lambda beta, task: BootstrappedCrossentropy(beta, from_logits=True)),
    ),
    Method(
        "bootstrapping, hard",
        "Reed et al. 2014",
        (0.9, 0.8, 0.6),
        of_loss(lambda beta, task: BootstrappedCrossentropy(beta, hard=True, from_logits=True)),
    ),
    Method("forward, estimated T", "Patrini et al. 2017, Northcutt et al. 2021", tuple(ESTIMATES), estimated_transition),
    Method("learned T, L2", "Sukhbaatar et al. 2014", (0.03, 0.07, 0.14), of_transition(keras.regularizers.L2)),
    Method("learned T, trace", "Sukhbaatar et al. 2014", (0.003, 0.01, 0.03), of_transition(Trace)),
    Method(
        "early-learning regularisation",
        "Liu et al. 2020",
        (1.0, 3.0, 7.0),
        of_indexed_loss(
            lambda strength, task: EarlyLearningRegularizedCrossentropy(len(task.train.y), task.units, strength, from_logits=True)
        ),
    ),
]
