"""Trainings side by side are those one by one, on the same batches."""

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
from tests.training.tasks import SHORT_TRAININGS, Cheat, X, Y

pytestmark = [SHORT_TRAININGS]

EPOCHS, SIZE, FOLDS = 3, 32, 3
T = np.full((3, 3), 0.1) + 0.7 * np.eye(3)


def trainer(criterion="loss", **arguments):
    return Trainer(None, keras.optimizers.Adam(0.05), EPOCHS, SIZE, criterion, 0, arguments)


def task_of(engine, y=Y, x=X, **changed):
    return dataclasses.replace(engine.task(read(x, y)), transition=T, **changed)


def one_by_one(engine, candidate, strength, task, part, batches):
    """Scores and probabilities by Keras' `fit` on the examples of a part alone, in the order of the batches."""
    model = engine._make(task)
    own = part.train(task)
    trained, predictor = with_head(model, own, candidate, strength)
    if hasattr(trained.loss, "attach"):
        trained.loss.attach(trained)
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
CANDIDATES = [
    (EarlyStopping(), None, Y),
    (EarlyLearning(), 3.0, Y),
    (ForwardCorrection(), None, Y),
    (LabelSmoothing(), 0.5, Y),
    (MajorityVote(), None, VOTES),
    (EarlyStopping(), None, VOTES),  # whose targets differ from fold to fold
    (Cheat(), None, Y),  # looks at the features
]


@pytest.mark.parametrize(("candidate", "strength", "y"), CANDIDATES, ids=lambda value: getattr(value, "name", ""))
def test_side_by_side_is_as_one_by_one(candidate, strength, y):
    engine = trainer()
    task = task_of(engine, y)
    fold_of = stratified_folds(task.y, FOLDS, 0)
    parts = together.parts_of(fold_of)
    pairs = [(EarlyStopping(), None), (candidate, strength)]
    found = engine.together(pairs, task, parts, fold_of, 5)[FOLDS:]
    trained = np.stack([fold_of != fold for fold in range(FOLDS)], axis=1)
    batches = together.Batches(Features(task.x, task.scale), [], fold_of, trained, SIZE, 5)
    for part, own in zip(parts, found, strict=True):
        expected = one_by_one(engine, candidate, strength, task, part, batches)
        np.testing.assert_allclose(own["scores"], expected["scores"], rtol=0, atol=2e-5)
        np.testing.assert_allclose(own["probabilities"], expected["probabilities"], rtol=0, atol=2e-5)


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
    assert engine.can_be_together(EarlyStopping(), None, task_of(engine), FOLDS) == stays_apart


class Total(LabelSmoothing):
    def loss(self, task, strength):
        return keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")


class OfBatch(EarlyStopping):
    def loss(self, task, strength):
        return lambda y_true, y_pred: keras.ops.max(y_pred)


@pytest.mark.once
@pytest.mark.parametrize("candidate", [Own(), Total(), OfBatch(), Heteroscedastic()])
def test_what_may_mix_examples_or_has_another_head_is_trained_alone(candidate):
    engine = trainer()
    assert not engine.can_be_together(candidate, None, task_of(engine), FOLDS)


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
