"""Rows of the arena: the robust losses, curricula and pairs of networks that the papers compare themselves with."""

import keras
import numpy as np

from benchmarks import baselines
from benchmarks.arena.trial import BATCH, Method, Plan, Stage, of_indexed_loss, of_loss
from benchmarks.baselines import (
    ActivePassiveCrossentropy,
    AdaptivelyRegularizedCrossentropy,
    CoTeaching,
    DataParametersCrossentropy,
    JoCoR,
    KeptShare,
    PeerNetworks,
    SelfPacedCrossentropy,
    adaptive_strengths,
)
from benchmarks.lib.tasks import Truth
from keras_het import explain
from keras_het.losses import (
    GeneralizedCrossentropy,
    SmoothedCrossentropy,
    SymmetricCrossentropy,
    with_index,
)

TWO = "two networks"
GRADUAL = 0.2  # share of the epochs in which the share that is kept falls
STAGES = (0.4, 0.7, 1.0)  # shares of the epochs at which the stages of a curriculum end
VERIFIED, CLASSES = 5, 10  # examples of each class whose true labels CleanNet is told, and classes


def gradual(trial):
    """Keeps ever fewer examples, down to the share that the strength is."""
    return {"callbacks": [KeptShare(int(GRADUAL * trial.task.epochs))]}


def self_paced(trial):
    """Examples of small losses."""
    return trial.attached(SelfPacedCrossentropy(trial.strength, from_logits=True), gradual(trial))


def pair_of(trial, loss, fit=None, start=0):
    """Two networks with a loss of both; their mean predicts."""
    pair = PeerNetworks([trial.network(start=2 * start + index) for index in range(2)])
    pair.compile(trial.optimizer(pair), loss.attach(pair))
    return Plan(pair, [Stage(trial.task.train, fit or {})])


def mentor_mix(trial):
    """Mixtures with examples of small losses."""
    x, y = trial.task.train
    batches = baselines.MentorMix(x, y, trial.task.units, BATCH, percentile=trial.strength, seed=trial.seed)
    model = trial.compiled(keras.losses.CategoricalCrossentropy(from_logits=True))
    return Plan(model, [Stage((batches,), {"callbacks": [batches.callback()]})])


def density(trial):
    """Dense examples first; the strength is the weight of the others in later stages."""
    x, y = trial.task.train
    subsets = baselines.density_subsets(explain.features(trial.first(), x), y)
    weights = [baselines.stage_weights(subsets, stage, (1.0, trial.strength, trial.strength)) for stage in range(3)]
    stages = [Stage((x, y), {"sample_weight": weight}, until) for weight, until in zip(weights, STAGES, strict=True)]
    return Plan(trial.compiled(), stages)


def reference(trial):
    """Weights by likeness to verified examples, to the power of the strength."""
    (x, y), truth = trial.task.train, trial.task.truth.labels
    verified = np.flatnonzero(truth >= 0)
    features = explain.features(trial.first(), x)
    weights = baselines.reference_weights(features, y, features[verified], truth[verified])
    return trial.plan(fit={"sample_weight": weights**trial.strength})


def verified_alone(truth):
    """The true labels of the first examples of each class; -1 for all others."""
    first = np.concatenate([np.flatnonzero(truth.labels == label)[:VERIFIED] for label in range(CLASSES)])
    labels = np.full_like(truth.labels, -1)
    labels[first] = truth.labels[first]
    return Truth(labels, None)


def adaptive(trial):
    """Regularises examples of noisy and of rare classes more.

    A class is as noisy as the share of its validation labels that a first training predicts otherwise.
    """
    (x, y), task = trial.task.validation, trial.task
    wrong = trial.first().predict(x, batch_size=2048, verbose=0).argmax(axis=-1) != y
    noise = [wrong[y == label].mean() for label in range(task.units)]
    strengths = trial.strength * adaptive_strengths(task.train.y, noise)
    return trial.attached(
        AdaptivelyRegularizedCrossentropy(strengths, from_logits=True), {"sample_weight": with_index(len(strengths))}
    )


METHODS = [
    Method(
        "generalised crossentropy",
        "Zhang and Sabuncu 2018",
        (0.3, 0.5, 0.7),
        of_loss(lambda q, task: GeneralizedCrossentropy(q, from_logits=True)),
    ),
    Method(
        "symmetric crossentropy",
        "Wang et al. 2019",
        (0.1, 1.0, 6.0),
        of_loss(lambda beta, task: SymmetricCrossentropy(1.0, beta, from_logits=True)),
    ),
    Method(
        "active passive",
        "Ma et al. 2020",
        (1.0, 3.0, 10.0),
        of_loss(lambda alpha, task: ActivePassiveCrossentropy(alpha, 1.0, from_logits=True)),
    ),
    Method(
        "negative label smoothing",
        "Wei et al. 2022",
        (-0.3, -1.0, -3.0),
        of_loss(lambda smoothing, task: SmoothedCrossentropy(smoothing, from_logits=True)),
    ),
    Method(
        "data parameters",
        "Saxena et al. 2019",
        (0.1, 0.3, 1.0),
        of_indexed_loss(
            lambda rate, task: DataParametersCrossentropy(
                len(task.train.y), task.units, instance_rate=rate, from_logits=True
            )
        ),
    ),
    Method("self-paced", "Jiang et al. 2018", (0.8, 0.6, 0.4), self_paced),
    Method(
        TWO,
        "three starts",
        (0, 1, 2),
        lambda trial: pair_of(trial, CoTeaching(1.0, from_logits=True), start=trial.strength),
    ),
    Method(
        f"{TWO}, co-teaching",
        "Han et al. 2018",
        (0.8, 0.6, 0.4),
        lambda trial: pair_of(trial, CoTeaching(trial.strength, from_logits=True), gradual(trial)),
    ),
    Method(
        f"{TWO}, JoCoR",
        "Wei et al. 2020",
        (0.8, 0.6, 0.4),
        lambda trial: pair_of(trial, JoCoR(trial.strength, from_logits=True), gradual(trial)),
    ),
    Method("MentorMix", "Jiang et al. 2020", (90.0, 70.0, 50.0), mentor_mix),
    Method("curriculum by density", "Guo et al. 2018", (0.75, 0.5, 0.25), density),
    Method("adaptive regularisation", "Cao et al. 2021", (0.03, 0.1, 0.3), adaptive, heads=("Dense",)),
    Method(
        "CleanNet",
        "Lee et al. 2018",
        (0.5, 1.0, 2.0),
        reference,
        knows=f"told {VERIFIED * CLASSES} labels",
        told=verified_alone,
    ),
]
