"""Scores of held-out labels, beside Keras' own: of every loss, of labels that do not count, and of any tensor."""

import functools

import keras
import numpy as np
import pytest
from scipy import special

import keras_het
from keras_het import losses, models
from keras_het.layers import (
    HeteroscedasticDense,
    HeteroscedasticNormal,
    JointHeteroscedasticDense,
    NoiseTransition,
    StochasticSegmentation,
)
from keras_het.training import noisy_nll
from keras_het.training.held_out import HeldOut
from tests.training.test_tune import LABELS, ONE_HOT, SPARSE, X, model_of

pytestmark = pytest.mark.once

BINARY = keras.losses.BinaryCrossentropy
MANY = (np.random.default_rng(0).random((50, 3)) < 0.4).astype("float32")
CASES = {
    "probabilities": (
        lambda: [keras.layers.Dense(3, "softmax")],
        "sparse_categorical_crossentropy",
        "accuracy",
        LABELS,
    ),
    "logits": (lambda: [keras.layers.Dense(3)], SPARSE(from_logits=True), "accuracy", LABELS),
    "labels in a column": (lambda: [keras.layers.Dense(3)], SPARSE(from_logits=True), "accuracy", LABELS[:, None]),
    "one-hot": (lambda: [keras.layers.Dense(3)], ONE_HOT(from_logits=True), "accuracy", np.eye(3)[LABELS]),
    "two classes": (lambda: [keras.layers.Dense(1, "sigmoid")], "binary_crossentropy", "accuracy", LABELS == 2),
    "several labels": (
        lambda: [HeteroscedasticDense(3, link="sigmoid", seed=0)],
        BINARY(from_logits=True),
        keras.metrics.BinaryAccuracy(threshold=0.0),
        MANY,
    ),
    "a head": (lambda: [HeteroscedasticDense(3, seed=0)], SPARSE(from_logits=True), "accuracy", LABELS),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_keras(case):
    layers, loss, metric, y = CASES[case]
    model = model_of(*layers(), loss=loss, metrics=[metric])
    expected = model.evaluate(X, y, batch_size=20, verbose=0)
    for criterion, value in zip(("loss", "accuracy"), expected, strict=True):
        assert HeldOut((X, y), criterion, batch_size=20)(model) == pytest.approx(value, rel=1e-4), criterion


@pytest.mark.parametrize("loss", [SPARSE, losses.GeneralizedCrossentropy])
def test_labels_that_are_ignored_do_not_count(loss):
    y = np.where(np.arange(50) % 20 < 15, -1, LABELS)  # most of the first batch, and all of the last
    y[40:] = -1
    made = loss(from_logits=True, ignore_class=-1)
    model = model_of(keras.layers.Dense(3), loss=made)
    counts, p = y >= 0, special.softmax(model.predict(X, verbose=0), axis=-1)
    of_label = p[np.arange(50), y][counts]
    each = (1 - of_label**0.7) / 0.7 if loss is losses.GeneralizedCrossentropy else -np.log(of_label)
    assert HeldOut((X, y), "loss", batch_size=20)(model) == pytest.approx(each.mean(), rel=1e-5)
    accuracy = (p.argmax(-1) == y)[counts].mean()
    assert HeldOut((X, y), "accuracy", batch_size=20)(model) == pytest.approx(accuracy)
    seen = []
    HeldOut((X, y), lambda y, p: seen.append(y) or keras.losses.sparse_categorical_crossentropy(y, p), batch_size=20)(
        model
    )
    assert np.concatenate(seen).tolist() == y[counts].tolist()
    with pytest.raises(ValueError, match=r"`validation_data` must have at least one label that counts. Received: none"):
        HeldOut((X, np.full(50, -1)), "loss")(model)


def test_ignored_labels_behind_a_noise_transition_and_in_a_partial():
    y = np.where(np.arange(50) % 5 == 0, -1, LABELS)
    loss = SPARSE(from_logits=True, ignore_class=-1)
    flips = model_of(
        keras.layers.Dense(3, "log_softmax"), NoiseTransition(3, transition=0.4 * np.eye(3) + 0.2), loss=loss
    )
    kept = HeldOut((X[y >= 0], y[y >= 0]), "loss")(flips)
    assert HeldOut((X, y), "loss", batch_size=20)(flips) == pytest.approx(kept, rel=1e-5)
    of_function = functools.partial(keras.losses.sparse_categorical_crossentropy, from_logits=True, ignore_class=-1)
    model = model_of(keras.layers.Dense(3), loss=of_function)
    p = special.softmax(model.predict(X, verbose=0), axis=-1)[y >= 0]
    nll = -np.log(p[np.arange(len(p)), y[y >= 0]]).mean()
    assert HeldOut((X, y), "loss", batch_size=20)(model) == pytest.approx(nll, rel=1e-5)


@pytest.mark.smoke
def test_early_learning_is_scored_by_its_plain_loss_and_a_score_changes_nothing():
    inputs = keras.Input((4,))
    model = models.EarlyLearning(inputs, keras.layers.Dense(3)(inputs), 50)
    model.compile("sgd", SPARSE(from_logits=True))
    model.fit(X, LABELS, sample_weight=models.with_index(50), verbose=0)
    before = model.memory.numpy().tolist()
    p = special.softmax(model.predict(X, verbose=0), axis=-1)
    score = HeldOut((X, LABELS), "loss", batch_size=20)(model)
    assert score == pytest.approx(-np.log(p[np.arange(50), LABELS]).mean(), rel=1e-5)
    assert model.memory.numpy().tolist() == before


OF_DISTRIBUTIONS = {  # the head, its loss, and labels of which some, and all of the first examples, do not count
    "targets": (lambda r: HeteroscedasticNormal(3, r), losses.MultivariateNormalNLL(), X[:, :3] + LABELS[:, None]),
    "labels": (
        lambda r: JointHeteroscedasticDense(3, r),
        losses.JointMultiLabelCrossentropy(8),
        np.where(np.arange(50)[:, None] < [30, 30, 35], -1.0, MANY),
    ),
    "pixels": (
        lambda r: StochasticSegmentation(3, r),
        losses.JointSegmentationCrossentropy(3, 8, ignore_class=9),
        np.where(np.arange(50)[:, None] < [30, 35], 9, LABELS[:, None]),
    ),
}


@pytest.mark.parametrize("name", [pytest.param("targets", marks=pytest.mark.smoke), "labels", "pixels"])
def test_a_distribution_is_scored_by_its_own_loss(name):
    make, loss, y = OF_DISTRIBUTIONS[name]
    x = np.stack([X, X], axis=1) if name == "pixels" else X

    def made(factors):
        keras.utils.set_random_seed(0)
        inputs = keras.Input(x.shape[1:])
        model = keras_het.models.DistributionModel(inputs, make(factors)(inputs))
        model.compile(keras.optimizers.Adam(0.05), loss)
        return model

    found = keras_het.tune(made, [1], x, y, validation_data=(x, y), epochs=2, batch_size=20, extend=False, verbose=0)
    expected = found.model.evaluate(x, y, batch_size=50, verbose=0)  # one mean over the examples that count
    assert found.best.score == pytest.approx(expected, rel=1e-5)


@pytest.mark.smoke
def test_behind_a_noise_transition_the_noisy_labels_are_predicted():
    swap = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    model = model_of(
        keras.layers.Dense(3, "log_softmax"),
        NoiseTransition(3, transition=swap, trainable=False),
        loss=SPARSE(from_logits=True),
    )
    assert HeldOut((X, LABELS), "loss")(model) == pytest.approx(noisy_nll(model, X, LABELS), rel=1e-5)
    clean = model.predict(X, verbose=0).argmax(-1)
    assert HeldOut((X, LABELS), "accuracy")(model) == pytest.approx(np.mean((clean + 1) % 3 == LABELS))


def test_the_loss_has_no_penalties():
    model = model_of(
        keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(5.0)), loss=SPARSE(from_logits=True)
    )
    total, accuracy = model.evaluate(X, LABELS, verbose=0)
    assert HeldOut((X, LABELS), "loss")(model) < total - 1
    assert HeldOut((X, LABELS), "accuracy")(model) == pytest.approx(accuracy)


def test_the_name_of_a_criterion_says_what_is_better():
    assert HeldOut((X, LABELS), keras.metrics.sparse_categorical_accuracy).better(0.9, 0.1)
    assert HeldOut((X, LABELS), keras.losses.sparse_categorical_crossentropy).better(0.1, 0.9)


class Foreign:
    """A data set whose tensors are of no library that the backend knows."""

    def __iter__(self):
        for start in range(0, 50, 20):
            yield Tensor(X[start : start + 20]), LABELS[start : start + 20]


class Tensor:
    def __init__(self, array):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def numpy(self):
        return self.array


def test_tensors_of_another_library_are_arrays():
    model = model_of(keras.layers.Dense(3), loss=SPARSE(from_logits=True))
    assert HeldOut(Foreign(), "loss")(model) == pytest.approx(HeldOut((X, LABELS), "loss")(model), rel=1e-5)


def test_a_loss_of_ones_own_and_a_sum_are_means_as_keras_calls_them():
    def own(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    for loss, scale in ((own, 1), (keras.losses.MeanSquaredError(reduction="sum"), 50)):
        model = model_of(keras.layers.Dense(1), loss=loss, metrics=())
        expected = model.evaluate(X, X[:, 0], batch_size=50, verbose=0) / scale
        assert HeldOut((X, X[:, 0]), "loss", batch_size=20)(model) == pytest.approx(expected, rel=1e-4)
    assert HeldOut((X, X[:, 0]), keras.losses.mean_squared_error)(model) == pytest.approx(expected, rel=1e-4)


def test_labels_of_no_class_are_scored_without_an_accuracy():
    for y, activation, loss in ((MANY, "sigmoid", BINARY()), (MANY, "softmax", ONE_HOT()), (X[:, :3], None, "mse")):
        model = model_of(keras.layers.Dense(3, activation), loss=loss, metrics=())
        loss, right = HeldOut((X, y), "loss").scores(model)
        assert right is None
        assert loss == pytest.approx(model.evaluate(X, y, verbose=0), rel=1e-5)
