"""Data sets for a trained model: their features are computed as they are read, in memory or in a file."""

import tracemalloc

import keras
import numpy as np
import pytest

import keras_het
from keras_het.training import cross_val_probabilities, networks
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
    files = [path.name for path in tmp_path.glob("*.npy")]
    assert files == (["features_of_x.npy"] if to_file else [])
    if to_file:
        features = keras_het.analysis.features(trained, X)
        np.testing.assert_allclose(np.load(tmp_path / files[0]), features, rtol=1e-5, atol=1e-6)


@pytest.fixture
def computed(monkeypatch):
    """The number of examples of each batch whose features are computed."""
    found, make = [], networks.features_by_batch

    def counting(model):
        predict = make(model)
        return lambda inputs: found.append(len(inputs)) or predict(inputs)

    monkeypatch.setattr(networks, "features_by_batch", counting)
    return found


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("data", [(X, Y), (Batches(),)], ids=["arrays", "data set"])
def test_a_resumed_call_computes_no_features_again(call, data, trained, computed, tmp_path):
    first = CALLS[call](trained, *data, resume_path=tmp_path)
    assert sum(computed) == len(X)
    computed.clear()
    np.testing.assert_array_equal(CALLS[call](trained, *data, resume_path=tmp_path), first)
    assert not computed


def features_in(folder, model, data):
    """The features of a data set, which go into a folder."""
    return Trainer(model, None, None, 128, "accuracy", 0, {}).read(data, None, path=folder).x


def test_features_that_were_interrupted_go_on_behind_the_last_whole_batch(trained, computed, tmp_path):
    class Interrupted(Batches):
        def __getitem__(self, index):
            if index == 2:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt) as caught:
        features_in(tmp_path, trained, Interrupted())
    assert "The features of 100 examples are kept in" in caught.value.__notes__[0]
    computed.clear()
    found = features_in(tmp_path, trained, Batches())
    assert sum(computed) == len(X) - 100
    np.testing.assert_array_equal(found, features_in(None, trained, Batches()))


def test_other_examples_and_another_model_have_features_of_their_own(trained, computed, tmp_path):
    before = features_in(tmp_path, trained, Batches())
    kept, changed = np.array(before), X.copy()
    changed[120] += 1
    computed.clear()
    found = features_in(tmp_path, trained, Batches(changed))
    assert sum(computed) == len(X) - 100
    np.testing.assert_array_equal(found, features_in(None, trained, Batches(changed)))
    np.testing.assert_array_equal(before, kept)  # a memory map of the file before
    other = make_model()
    other.fit(X, TRUE, epochs=1, verbose=0)
    computed.clear()
    np.testing.assert_array_equal(
        features_in(tmp_path, other, Batches(changed)), features_in(None, other, Batches(changed))
    )
    assert sum(computed) == 2 * len(X)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("features_of_x.npy", b""),
        ("features_of_x.npy", b"\x93NUMPY nothing"),
        ("features_of_x.checksums", b"one\ntwo words more"),
        ("features_of_x.checksums", b"\xff\xfe"),
    ],
)
def test_damaged_files_of_features_are_made_anew(name, content, trained, tmp_path):
    found = np.array(features_in(tmp_path, trained, Batches()))
    (tmp_path / name).write_bytes(content)
    np.testing.assert_array_equal(features_in(tmp_path, trained, Batches()), found)


def test_features_in_memory_say_behind_an_interruption_how_to_keep_them(trained):
    class Interrupted(Batches):
        def __getitem__(self, index):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        features_in(None, trained, Interrupted())
    assert "With a folder `resume_path`" in caught.value.__notes__[0]


def test_validation_data_and_the_report_are_of_features_too(trained, tmp_path):
    pytest.importorskip("jinja2")
    found = keras_het.choose(
        trained, Batches(), validation_data=Batches(X[:100], Y[:100]), candidates=[], resume_path=tmp_path, **FAST
    )
    names = ["features_of_validation_data.npy", "features_of_x.npy"]
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == names
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
        trainer.read(Pictures(), None, path=tmp_path)
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
