"""Trainings side by side are those one by one, on the same batches.

By SGD: Adam makes rounding of the least gradients as large as its steps.
"""

import dataclasses

import keras
import numpy as np
import pytest
from keras.optimizers import Adafactor

from keras_het.label_noise.discriminant import Features, discriminant
from keras_het.training import (
    EarlyLearning,
    EarlyStopping,
    ForwardCorrection,
    Heteroscedastic,
    LabelSmoothing,
    LinearDiscriminant,
    MajorityVote,
    choose,
    together,
)
from keras_het.training.data import read
from keras_het.training.fit import Trainer
from keras_het.training.folds import stratified_folds
from keras_het.training.networks import with_head
from keras_het.training.record import Record
from tests.marks import grid
from tests.training.tasks import SHORT_TRAININGS, Cheat, X, Y

pytestmark = [SHORT_TRAININGS]

EPOCHS, SIZE, FOLDS = 3, 24, 3
T = np.full((3, 3), 0.1) + 0.7 * np.eye(3)


def trainer(criterion="loss", **arguments):
    return Trainer(None, keras.optimizers.SGD(0.5), EPOCHS, SIZE, criterion, 0, arguments)


def task_of(engine, y=Y, x=X, **changed):
    return dataclasses.replace(engine.task(read(x, y), None), transition=T, **changed)


def one_by_one(engine, candidate, strength, task, part, batches):
    """Scores and probabilities by Keras' `fit` on the examples of a part alone, in the order of the batches."""
    model = engine._make(task)
    own = part.train(task)
    trained, predictor = with_head(model, own, candidate, strength)
    record = Record(predictor, part.measure(task), SIZE, engine._criterion)
    labels, weights = candidate.labels(own, strength), candidate.sample_weight(own, strength)
    place = np.full(len(task.y), -1)
    place[part.rows] = np.arange(len(part.rows))
    for epoch in range(EPOCHS):
        for batch in batches.rows_of(epoch):
            rows = place[batch[batch >= 0]]
            rows = rows[rows >= 0]
            weight = None if weights is None else weights[rows]
            if len(rows):
                trained.fit(own.x[rows], labels[rows], sample_weight=weight, batch_size=len(rows), verbose=0)
        record.on_epoch_end(epoch)
    return record.measured(EPOCHS)


VOTES = np.stack([np.where(np.random.default_rng(a).random(len(Y)) < 0.6, Y, -1) for a in range(3)], axis=1)
VOTES[np.all(VOTES < 0, axis=1), 0] = 1
CANDIDATES = {
    "early stopping": (EarlyStopping(), None, Y),
    "forward correction": (ForwardCorrection(), None, Y),
    "label smoothing": (LabelSmoothing(), 0.5, Y),
    "fractions of votes": (MajorityVote(), None, VOTES),
    "targets that differ from fold to fold": (EarlyStopping(), None, VOTES),
    "a look at the features": (Cheat(), None, Y),
}


@pytest.mark.parametrize("name", grid(CANDIDATES, ["forward correction", "targets that differ from fold to fold"]))
def test_side_by_side_is_as_one_by_one(name):
    (candidate, strength, y), engine = CANDIDATES[name], trainer()
    task = task_of(engine, y[1:], X[1:])  # folds of 80, 80 and 79, so that the last batch is filled up
    fold_of = stratified_folds(task.y, FOLDS, 0)
    are_alike(engine, candidate, strength, task, fold_of, together.parts_of(fold_of))


@pytest.mark.once
def test_fewer_parts_than_folds_and_validation_data_are_side_by_side_too():
    engine = trainer()
    task = task_of(engine, Y[1:], X[1:])
    fold_of = stratified_folds(task.y, FOLDS, 0)
    are_alike(engine, LabelSmoothing(), 0.5, task, fold_of, together.parts_of(fold_of)[:2])
    others = together.Part(np.arange(len(task.y)), None, task.take(np.arange(50)))
    are_alike(engine, LabelSmoothing(), 0.5, task, np.zeros(len(task.y), int), [others])


def are_alike(engine, candidate, strength, task, fold_of, parts):
    pairs = [(EarlyStopping(), None), (candidate, strength)]
    found = engine.together(pairs, task, parts, fold_of, 5)[len(parts) :]
    trained = np.stack([np.isin(np.arange(len(task.y)), part.rows) for part in parts], axis=1)
    batches = together.Batches(Features(task.x, task.scale), [], fold_of, trained, SIZE, 5)
    for part, own in zip(parts, found, strict=True):
        expected = one_by_one(engine, candidate, strength, task, part, batches)
        np.testing.assert_allclose(own["scores"], expected["scores"], rtol=0, atol=2e-6)
        np.testing.assert_allclose(own["probabilities"], expected["probabilities"], rtol=0, atol=2e-6)


class Own(EarlyStopping):
    name = "own head"

    def head(self, task, strength):
        return [keras.layers.Dropout(0.0), *super().head(task, strength)]


@pytest.mark.once
def test_what_cannot_be_side_by_side_is_trained_alone_and_said(capsys):
    arguments = {"epochs": 2, "folds": 3, "seed": 1}
    found = choose(None, X, Y, candidates=[Own(), LabelSmoothing()], **arguments)
    assert "Not side by side with the others, which takes longer: own head." in capsys.readouterr().out
    assert [score.name for score in found.table] == ["early stopping", "own head", "label smoothing"]
    choose(None, X, Y, candidates=[LabelSmoothing()], **arguments)
    assert "Not side by side" not in capsys.readouterr().out


@pytest.mark.once
@pytest.mark.parametrize(
    ("optimizer", "stays_apart"),
    [("adam", True), ("lion", True), (Adafactor(), False), (keras.optimizers.Adam(clipnorm=1.0), False)],
)
def test_an_optimizer_that_mixes_numbers_trains_one_by_one(optimizer, stays_apart):
    engine = Trainer(None, optimizer, EPOCHS, SIZE, "loss", 0, {})
    assert engine.can_be_together(EarlyStopping(), None, task_of(engine), FOLDS, FOLDS) == stays_apart


class Total(LabelSmoothing):
    def loss(self, task, strength):
        return keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")


class Dice(LabelSmoothing):
    def loss(self, task, strength):
        return keras.losses.Dice()


class OfBatch(EarlyStopping):
    def loss(self, task, strength):
        return lambda y_true, y_pred: keras.ops.max(y_pred)


@pytest.mark.once
@pytest.mark.parametrize("candidate", [Own(), Total(), OfBatch(), Dice(), Heteroscedastic(), EarlyLearning()])
def test_what_may_mix_examples_or_has_another_head_is_trained_alone(candidate):
    engine = trainer()
    assert not engine.can_be_together(candidate, None, task_of(engine), FOLDS, FOLDS)


@pytest.mark.once
def test_a_batch_that_cannot_have_as_many_of_each_fold_or_memories_too_large_are_trained_alone():
    engine = trainer()
    task = task_of(engine)
    assert engine.can_be_together(EarlyStopping(), None, task, 2, 13)  # two of each of twelve folds
    assert not engine.can_be_together(EarlyStopping(), None, task, 2, 100)  # a batch would have one of each of 99
    many = {"y": np.broadcast_to(Y[:1], 4_300_000), "x": np.broadcast_to(X[:1], (4_300_000, 6))}
    large = dataclasses.replace(task, scaling=task.scale, **many)
    assert engine.can_be_together(EarlyStopping(), None, large, 5, 5)
    batches = together.Batches(Features(task.x, task.scale), [], np.arange(240) % 5, np.ones((240, 5), bool), 10**6, 0)
    assert [len(batches), len(batches.rows_of(0)[0])] == [1, 240]


@pytest.mark.once
def test_discriminants_of_all_folds_at_once_are_those_one_by_one():
    task = task_of(trainer())
    fold_of = stratified_folds(task.y, 4, 0)
    solved = LinearDiscriminant().solutions(task, None, fold_of)
    for fold, (kernel, bias) in enumerate(solved):
        rows = fold_of != fold
        fitted, _ = discriminant(task.x[rows], task.y[rows], 3, fold_of[rows], scale=task.scale)
        np.testing.assert_allclose(kernel, fitted.kernel, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(bias, fitted.bias, rtol=1e-4, atol=1e-5)
    assert LinearDiscriminant().solutions(task, None, fold_of % 2) is None


class Backwards(LinearDiscriminant):
    name = "backwards"

    def solution(self, task, strength):
        kernel, bias = super().solution(task, strength)
        return [-kernel, -bias]


@pytest.mark.once
def test_a_solution_of_a_subclass_is_what_is_measured():
    found = choose(None, X, Y, epochs=2, candidates=[LinearDiscriminant(), Backwards()], verbose=0)
    right = {score.name: score.score for score in found.table}
    assert right["backwards"] < 0.2 < right["linear discriminant analysis"]
