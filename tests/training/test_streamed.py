"""Data sets for a trained model: their features are computed as they are read, in memory or in a file."""

import tracemalloc
import warnings

import keras
import numpy as np
import pytest

import keras_het
from keras_het.training import cross_val_probabilities, streamed
from keras_het.training.fit import Trainer
from tests.training.tasks import SHORT_TRAININGS
from tests.training.test_contract import ONCE, TRUE, X, Y, make_model

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

FAST = {"optimizer": keras.optimizers.Adam(0.1), **ONCE}


class Batches(keras.utils.PyDataset):
    """The examples in batches of 50, the last one smaller, with weights or without."""

    def __init__(self, x=X, y=Y, weights=None):
        super().__init__()
        self.arrays = [array for array in (x, y, weights) if array is not None]

    def __len__(self):
        return -(-len(self.arrays[0]) // 50)

    def __getitem__(self, index):
        return tuple(array[50 * index : 50 * index + 50] for array in self.arrays)


@pytest.fixture(scope="module")
def trained():
    model = make_model()
    model.fit(X, TRUE, epochs=5, verbose=0)
    return model


CALLS = {
    "choose": lambda *data, **given: keras_het.choose(*data, **FAST, candidates=[], **given).probabilities,
    "clean_labels": lambda *data, **given: keras_het.clean_labels(*data, **FAST, folds=2, **given).probabilities,
    "folds": lambda *data, **given: cross_val_probabilities(*data, **FAST, folds=2, **given),
}


@pytest.mark.parametrize(("call", "to_file"), [("folds", False), *((call, True) for call in CALLS)])
def test_a_data_set_gives_what_its_arrays_give(call, to_file, trained, tmp_path):
    given = {"resume_path": tmp_path} if to_file else {}
    found, expected = CALLS[call](trained, Batches(), **given), CALLS[call](trained, X, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    files = [path.name.split("-")[0] for path in tmp_path.glob("*.float32")]
    assert files == (["features_of_x"] if to_file else [])


@pytest.fixture
def computed(monkeypatch):
    """The number of examples of each batch whose features are computed."""
    found, predict = [], streamed._Store.predict
    monkeypatch.setattr(streamed._Store, "predict", lambda store, x: found.append(len(x)) or predict(store, x))
    return found


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("data", [(X, Y), (Batches(),)], ids=["arrays", "data set"])
def test_a_resumed_call_computes_the_features_of_the_first_batch_alone(call, data, trained, computed, tmp_path):
    first = CALLS[call](trained, *data, resume_path=tmp_path)
    assert sum(computed) == len(X)
    del computed[1:]
    again = CALLS[call](trained, *data, resume_path=tmp_path)
    np.testing.assert_array_equal(again, first)
    assert computed == computed[:1] * 2


def features_in(folder, model, data):
    """The features of a data set, which go into a folder."""
    return Trainer(model, None, None, 128, "accuracy", 0, {}).read(data, None, path=folder).x


class Interrupted(Batches):
    """It is interrupted, by Ctrl-C or an error, at a batch."""

    def __init__(self, stop, error=KeyboardInterrupt):
        super().__init__()
        self.stop, self.error = stop, error

    def __getitem__(self, index):
        if index == self.stop:
            raise self.error
        return super().__getitem__(index)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_features_that_were_interrupted_go_on_behind_the_last_whole_batch(error, trained, computed, tmp_path):
    for stop, count in ((2, 100), (3, 100)):  # the second call has the first batch again, and a third one
        with pytest.raises(error) as caught:
            features_in(tmp_path, trained, Interrupted(stop, error))
        assert sum(computed) == count
        computed.clear()
    with pytest.raises(error):  # while those of before are read
        features_in(tmp_path, trained, Interrupted(1, error))
    if error is KeyboardInterrupt:
        assert "The features of 150 examples are kept in" in caught.value.__notes__[0]
    computed.clear()
    found = features_in(tmp_path, trained, Batches())
    assert sum(computed) == len(X) - 100
    np.testing.assert_array_equal(found, features_in(None, trained, Batches()))
    assert len(list(tmp_path.glob("*.float32"))) == 1


def test_other_examples_have_features_of_their_own(trained, computed, tmp_path):
    before = features_in(tmp_path, trained, Batches())
    kept, changed = np.array(before), X.copy()
    changed[120] += 1
    computed.clear()
    found = features_in(tmp_path, trained, Batches(changed))
    assert computed == [50, 50]  # the first one, which is tried, and the one that is another
    np.testing.assert_array_equal(found, features_in(None, trained, Batches(changed)))
    np.testing.assert_array_equal(before, kept)  # a memory map of the file before
    computed.clear()
    np.testing.assert_array_equal(features_in(tmp_path, trained, Batches()), kept)
    assert computed == [50]


def test_two_calls_at_once_in_a_folder_do_not_meet(trained, tmp_path):
    class Nested(Batches):
        def __getitem__(self, index):
            if index == 3:
                features_in(tmp_path, trained, Batches(X + 1))
            return super().__getitem__(index)

    found = features_in(tmp_path, trained, Nested())
    np.testing.assert_array_equal(found, features_in(None, trained, Batches()))


def graph(scale=1.0, swapped=False, policy="float32", activation=keras.ops.tanh):
    """A model of the same weights and layers, which does something else by its arguments."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input(X.shape[1:])
    first = keras.layers.Dense(5, activation, dtype=policy)(inputs / scale)
    second = keras.layers.Dense(5)(first)
    joined = keras.layers.Subtract()([second, first] if swapped else [first, second])
    return keras.Model(inputs, keras.layers.Dense(3)(joined))


def own(x):
    return keras.ops.cos(x)


@pytest.mark.filterwarnings("ignore:`make_model` is a model that looks untrained")
@pytest.mark.parametrize(
    "change",
    [{"scale": 255.0}, {"swapped": True}, {"policy": "float16"}, {"activation": own}],
    ids=lambda change: next(iter(change)),
)
def test_a_model_that_does_something_else_has_features_of_its_own(change, computed, tmp_path):
    features_in(tmp_path, graph(), Batches())
    computed.clear()
    features_in(tmp_path, graph(), Batches())
    assert computed == [50]  # made anew, the same
    computed.clear()
    found = features_in(tmp_path, graph(**change), Batches())
    assert sum(computed) == len(X)
    np.testing.assert_array_equal(found, features_in(None, graph(**change), Batches()))


def test_a_change_that_neither_config_nor_weights_show_is_seen_in_the_first_batch(
    trained, computed, tmp_path, monkeypatch
):
    features_in(tmp_path, trained, Batches())
    predict = streamed._Store.predict
    monkeypatch.setattr(streamed._Store, "predict", lambda store, x: predict(store, x + 1))
    computed.clear()
    np.testing.assert_array_equal(features_in(tmp_path, trained, Batches()), features_in(None, trained, Batches()))
    assert sum(computed) == 2 * len(X)


def cut(size):
    return lambda content: content[:size]


@pytest.mark.parametrize(
    ("suffix", "damage", "count"),
    [
        ("float32", cut(0), 240),
        ("float32", cut(-1), 40),
        ("float32", lambda content: content[:-40] + bytes(40), 40),
        ("txt", cut(0), 240),
        *(("txt", cut(-size), 40) for size in (1, 2, 8, 12, 75, 78)),
        ("txt", lambda content: b"9" + content, 50),
        ("txt", lambda content: b"one\ntwo words more", 240),
        ("txt", lambda content: b"\xff\xfe", 240),
    ],
)
def test_damaged_files_are_made_anew_as_far_as_they_are_damaged(suffix, damage, count, trained, computed, tmp_path):
    found = np.array(features_in(tmp_path, trained, Batches()))
    (path,) = tmp_path.glob(f"*.{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    computed.clear()
    np.testing.assert_array_equal(features_in(tmp_path, trained, Batches()), found)
    assert sum(computed) == count + 50 * (count < 240)


def test_features_in_memory_say_behind_an_interruption_how_to_keep_them(trained):
    with pytest.raises(KeyboardInterrupt) as caught:
        features_in(None, trained, Interrupted(0))
    assert "With a folder `resume_path`" in caught.value.__notes__[0]


@pytest.mark.parametrize("path", [None, "folder"])
def test_the_warning_of_an_untrained_model_names_the_line_of_the_caller(path, tmp_path):
    for data in ((X, Y), (Batches(),)):
        with warnings.catch_warnings(record=True, action="always") as caught:
            keras_het.clean_labels(graph(), *data, resume_path=path and tmp_path, verbose=0)
        assert [warning.filename for warning in caught if "untrained" in str(warning.message)] == [__file__]


def test_validation_data_and_the_report_are_of_features_too(trained, tmp_path):
    pytest.importorskip("jinja2")
    found = keras_het.choose(
        trained, Batches(), validation_data=Batches(X[:100], Y[:100]), candidates=[], resume_path=tmp_path, **FAST
    )
    names = ["features_of_validation_data", "features_of_x"]
    assert sorted(path.name.split("-")[0] for path in tmp_path.glob("*.float32")) == names
    assert found.report(tmp_path / "page").exists()
    assert np.mean(found.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.6


def test_weights_and_labels_of_a_data_set_stay_with_their_examples(trained, tmp_path):
    weights = np.linspace(0.1, 1, len(X)).astype("float32")
    for path in (None, tmp_path):
        read = Trainer(trained, None, None, 128, "accuracy", 0, {}).read(Batches(weights=weights), None, path=path)
        np.testing.assert_array_equal(read.y, Y)
        np.testing.assert_allclose(read.sample_weight, weights)
        assert isinstance(read.x, np.memmap) == (path is not None)


def test_the_examples_are_never_in_memory_together(tmp_path):
    class Pictures(keras.utils.PyDataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            return np.full((20, 64, 64, 3), index, "uint8"), np.arange(20) % 2

    inputs = keras.Input((64, 64, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(inputs)
    wide = keras.layers.Dense(2048, "tanh", bias_initializer="glorot_uniform")(pooled)
    model = keras.Model(inputs, keras.layers.Dense(2)(wide))
    trainer = Trainer(model, None, None, 128, "accuracy", 0, {})
    trainer.read(Pictures(), None, path=tmp_path)  # imports, and what a backend compiles
    tracemalloc.start()
    try:
        trainer.read(Pictures(), None, path=tmp_path / "measured")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * 20 * min(64 * 64 * 3, 2048 * 4) / 3, f"{peak} bytes"


def test_features_that_are_no_vectors_are_refused():
    inputs = keras.Input((4, 2))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    data = Batches(np.zeros((50, 4, 2), "float32"), np.arange(50) % 2)
    with pytest.raises(ValueError, match=r"`make_model` must make models whose last layer takes features \(N, D\)"):
        Trainer(model, None, None, 128, "accuracy", 0, {}).read(data, None)
