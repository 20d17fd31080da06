"""A call goes on where it was interrupted, to the bit, and refuses a folder of something else."""

import json
import re
import shutil

import keras
import numpy as np
import pytest

from keras_het.labels import choose, clean
from keras_het.labels.methods import EarlyStopping, ForwardCorrection, Heteroscedastic
from keras_het.labels.training.stored import Folder, describe_model
from keras_het.labels.training.trainer import _file_name, check_names
from tests.common import StopError, assert_same_arrays, compiled
from tests.labels.tasks import SHORT, SHORT_TRAININGS, Cheat, Constant, Named, X, Y, make_model, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

PLAIN = "early_stopping_0"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    short(Constant(), resume_path=(path := tmp_path_factory.mktemp("finished")))
    return path


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def stop_after(count):
    """Arguments of a call that stops before a training, or goes on for None, and the list of its trainings."""
    calls = []

    class Interrupting(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            calls.append(1)
            if count is not None and len(calls) > count:
                raise StopError

    return {"callbacks": [Interrupting()], "folds": 2}, calls


def assert_equal_results(one, other):
    assert_same_arrays(one.model.weights, other.model.weights)
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    assert one.reason == other.reason
    for trial, same in zip(getattr(one, "trials", []), getattr(other, "trials", []), strict=True):
        assert (trial.name, trial.epoch) == (same.name, same.epoch)
        np.testing.assert_array_equal(trial.score, same.score)


def test_an_interrupted_run_goes_on_to_the_bit(tmp_path):
    arguments, _ = stop_after(3)
    with pytest.raises(StopError):
        short(Cheat(), Constant(), resume_path=tmp_path / "run", **arguments)
    kept = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "run").glob("*.npz"))}
    assert len(kept) == 3
    arguments, calls = stop_after(None)
    resumed = short(Cheat(), Constant(), resume_path=tmp_path / "run", **arguments)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(calls) == 3 * 2 + 1 - 3
    assert_equal_results(resumed, short(Cheat(), Constant(), **stop_after(None)[0]))
    assert_equal_results(resumed, short(Cheat(), Constant(), **stop_after(None)[0]))  # and so is a run repeated


def test_cleaning_goes_on_too(tmp_path):
    arguments = {"epochs": 3, "batch_size": 32, "verbose": 0}
    with pytest.raises(StopError):
        clean(make_model, X, Y, resume_path=tmp_path, **arguments, **stop_after(1)[0])
    more, calls = stop_after(None)
    resumed = clean(make_model, X, Y, resume_path=tmp_path, **arguments, **more)
    assert len(calls) == 2 - 1 + 2 * 3 + 1  # of the folds, of the test without issues, and the final one
    assert_equal_results(resumed, clean(make_model, X, Y, **arguments, **stop_after(None)[0]))


def test_a_callback_may_stop_a_training(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    one = short(Constant(), epochs=4, callbacks=[Stop()], resume_path=tmp_path)
    assert_equal_results(short(Constant(), epochs=4, callbacks=[Stop()], resume_path=tmp_path), one)
    assert np.load(tmp_path / f"{PLAIN}.npz")["scores"].shape == (2, 80)
    assert all(trial.epoch <= 2 for trial in one.trials)  # until now 4: epochs that were never trained counted


@pytest.mark.parametrize(("argument", "other", "text"), [
    ("y", np.roll(Y, 1), "labels '"),
    ("sample_weight", np.full(240, 2.0), "labels '"),
    ("methods", [Named("other")], "methods [{'class': 'EarlyStopping'}, {'class': 'Constant'}] in the folder, "),
    ("methods", [Heteroscedastic(3)], "'num_factors': 3"),
    ("methods", [ForwardCorrection(np.eye(3))], "'transition': '"),
    ("x", X + np.eye(240, 6, dtype="float32"), "x '"),
])  # fmt: skip
def test_a_folder_of_another_call_is_refused_in_plain_words(argument, other, text, folder):
    given = {"make_model": make_model, "x": X, "y": Y, "methods": [EarlyStopping(), Constant()], **SHORT}
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match="`resume_path` must be a folder of the same call, or a new folder") as error:
        choose(**{**given, argument: other}, resume_path=folder)
    assert text in str(error.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept
    (folder / "settings.json").write_text("[")
    with pytest.raises(ValueError, match=r"`resume_path` must be a folder with a valid settings\.json"):
        choose(**given, resume_path=folder)


def other(activation="relu", rate=0.1, loss="sparse_categorical_crossentropy"):
    layers = keras.layers.Dense(8, activation), keras.layers.Dense(3, "softmax")
    return compiled(keras.Sequential([keras.Input((6,)), *layers]), keras.optimizers.Adam(rate), loss)


@pytest.mark.parametrize(("change", "text"), [
    ({"activation": "tanh"}, "'layers': '"),
    ({"rate": 0.2}, "'learning_rate': 0.2"),
    ({"loss": keras.losses.SparseCategoricalCrossentropy()}, "'from_logits'"),
])  # fmt: skip
def test_a_function_that_makes_another_model_is_refused(change, text, folder):
    with pytest.raises(ValueError, match="must be a folder of the same call") as error:
        short(Constant(), make_model=lambda: other(**change), resume_path=folder)
    assert text in str(error.value)


def test_the_same_model_of_another_function_resumes_and_each_of_a_list_is_compared(folder):
    """The layers of the other function have other names."""
    kept = (folder / f"{PLAIN}.npz").stat().st_mtime_ns
    short(Constant(), make_model=lambda: make_model(), resume_path=folder)
    assert (folder / f"{PLAIN}.npz").stat().st_mtime_ns == kept
    given = {"x": X, "y": Y, **SHORT, "resume_path": folder / "list"}
    choose([make_model, lambda: make_model()], **given)
    with pytest.raises(ValueError, match="'layers': '"):
        choose([make_model, lambda: other(activation="tanh")], **given)


def wired(is_swapped):
    x = keras.Input((4,))
    one, two = keras.layers.Dense(3)(x), keras.layers.Lambda(lambda values: values)(keras.layers.Dense(3)(x))
    outputs = keras.layers.Subtract()([two, one] if is_swapped else [one, two])
    return compiled(keras.Model(x, outputs), "adam", "mse")


class Own(keras.Model):
    def __init__(self, **arguments):
        super().__init__()
        self.head = keras.layers.Dense(len(arguments) + 2)

    def get_config(self):
        raise NotImplementedError


def test_models_with_other_connections_or_without_a_config_are_told_apart():
    one, same, other = (describe_model(wired(is_swapped)) for is_swapped in (False, False, True))
    assert one == same != other
    one, same, other = (describe_model(compiled(model, "adam", "mse")) for model in (Own(), Own(), Own(units=3)))
    assert one == same != other


def test_a_call_says_what_it_continues_and_compares(tmp_path, capsys):
    arguments = {"resume_path": tmp_path, "epochs": 1, "folds": 2, "verbose": 1}
    short(Constant(), **arguments)
    assert "Resuming" not in capsys.readouterr().out
    (tmp_path / "constant_1.npz").unlink()
    short(Constant(), **arguments)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Resuming"))
    assert line.startswith(f"Resuming after 3 trainings, from {tmp_path}. These settings are the same: ")
    names = ("examples", "classes", "labels", "seed", "folds", "methods", "epochs", "models", "x")
    assert [name for name in names if f" {name}" not in line] == []
    assert line.endswith("The code of your functions and classes was not compared.")


def test_long_names_have_short_files_of_their_own(tmp_path):
    names = ["é" * 300 + end for end in ("a", "b")]
    check_names([Named(name) for name in names])
    folder, files = Folder(tmp_path, {}), [_file_name(name) for name in names]
    for number, file in enumerate(files):
        folder.write(file, scores=np.ones((1, 2), bool), probabilities=np.eye(2), seconds=float(number))
    assert [float(folder.read(file, 1, 2, 2)["seconds"]) for file in files] == [0.0, 1.0]
    assert max(len(path.name.encode()) for path in tmp_path.iterdir()) < 100


def with_probabilities(change):
    def apply(file):
        with np.load(file) as stored:
            arrays = dict(stored) | {"probabilities": change(stored["probabilities"])}
        np.savez(file, **arrays)

    return apply


DAMAGES = {
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-50]), "must be an undamaged .npz file"),
    "of another training": (lambda file: file.write_bytes(file.with_name("constant_0.npz").read_bytes()),
        "Received: the file of another training"),
    "other names": (lambda file: np.savez(file, p=np.ones(3)), "must have scores and probabilities and seconds"),
    "other rows": (with_probabilities(lambda p: p[1:]), "Received: probabilities of shape (79, 3), float32"),
    "texts": (with_probabilities(lambda p: p.astype(str)), "Received: probabilities of shape (80, 3), <U"),
    "nan": (with_probabilities(lambda p: p * np.float32(np.nan)), "Received: probabilities of shape (80, 3), float32"),
    "sums": (with_probabilities(lambda p: 2 * p), "Received: probabilities that do not sum to 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_files_are_named(case, folder):
    damage, text = DAMAGES[case]
    file = folder / f"{PLAIN}.npz"
    damage(file)
    with pytest.raises(ValueError, match=re.escape(f"Delete {file} to train this fold again")) as error:
        short(Constant(), resume_path=folder)
    assert text in str(error.value)
    if case == "truncated":
        file.unlink()
        short(Constant(), resume_path=folder)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """Also beside another process, because no temporary file has the same path as another."""
    written, savez = [], np.savez

    def save(file, **arrays):
        written.append(file)
        assert sorted(arrays) == ["name", "seconds"]  # NumPy 2.0 stores every other argument as an array
        savez(file, **arrays)
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("keras_het.labels.training.stored.np.savez", save)
    folder = Folder(tmp_path, {"seed": 0})
    for seconds in (1.0, 2.0):
        folder.write(PLAIN, seconds=seconds)
    with pytest.raises(KeyboardInterrupt):
        folder.write(PLAIN, seconds=3.0)
    assert len({*written}) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PLAIN}.npz", "settings.json"]
    assert np.load(tmp_path / f"{PLAIN}.npz")["seconds"] == 2.0
    assert json.loads((tmp_path / "settings.json").read_text()) == {"seed": 0}


def test_ctrl_c_says_what_is_kept(tmp_path):
    def interrupting():
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(1)
        return make_model()

    kept = f"{tmp_path / 'new'} stores 2 finished trainings. Repeat the call to resume."
    lost = "Nothing is stored. With a folder `resume_path` the same call would resume after finished trainings."
    for folder, note in ((tmp_path / "new", kept), (None, lost)):
        made = [1] * (folder is None)  # else the first model is described in the folder
        with pytest.raises(KeyboardInterrupt) as caught:
            short(make_model=interrupting, resume_path=folder)
        assert caught.value.__notes__ == [note]
