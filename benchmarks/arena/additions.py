"""Rows that the first run of the arena did not have: averaged weights, floors and penalties, labels taken out.

Examples that are taken out have weight 0: so an epoch has as many steps as that of the other methods.
"""

import keras
import numpy as np
from keras import ops
from scipy.optimize import nnls
from scipy.stats import entropy

from benchmarks.arena.trial import BATCH, Method, Plan, Stage, crossentropy, of_loss
from benchmarks.baselines import EpsilonSoftmaxCrossentropy, LabelWave
from keras_het import explain
from keras_het.callbacks import TrainingDynamics
from keras_het.labels import find_issues
from keras_het.labels.estimation import estimate_by_confident_joint
from keras_het.losses import ForwardCorrectedCrossentropy
from keras_het.training import cross_val_probabilities

FOLDS = 5
ISSUES = {  # which of the issues, the worst first, are taken out
    "all": lambda issues: issues.is_issue,
    "wrong": lambda issues: issues.kind == "wrong",
    "worst half": lambda issues: issues.is_issue & (np.cumsum(issues.is_issue) <= issues.is_issue.sum() / 2),
}


def averaged(trial):
    """Predicts with averages of the weights over the steps; the strength is their momentum."""
    model = trial.network()
    model.compile(trial.optimizer(model, use_ema=True, ema_momentum=trial.strength), crossentropy())
    # A callback of the stage is called before the record, which so sees the averages.
    return Plan(model, [Stage(trial.task.train, {"callbacks": [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]})])


def flooded(trial):
    """Forward correction with an estimated T whose loss is kept at a multiple of the entropy of the noise."""
    labels, p = trial.first_probabilities()
    transition = estimate_by_confident_joint(labels, p)
    floor = trial.strength * mean_entropy(transition, labels)
    return trial.plan(with_floor(ForwardCorrectedCrossentropy(transition, from_logits=True), floor))


def with_floor(loss, floor):
    """A loss that turns back where the mean of a batch is below the floor: |loss - floor| + floor."""
    return lambda y_true, y_pred: ops.abs(loss(y_true, y_pred) - floor) + floor


def mean_entropy(transition, labels):
    """The mean entropy of a label whose true class is known, which no loss of unseen noisy labels is below.

    It is the mean of the entropies of the rows of T, by the shares of the true classes: those from which T makes the
    shares of the labels.
    """
    shares = np.bincount(labels, minlength=len(transition)) / len(labels)
    classes, _ = nnls(transition.T, shares)
    return float(classes / classes.sum() @ entropy(transition, axis=1))


def small_features(trial):
    """L2 on the input of the last layer, its mean over the batch, and on the kernel of the last layer.

    A strength of 0.1 was left out, for it stops all learning: a test of six epochs showed it, by clean labels of one
    seed, and noisy labels of a seed that is not in the run confirmed it.
    """
    model, penalty = trial.network(), keras.regularizers.L2(trial.strength)
    *_, last, head = model.layers
    last.activity_regularizer, head.kernel.regularizer = penalty, penalty
    model.compile(trial.optimizer(model), crossentropy())
    return Plan(model, [Stage(trial.task.train, {})])


def without_issues(trial):
    """Trains again without labels that confident learning calls issues."""
    (x, y), arguments = trial.task.train, {"epochs": trial.first_epochs(), "batch_size": BATCH}
    p = cross_val_probabilities(trial.compiled, x, y, folds=FOLDS, seed=trial.seed, verbose=0, **arguments)
    return without(trial, issues_of(find_issues(p, y), trial.strength))


def without_small_margins(trial):
    """Trains again without labels whose mean margin in a first training makes them issues."""
    dynamics = TrainingDynamics(*trial.task.train, history=False)
    trial.first([dynamics])
    return without(trial, issues_of(find_issues(dynamics), trial.strength))


def issues_of(issues, which):
    """The indices of the issues that are taken out."""
    return issues.index[ISSUES[which](issues)]


def without(trial, left_out):
    """Plain training where some examples have weight 0."""
    weight = np.ones(len(trial.task.train.y), "float32")
    weight[left_out] = 0.0
    return trial.plan(fit={"sample_weight": weight})


def without_strangers(trial):
    """Trains again without labels that another one beats among the nearest neighbours."""
    return without(trial, np.flatnonzero(neighbours_of(trial) != trial.task.train.y))


def of_neighbours(trial):
    """Trains again with the most frequent label of the nearest neighbours, the own one of equals."""
    return Plan(trial.compiled(), [Stage((trial.task.train.x, neighbours_of(trial)), {})])


def neighbours_of(trial):
    """The labels of neighbours by the features of a first training; the strength is their number."""
    x, y = trial.task.train
    return labels_of_neighbours(explain.features(trial.first(), x), y, trial.strength)


def labels_of_neighbours(features, labels, k):
    """The most frequent label of the k nearest others, `(N,)`; the own label where none has more votes."""
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=k).fit(features).kneighbors(return_distance=False)
    votes = np.eye(labels.max() + 1)[labels[nearest]].sum(axis=1)
    return np.where(votes[np.arange(len(labels)), labels] == votes.max(axis=1), labels, votes.argmax(axis=1))


class RestoredBeforeRecord(keras.callbacks.Callback):
    """Restores the weights of `LabelWave` when the last epoch ends: when training ends, the record has seen others."""

    def __init__(self, wave):
        super().__init__()
        self.wave = wave

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        if self.model.stop_training or epoch + 1 == self.params["epochs"]:
            self.wave.on_train_end()


def label_wave(trial):
    """Stops by the changes of predictions, without labels; the strength is the width of their means."""
    dynamics = TrainingDynamics(*trial.task.train, history=False)
    wave = LabelWave(dynamics, width=trial.strength)
    return trial.plan(fit={"callbacks": [dynamics, wave, RestoredBeforeRecord(wave)]})


METHODS = [
    Method("averaged weights", "Polyak and Juditsky 1992", (0.9, 0.97, 0.99), averaged, heads=("Dense",)),
    Method("flooding, estimated T", "Toner and Storkey 2023", (0.7, 1.0, 1.3), flooded, heads=("Dense",)),
    Method(
        "epsilon-softmax",
        "Wang et al. 2024",
        (10.0, 1e3, 1e5),
        of_loss(lambda m, task: EpsilonSoftmaxCrossentropy(m, from_logits=True)),
        heads=("Dense",),
    ),
    Method("L2 of features and last kernel", "Baek et al. 2024", (0.001, 0.01, 0.03), small_features, heads=("Dense",)),
    Method("removal by confident learning", "Northcutt et al. 2021", tuple(ISSUES), without_issues, heads=("Dense",)),
    Method("removal by margins", "Pleiss et al. 2020", tuple(ISSUES), without_small_margins, heads=("Dense",)),
    Method("removal by neighbours", "Bahri et al. 2020", (5, 10, 20), without_strangers, heads=("Dense",)),
    Method("labels of neighbours", "", (5, 10, 20), of_neighbours, heads=("Dense",)),
    # The last record is that of the epoch where it stops.
    Method("Label Wave", "Yuan et al. 2024", (2, 3, 5), label_wave, stops_early=False, heads=("Dense",)),
]
