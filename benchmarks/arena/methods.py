"""The methods that the arena compares: a row each, with its source and what it may choose from.

A row makes a `trial.Plan` of a `trial.Trial`.
"""

import keras
import numpy as np

from benchmarks.arena import additions, regression, rivals
from benchmarks.arena.trial import BATCH, Method, Plan, Stage, of_indexed_loss, of_loss, of_transition
from benchmarks.baselines import BootstrappedCrossentropy, Trace, estimate_by_anchors
from keras_het.labels.estimation import estimate_by_confident_joint
from keras_het.losses import (
    EarlyLearningRegularizedCrossentropy,
    ForwardCorrectedCrossentropy,
)

ESTIMATES = {
    "confident joint": estimate_by_confident_joint,
    "anchors": lambda labels, p: estimate_by_anchors(p),
    "anchors, 97%": lambda labels, p: estimate_by_anchors(p, 0.97),
}


def estimated_transition(trial):
    """Forward correction with the T of a first training."""
    estimate = ESTIMATES[trial.strength](*trial.first_probabilities())
    return trial.plan(ForwardCorrectedCrossentropy(estimate, from_logits=True))


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
        return -(-len(self.x) // BATCH)

    def __getitem__(self, index):
        """A batch."""
        first = self.order[index * BATCH : (index + 1) * BATCH]
        second, share = self.rng.permutation(first), self.rng.beta(self.alpha, self.alpha)
        return tuple(
            (share * part[first] + (1.0 - share) * part[second]).astype("float32") for part in (self.x, self.y)
        )

    def on_epoch_end(self):
        """Keras calls it."""
        self.order = self.rng.permutation(len(self.x))


def mixup(trial):
    """Crossentropy of mixtures."""
    x, y = trial.task.train
    data = Mixtures(x, keras.utils.to_categorical(y, trial.task.units), trial.strength, trial.seed)
    return Plan(trial.compiled(keras.losses.CategoricalCrossentropy(from_logits=True)), [Stage((data,))])


PLAIN, BASE, CHANCE = "crossentropy, last epoch", "crossentropy, stopped early", "crossentropy, other starts"
METHODS = [
    Method("true labels", "", (None,), true_labels, knows="bound", told=lambda truth: truth._replace(transition=None)),
    Method(
        "forward, true T",
        "Patrini et al. 2017",
        (None,),
        true_transition,
        knows="bound",
        told=lambda truth: truth._replace(labels=None),
    ),
    Method(PLAIN, "", (None,), lambda trial: trial.plan(), stops_early=False),
    Method(BASE, "three starts", (0, 1, 2), lambda trial: trial.plan(start=trial.strength)),
    Method(CHANCE, "three other starts", (3, 4, 5), lambda trial: trial.plan(start=trial.strength)),
    Method(
        "temperature", "Collier et al. 2021", (1.5, 5.0, 15.0), lambda trial: trial.plan(temperature=trial.strength)
    ),
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
    Method(
        "forward, estimated T", "Patrini et al. 2017, Northcutt et al. 2021", tuple(ESTIMATES), estimated_transition
    ),
    Method("learned T, L2", "Sukhbaatar et al. 2014", (0.03, 0.07, 0.14), of_transition(keras.regularizers.L2)),
    Method("learned T, trace", "Sukhbaatar et al. 2014", (0.003, 0.01, 0.03), of_transition(Trace)),
    Method(
        "early-learning regularisation",
        "Liu et al. 2020",
        (1.0, 3.0, 7.0),
        of_indexed_loss(
            lambda strength, task: EarlyLearningRegularizedCrossentropy(
                len(task.train.y), task.units, strength, from_logits=True
            )
        ),
    ),
    *rivals.METHODS,
    *additions.METHODS,
    *regression.METHODS,
]
