"""Predictions out of sample: no model has seen what it predicts, and a run that was interrupted goes on."""

import keras
import numpy as np
import pytest

from keras_het.layers import HeteroscedasticDense
from keras_het.training import clean_labels, cross_val_probabilities
from keras_het.training.folds import stratified_folds

pytestmark = pytest.mark.once

N = 30
Y = np.random.default_rng(0).permutation(np.arange(N) % 3)
X = np.stack([Y, np.arange(N)], axis=1).astype("float32")


SHORT = {"epochs": 1, "verbose": 0}
POINTS = 3.0 * np.eye(3, dtype="float32")[Y]  # which a few epochs tell apart
LEARNS = {"epochs": 10, "batch_size": 4, "verbose": 0}


class Memory(keras.Model):
    """Knows the examples it was fitted to; predicts a wrong class for those, else the class that the input says."""

    seen: list = []  # noqa: RUF012 of all models

    def __init__(self):
        super().__init__()
        self.compile(loss="sparse_categorical_crossentropy")

    def fit(self, x, y, sample_weight=None, **arguments):
        self.arguments, self.sample_weight = arguments, sample_weight
        np.testing.assert_array_equal(x[:, 0], y)
        self.known = {float(number) for number in x[:, 1]}
        Memory.seen.append(self)

    def predict_on_batch(self, x):
        x = np.asarray(x)
        return np.stack([np.eye(3)[(int(row[0]) + (row[1] in self.known)) % 3] for row in x])


@pytest.fixture(autouse=True)
def _forget():
    Memory.seen.clear()


def test_no_example_is_predicted_by_a_model_that_saw_it():
    p = cross_val_probabilities(Memory, X, Y, folds=4, epochs=7, verbose=0)
    assert p.shape == (N, 3)
    np.testing.assert_array_equal(p.argmax(1), Y)  # a model that saw it would be wrong
    assert len(Memory.seen) == 4
    assert all(model.arguments["epochs"] == 7 for model in Memory.seen)


@pytest.mark.smoke
def test_weights_go_with_their_examples():
    cross_val_probabilities(Memory, X, Y, folds=2, sample_weight=X[:, 1] * 2.0, epochs=1, verbose=0)
    for model in Memory.seen:
        assert set(model.sample_weight) == {2.0 * number for number in model.known}


def on_a_backbone(backbone):
    def make():
        model = keras.Sequential([*backbone, keras.layers.Dense(3, "softmax")])
        model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
        return model

    return make


class Subclassed(keras.Model):
    """Its variables are made in `fit`."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, keras.layers.Dense(3, "softmax")
        self.compile("adam", "sparse_categorical_crossentropy")

    def call(self, x):
        return self.head(self.layer(x))


@pytest.mark.parametrize("kind", ["built in fit", "built"])
@pytest.mark.parametrize("call", [cross_val_probabilities, clean_labels])
def test_models_that_share_what_they_train_are_refused(kind, call):
    """A shared layer has learned the labels of a fold when it is to predict them: those of chance are predicted."""
    shared = keras.layers.Dense(4)
    make = on_a_backbone([keras.Input((2,)), shared]) if kind == "built" else lambda: Subclassed(shared)
    with pytest.raises(ValueError, match=r"`make_model` must make new layers .*frozen layers alone.*the variable '"):
        call(make, X, Y, folds=3, **SHORT)


def test_models_may_share_frozen_layers():
    inputs, frozen = keras.Input((3,)), keras.layers.Dense(8, trainable=False)
    p = cross_val_probabilities(on_a_backbone([inputs, frozen]), POINTS, Y, folds=2, **LEARNS)
    twin = keras.layers.Dense(8, trainable=False)
    twin.build((None, 3))
    twin.set_weights(frozen.get_weights())
    again = cross_val_probabilities(on_a_backbone([inputs, twin]), POINTS, Y, folds=2, **LEARNS)
    np.testing.assert_array_equal(again, p)


def test_folds_are_stratified():
    labels = np.repeat([0, 1, 2], [11, 23, 7])
    for seed in range(5):
        fold_of = stratified_folds(labels, 4, seed)
        counts = np.array([np.bincount(labels[fold_of == fold], minlength=3) for fold in range(4)])
        assert np.ptp(counts, axis=0).max() <= 1
        assert np.ptp(counts.sum(axis=1)) <= 1
    assert (stratified_folds(labels, 4, 0) != fold_of).any()
    with pytest.warns(UserWarning, match=r"class 2 has only 7 examples for 9 folds, and 0 other classes too few"):
        stratified_folds(labels, 9, 0)


def wrong_loss():
    model = make_model()
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def make_model():
    model = keras.Sequential([keras.Input((3,)), HeteroscedasticDense(3, num_factors=1)])
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_an_interrupted_run_goes_on_to_the_same_end(tmp_path):
    made = []

    def until(count):
        made.append(0)
        if len(made) > count:
            raise KeyboardInterrupt
        return make_model()

    arguments = {"folds": 2, **LEARNS}
    whole = cross_val_probabilities(make_model, POINTS, Y, **arguments)
    arguments["resume_path"] = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt):
        cross_val_probabilities(lambda: until(2), POINTS, Y, **arguments)
    made.clear()
    np.testing.assert_array_equal(cross_val_probabilities(lambda: until(2), POINTS, Y, **arguments), whole)
    assert len(made) == 2  # one to compare it with the folder, and the fold that is missing
    with pytest.raises(
        ValueError,
        match=r"`resume_path` must be a folder of its own for other data or settings. .*fold_0.npz",
    ):
        cross_val_probabilities(make_model, POINTS, Y[::-1], **arguments)


def test_models_that_learned_nothing_are_refused():
    with pytest.raises(ValueError, match="must predict held-out labels better than the largest class does: train for"):
        cross_val_probabilities(make_model, 0.0 * POINTS, Y, folds=2, **SHORT)


class Holding(keras.callbacks.Callback):
    """A callback with something of any kind."""

    def __init__(self, value):
        super().__init__()
        self.value = value


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({0: 1.0}, {0: 2.0}),
        ({0: 1.0}, {1: 1.0}),
        ({"a": {"b": [1, 2]}}, {"a": {"c": [1, 2]}}),
        ([[1], [2]], [[1, 2], []]),
        (np.int64(1), np.int64(2)),
        (None, False),
    ],
    ids=["value", "key", "nested key", "nested list", "NumPy", "None"],
)
def test_folds_of_other_arguments_are_not_taken(first, second, tmp_path):
    arguments = {"folds": 2, "resume_path": tmp_path, **SHORT}
    cross_val_probabilities(Memory, X, Y, callbacks=[Holding(first)], **arguments)
    with pytest.raises(ValueError, match="`resume_path` must be a folder of its own"):
        cross_val_probabilities(Memory, X, Y, callbacks=[Holding(second)], **arguments)


def test_folds_of_equal_arguments_are_taken(tmp_path):
    arguments = {"folds": 2, "resume_path": tmp_path, "verbose": 0}
    cross_val_probabilities(Memory, X, Y, callbacks=[Holding({0: 1.0, 1: 2.0})], epochs=2, **arguments)
    cross_val_probabilities(Memory, X, Y, callbacks=[Holding({1: 2.0, 0: 1.0})], epochs=np.int32(2), **arguments)
    assert len(Memory.seen) == 2


def renamed(stored):
    return {"p": stored["probabilities"], "checksum": stored["checksum"]}


def changed_to(make):
    return lambda stored: {**stored, "probabilities": make(stored["probabilities"])}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (None, "`resume_path` must be a .npz file that is whole."),
        (renamed, "`resume_path` must have probabilities and checksum."),
        (changed_to(lambda p: p.astype(object)), "`probabilities` must hold numbers and texts, and no Python objects"),
        (changed_to(lambda p: p[:-1]), "`probabilities` must have shape (15, 3) and be float32. Received: shape (1"),
        (changed_to(lambda p: p[0]), "`probabilities` must have shape (15, 3) and be float32. Received: shape (3"),
        (
            changed_to(lambda p: p.astype(int)),
            "`probabilities` must have shape (15, 3) and be float32. Received: shape (15, 3), int64",
        ),
        (changed_to(lambda p: p * np.float32(2)), "`probabilities` must have rows that sum to one."),
        (changed_to(lambda p: p * np.float32(np.nan)), "`probabilities` must not be negative. Received: nan"),
        (changed_to(lambda p: p - np.float32(1)), "`probabilities` must not be negative. Received: -1"),
    ],
    ids=["truncated", "names", "objects", "rows", "axes", "dtype", "sum", "nan", "negative"],
)
def test_files_that_are_damaged_are_named(change, text, tmp_path):
    cross_val_probabilities(Memory, X, Y, folds=2, resume_path=tmp_path, epochs=1, verbose=0)
    file = tmp_path / "fold_0.npz"
    if change is None:
        file.write_bytes(file.read_bytes()[:-50])
    else:
        with np.load(file) as stored:
            content = change(dict(stored))
        np.savez(file, **content)
    with pytest.raises(ValueError) as error:
        cross_val_probabilities(Memory, X, Y, folds=2, resume_path=tmp_path, epochs=1, verbose=0)
    assert (
        f"`resume_path` must hold folds as they were written: delete {file}, and it is trained anew. Received: "
        in str(error.value)
    )
    assert text in str(error.value)


def test_inputs_may_be_a_dict_and_the_bar_is_shown(capsys):
    inputs = {name: keras.Input((1,), name=name) for name in "abc"}

    def make():
        model = keras.Model(inputs, keras.layers.Dense(3, "softmax")(keras.layers.Concatenate()(list(inputs.values()))))
        model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
        return model

    x = {name: POINTS[:, [column]] for column, name in enumerate("abc")}
    p = cross_val_probabilities(make, x, Y, folds=2, **LEARNS | {"verbose": 1})
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    count = 2 * LEARNS["epochs"]
    assert f"{count}/{count}" in capsys.readouterr().out


def test_models_that_cannot_be_right_are_refused_before_they_are_trained():
    shared = make_model()
    for make, y, message in (
        (wrong_loss, Y, "`loss` must take log-probabilities"),
        (make_model, Y + (Y == 2), r"`make_model` must make models of the 4 classes of `y`. Received: one of 3"),
        (lambda: shared, Y, "`make_model` must make new layers and a new optimizer at every call"),
    ):
        with pytest.raises(ValueError, match=message):
            cross_val_probabilities(make, POINTS, y, folds=2, epochs=1, verbose=0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"make_model": 3},
            "`make_model` must be a function that makes a new compiled model, a trained model, or None",
        ),
        ({"y": Y[:9]}, "`y` must have a label for each of the 30 examples. Received: 9"),
        ({"y": Y - 1}, "no label: leave such examples out (keep those of y != -1)"),
        ({"folds": 1}, "`folds` must be an integer in [2, 30]. Received: folds=1"),
        ({"sample_weight": np.ones(3)}, "`sample_weight` must have shape (30,). Received: shape (3,)"),
        ({"shuffle": False}, "`fit_arguments` must be arguments of `fit`"),
        (
            {"make_model": lambda: keras.Sequential([keras.layers.Softmax()])},
            "`make_model` must make compiled models. Received: a Sequential",
        ),
    ],
    ids=["model", "number", "negative", "folds", "weights", "shuffle", "compiled"],
)
def test_wrong_arguments(changed, message):
    with pytest.raises(ValueError) as error:
        cross_val_probabilities(**{"make_model": Memory, "x": X, "y": Y, "folds": 2, **SHORT, **changed})
    assert message in str(error.value)
