"""Rows of the arena that are methods of their own: what they train on, and what is recorded of them."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import log_softmax

from benchmarks.arena import additions, training
from benchmarks.arena.trial import Trial
from keras_het.losses import ForwardCorrectedCrossentropy
from tests.gradients import value_and_gradients

pytest.importorskip("sklearn")

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
LOGITS, LABELS = RNG.normal(size=(8, 3)).astype("float32"), RNG.integers(3, size=8)
T = np.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0]])


def small_trial(strength, epochs=2, examples=256):
    """A trial of a few steps."""
    task = training.task_of("digits", "symmetric", 0, epochs)
    task = task._replace(train=type(task.train)(*(part[:examples] for part in task.train)))
    return Trial(task, "Dense", strength, 0)


def recorded(trial, plan):
    record = training.Record(trial.task, plan.outputs)
    training.train(plan, trial.task.epochs, record)
    return record.epochs


class Weights(keras.callbacks.Callback):
    """The weights after every step, and those that the record sees."""

    def __init__(self):
        super().__init__()
        self.steps, self.seen = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(self.model.get_weights())

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(self.model.get_weights())


def average_of(steps, momentum):
    """The average by hand, which starts at the weights after the first step."""
    average = steps[0]
    for step in steps[1:]:
        average = [momentum * old + (1 - momentum) * new for old, new in zip(average, step, strict=True)]
    return average


def distance_to_averages(callbacks_of):
    trial, weights = small_trial(0.8), Weights()
    plan = additions.averaged(trial)
    (stage,) = plan.stages
    (swap,) = stage.arguments["callbacks"]
    plan.model.fit(*stage.data, batch_size=64, epochs=2, verbose=0, callbacks=callbacks_of(swap, weights))
    assert len(weights.steps) == 8
    by_hand = [average_of(weights.steps[: 4 * epoch], 0.8) for epoch in (1, 2)]
    return max(
        np.abs(one - other).max()
        for pair in zip(weights.seen, by_hand, strict=True)
        for one, other in zip(*pair, strict=True)
    )


def test_the_record_sees_the_averages_of_all_steps():
    assert distance_to_averages(lambda swap, weights: [swap, weights]) < 1e-6


@pytest.mark.planted
def test_a_record_before_the_swap_is_caught():
    assert distance_to_averages(lambda swap, weights: [weights, swap]) > 1e-3


@pytest.mark.smoke
def test_without_momentum_the_averages_are_the_weights_themselves():
    trial = small_trial(0.0)
    plain, own = recorded(trial, trial.plan()), recorded(trial, additions.averaged(trial))
    for one, other in zip(plain, own, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    slow = recorded(trial, additions.averaged(trial._replace(strength=0.99)))
    assert slow[-1]["clean NLL"] > plain[-1]["clean NLL"] + 0.1  # the average is behind


def flooded_by_hand(logits, floor):
    p = np.exp(log_softmax(np.asarray(logits, "float64"), axis=-1))
    mean = -np.log((p @ T)[np.arange(len(LABELS)), LABELS]).mean()
    return abs(mean - floor) + floor


def value_and_gradient(loss, logits=LOGITS):
    value, (gradient,) = value_and_gradients(lambda tensors: loss(LABELS, tensors[0]), [logits])
    return float(value), gradient


def test_the_loss_turns_back_below_the_floor():
    forward = ForwardCorrectedCrossentropy(T, from_logits=True)
    plain, slope = value_and_gradient(forward)
    for floor, sign in ((0.5 * plain, 1.0), (1.5 * plain, -1.0)):
        value, gradient = value_and_gradient(additions.with_floor(forward, floor))
        assert value == pytest.approx(flooded_by_hand(LOGITS, floor), rel=1e-6)
        np.testing.assert_allclose(gradient, sign * slope, rtol=1e-6)


@pytest.mark.planted
def test_a_floor_of_each_example_is_caught():
    forward = ForwardCorrectedCrossentropy(T, from_logits=True, reduction="none")
    floor = float(ops.mean(forward(LABELS, LOGITS)))
    wrong = additions.with_floor(forward, floor)
    assert abs(float(ops.mean(wrong(LABELS, LOGITS))) - flooded_by_hand(LOGITS, floor)) > 0.1


def test_the_floor_is_the_entropy_of_labels_whose_classes_are_known():
    classes = np.array([0.7, 0.2, 0.1])
    labels = np.repeat(np.arange(3), np.round(4000 * classes @ T).astype(int))
    by_row = [-sum(p * np.log(p) for p in row if p > 0) for row in T]
    assert additions.mean_entropy(T, labels) == pytest.approx(classes @ by_row, rel=1e-6)
    # The mean over the rows, and that by the shares of the labels, are others.
    shares = np.bincount(labels) / len(labels)
    assert abs(np.mean(by_row) - classes @ by_row) > 0.01
    assert abs(shares @ by_row - classes @ by_row) > 0.005


def test_the_floor_keeps_the_forward_loss_at_itself():
    """After many epochs the plain loss has fallen below the floor; this one is near it."""
    trial = small_trial(1.0, epochs=40)
    labels, p = trial.first_probabilities()
    transition = additions.labels.estimation.estimate_by_confident_joint(labels, p)
    loss, found = ForwardCorrectedCrossentropy(transition, from_logits=True), []
    for plan in (trial.plan(loss), additions.flooded(trial)):
        training.train(plan, trial.task.epochs, keras.callbacks.Callback())
        found.append(float(loss(trial.task.train.y, plan.model.predict(trial.task.train.x, verbose=0))))
    floor = additions.mean_entropy(transition, labels)
    assert found[0] < 0.8 * floor
    assert found[1] == pytest.approx(floor, rel=0.1)


def test_the_penalty_is_that_of_features_and_last_kernel_alone():
    trial = small_trial(0.03)
    model = additions.small_features(trial).model
    x, y = (part[:50] for part in trial.task.train)
    hidden = x.astype("float64")
    for layer in model.layers[:-1]:
        kernel, bias = layer.get_weights()
        hidden = np.maximum(hidden @ kernel + bias, 0.0)
    kernel, bias = model.layers[-1].get_weights()
    plain = -log_softmax(hidden @ kernel + bias, axis=-1)[np.arange(50), y].mean()
    exact = plain + 0.03 * ((hidden**2).sum(axis=1).mean() + (kernel.astype("float64") ** 2).sum())
    assert model.evaluate(x, y, batch_size=50, verbose=0) == pytest.approx(exact, rel=1e-5)
    wrong = plain + 0.03 * ((hidden**2).mean() + (kernel.astype("float64") ** 2).sum())
    assert abs(wrong - exact) > 1e-3


def planted_issues():
    """Two classes; six labels of class 0 are in doubt, by how much says p."""
    p1 = np.concatenate([np.linspace(0.9, 0.99, 6), np.full(24, 0.02), np.full(30, 0.85)])
    return np.stack([1 - p1, p1], axis=1), np.repeat([0, 1], 30)


def test_all_issues_are_taken_out_or_the_worst_half():
    issues = additions.labels.find_issues(*planted_issues())
    assert sorted(additions.issues_of(issues, "all")) == list(range(6))
    assert sorted(additions.issues_of(issues, "worst half")) == [3, 4, 5]
    assert sorted(additions.issues_of(issues, "wrong")) == sorted(issues.index[issues.kind == "wrong"])


def test_what_is_taken_out_is_not_learned():
    trial = small_trial(None)
    left_out = np.arange(0, 256, 3)
    (x, y), first = trial.task.train, additions.without(trial, left_out)
    changed = y.copy()
    changed[left_out] = (changed[left_out] + 1) % 10
    other = trial._replace(task=trial.task._replace(train=type(trial.task.train)(x, changed)))
    assert recorded(trial, first) == recorded(other, additions.without(other, left_out))
    assert recorded(trial, trial.plan()) != recorded(other, other.plan())


def votes_by_hand(features, labels, k):
    found = []
    for index, row in enumerate(features):
        distances = np.where(np.arange(len(labels)) == index, np.inf, ((features - row) ** 2).sum(axis=1))
        votes = [int(np.sum(labels[np.argsort(distances)[:k]] == label)) for label in range(labels.max() + 1)]
        found.append(labels[index] if votes[labels[index]] == max(votes) else votes.index(max(votes)))
    return np.array(found)


@pytest.mark.parametrize("k", [1, 4, 5])
def test_labels_of_neighbours_are_those_of_a_slow_count(k):
    features, labels = RNG.normal(size=(60, 3)), RNG.integers(3, size=60)
    found = additions.labels_of_neighbours(features, labels, k)
    np.testing.assert_array_equal(found, votes_by_hand(features, labels, k))
    assert 0 < np.sum(found != labels) < 60


@pytest.mark.planted
def test_a_neighbour_that_is_oneself_is_caught(monkeypatch):
    from sklearn.neighbors import NearestNeighbors

    right = NearestNeighbors.kneighbors
    monkeypatch.setattr(
        NearestNeighbors, "kneighbors", lambda self, return_distance: right(self, self._fit_X, None, return_distance)
    )
    features, labels = RNG.normal(size=(60, 3)), RNG.integers(3, size=60)
    found = additions.labels_of_neighbours(features, labels, 5)
    assert np.any(found != votes_by_hand(features, labels, 5))


def test_neighbours_issues_and_margins_find_wrong_labels():
    task = training.task_of("digits", "symmetric", 0, 20)
    wrong = task.train.y != task.truth.labels
    left_out = {}
    seen = training.seen_by(additions.METHODS[0], task)
    for make in (additions.without_strangers, additions.without_issues, additions.without_small_margins):
        strength = 10 if make is additions.without_strangers else "all"
        (stage,) = make(Trial(seen, "Dense", strength, 0)).stages
        left_out[make] = stage.arguments["sample_weight"] == 0
    for is_out in left_out.values():
        assert np.mean(wrong[is_out]) > 0.85  # of all labels 45% are wrong
        assert np.mean(is_out[wrong]) > 0.7


def last_record_and_model(trial, is_restored=True):
    plan = additions.label_wave(trial)
    callbacks = plan.stages[0].arguments["callbacks"]
    plan.stages[0].arguments["callbacks"] = callbacks if is_restored else callbacks[:2]
    last = recorded(trial, plan)[-1]
    after = training.Record(trial.task, plan.outputs)
    after.set_model(plan.model)
    after.on_epoch_end(0)
    return last, after.epochs[0], len(callbacks[0].changes) + 1


@pytest.mark.parametrize("epochs", [40, 4])  # it stops, and it does not
def test_the_last_record_of_label_wave_is_that_of_the_weights_it_restores(epochs):
    last, after, done = last_record_and_model(small_trial(2, epochs))
    assert last == after
    assert (done < epochs) == (epochs == 40)


@pytest.mark.planted
def test_a_record_of_the_weights_where_it_stops_is_caught():
    last, after, _ = last_record_and_model(small_trial(2, 40), is_restored=False)
    assert last != after
