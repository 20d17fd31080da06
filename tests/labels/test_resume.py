"""A call goes on where it was interrupted, to the bit, and refuses a folder of something else."""

import functools
import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_het.labels import choose, clean
from keras_het.labels.methods import ForwardCorrection, Heteroscedastic
from keras_het.labels.stored import Folder, describe
from keras_het.labels.training import _file_name, check_names
from tests.common import StopError, assert_same_arrays
from tests.labels.tasks import SHORT, SHORT_TRAININGS, Cheat, Constant, Named, X, Y, make_model, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

PLAIN = "early_stopping_0"


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
    for trial, same in zip(one.trials, other.trials, strict=True):
        assert (trial.name, trial.epoch) == (same.name, same.epoch)
        np.testing.assert_array_equal(trial.score, same.score)


@pytest.mark.smoke
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
    assert len(calls) == 2
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
    ("methods", [Named("other")], "methods [{'class': 'EarlyStopping'}] in the folder, "),
        ("methods", [Heteroscedastic(3)], "'num_factors': 3"),
        ("methods", [ForwardCorrection(np.eye(3))], "'transition': '"),
        ("steps_per_epoch", 2, "steps_per_epoch None in the folder, 2 now"),
    ("epochs", 4, "epochs 3 in the folder, 4 now"),
    ("folds", 4, "folds 3 in the folder, 4 now"),
    ("x", X + np.eye(240, 6, dtype="float32"), "x '"),
    ("seed", 1, "seed 0 in the folder, 1 now"),
    ("criterion", "loss", "criterion 'accuracy' in the folder, 'loss' now"),
    ("batch_size", 16, "batch_size 32 in the folder, 16 now"),
])  # fmt: skip
def test_a_folder_of_another_call_is_refused_in_plain_words(argument, other, text, tmp_path):
    given = {"make_model": make_model, "x": X, "y": Y, "methods": [], **SHORT, "resume_path": tmp_path}
    choose(**given)
    kept = (tmp_path / f"{PLAIN}.npz").stat().st_mtime_ns
    with pytest.raises(ValueError, match="`resume_path` must be a folder of the same call, or a new folder") as error:
        choose(**{**given, argument: other})
    assert text in str(error.value)
    choose(**given)
    assert (tmp_path / f"{PLAIN}.npz").stat().st_mtime_ns == kept
    (tmp_path / "settings.json").write_text("[")
    with pytest.raises(ValueError, match=r"`resume_path` must be a folder with a valid settings\.json"):
        choose(**given)


def test_features_with_another_optimizer_are_refused(tmp_path):
    given = {"make_model": None, "x": X, "y": Y, "methods": [], "resume_path": tmp_path}
    given |= {"epochs": 2, "folds": 2, "verbose": 0}
    for _ in range(2):  # of another name, which Keras counts
        choose(**given, optimizer=keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match=r"'SGD'.* in the folder, .*'Adam'"):
        choose(**given, optimizer=keras.optimizers.Adam(0.1))
    with pytest.raises(ValueError, match=r"'learning_rate': 0\.1.* in the folder, .*'learning_rate': 0\.2"):
        choose(**given, optimizer=keras.optimizers.SGD(0.2))


class Shared:
    """An attribute of a method: an object that refers to itself, with a function."""

    def __init__(self, function):
        self.function, self.own = function, self


CODE = """
import enum
class Kind(enum.Enum):
    FIRST = {kind}
class Loss:
    power = {power}
table = {table}
def helper():
    return {scale} * table[0]
def make(factor):
    class Own({base}):
        strength = {strength}
        weight = property(lambda self: {weight})
        def loss(self, data, default={default}):
            return (lambda: helper() ** Loss.power)() or (Kind.FIRST, factor, super().loss(data))
    return Own("own")
own = make({factor})
"""
VALUES = {
    "kind": "1", "power": "1", "table": "[1.0, {'a': 2.0}]", "scale": "1.0", "base": "Named", "strength": "2.0",
    "weight": "1.0", "default": "2", "factor": "1.0",
}  # fmt: skip
OTHERS = {
    "a member of an enumeration": {"kind": "2"}, "an attribute of another class": {"power": "2"},
    "a list": {"table": "[1.0, {'a': 3.0}]"}, "a helper function": {"scale": "2.0"}, "a base class": {"base": "Other"},
    "a class attribute": {"strength": "3.0"}, "an array": {"strength": "np.arange(3)"}, "a property": {"weight": "2.0"},
    "a default": {"default": "3"}, "a variable of a closure": {"factor": "1.5"},
}  # fmt: skip


class Other(Named):
    """Another base class."""


def described_method(file, values):
    """The description of a method of a module; in a cell of a notebook, for no file, there is no source to read."""
    code = CODE.format(**VALUES | values)
    if file:
        file.write_text(code)
    names = {"Named": Named, "Other": Other, "np": np, "__name__": "__main__"}
    exec(compile(code, file or "<cell>", "exec"), names)
    return json.dumps(describe(names["own"]))


@pytest.mark.parametrize("is_notebook", [False, True])
def test_methods_that_differ_in_anything_that_they_use_are_told_apart(is_notebook, tmp_path):
    files = [None if is_notebook else tmp_path / f"{number}.py" for number in range(len(OTHERS) + 2)]
    one, same, *others = (described_method(*each) for each in zip(files, [{}, {}, *OTHERS.values()], strict=True))
    assert one == same
    assert len({one, *others}) == len(OTHERS) + 1, dict(zip(OTHERS, others, strict=True))


def test_a_variable_that_has_no_value_yet_is_described():
    class Own(Named):
        def loss(self, data):
            return later

    before, later = describe(Own("own")), 1
    assert before != describe(Own("own"))


@pytest.mark.parametrize(("one", "other"), [
    (lambda x: x + 1, lambda x: x + 2),
    (functools.partial(np.add, 1), functools.partial(np.add, 2)),
    (keras.losses.CategoricalFocalCrossentropy(gamma=1.0), keras.losses.CategoricalFocalCrossentropy(gamma=2.0)),
    (keras.ops.ones(3), keras.ops.zeros(3)),
    (np.float32(1), np.float32(2)),
    ({1, 2}, {1, 3}),
    (b"one", b"two"),
    (Named("a").head, Named("b").head),
])  # fmt: skip
def test_attributes_that_differ_are_told_apart(one, other):
    descriptions = [json.dumps(describe(Shared(value))) for value in (one, other, one)]
    assert descriptions[0] == descriptions[2] != descriptions[1]


def test_a_call_says_what_it_continues_and_compares(tmp_path, capsys):
    arguments = {"resume_path": tmp_path, "epochs": 1, "folds": 2, "verbose": 1}
    short(Constant(), **arguments)
    assert "Resuming" not in capsys.readouterr().out
    (tmp_path / "constant_1.npz").unlink()
    short(Constant(), **arguments)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Resuming"))
    assert line.startswith(f"Resuming after 3 of 4 trainings of folds, from {tmp_path}. These settings are the same: ")
    assert all(
        f" {name}," in line
        for name in ("examples", "classes", "labels", "seed", "folds", "methods", "epochs", "optimizer")
    )
    assert line.endswith("The code of the model, its layers and callbacks was not compared.")


def test_a_folder_that_another_process_uses_is_refused_until_that_process_ends(tmp_path):
    Folder(tmp_path, {"seed": 0})
    code = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, tmp_path / "lock.sqlite"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        text = "`resume_path` must be a folder of one call at a time"
        with pytest.raises(ValueError, match=text), Folder(tmp_path, {"seed": 0}).interruptible():
            pass
        process.kill()
    folder = Folder(tmp_path, {"seed": 0})
    with folder.interruptible(), pytest.raises(ValueError, match="which another call uses"), folder.locked():
        pass
    with folder.locked():
        pass


@pytest.mark.parametrize("make", [lambda file: file.mkdir(), lambda file: file.write_bytes(b"no database" * 99)])
def test_a_folder_that_cannot_be_locked_is_warned_of(make, tmp_path):
    make(tmp_path / "lock.sqlite")
    with pytest.warns(UserWarning, match="cannot be locked"), Folder(tmp_path, {"seed": 0}).locked():
        pass
    with Folder(None, {}).locked():
        pass


def test_long_names_have_short_files_of_their_own(tmp_path):
    names = ["é" * 300 + end for end in ("a", "b")]
    check_names([Named(name) for name in names])
    folder, files = Folder(tmp_path, {}), [_file_name(name) for name in names]
    for number, file in enumerate(files):
        folder.write(file, scores=np.ones((1, 2), bool), probabilities=np.eye(2), seconds=float(number))
    assert [float(folder.read(file, 1, 2, 2)["seconds"]) for file in files] == [0.0, 1.0]
    assert max(len(path.name.encode()) for path in tmp_path.iterdir()) < 100


def damaged(change):

    def apply(file):
        with np.load(file) as stored:
            arrays = change(dict(stored))
        np.savez(file, **arrays)

    return apply


def with_probabilities(change):
    return damaged(lambda stored: stored | {"probabilities": change(stored["probabilities"])})


DAMAGES = {
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-50]), "must be an undamaged .npz file"),
    "of another training": (lambda file: file.write_bytes(file.with_name("constant_0.npz").read_bytes()),
        "Received: the file of another training"),
    "other names": (damaged(lambda stored: {"p": stored["scores"]}), "must have scores and probabilities and seconds"),
    "other rows": (with_probabilities(lambda p: p[1:]), "Received: probabilities of shape (79, 3), float32"),
    "texts": (with_probabilities(lambda p: p.astype(str)), "Received: probabilities of shape (80, 3), <U"),
    "nan": (with_probabilities(lambda p: p * np.float32(np.nan)), "Received: probabilities of shape (80, 3), float32"),
    "sums": (with_probabilities(lambda p: 2 * p), "Received: probabilities that do not sum to 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_files_are_named(case, tmp_path):
    damage, text = DAMAGES[case]
    short(Constant(), resume_path=tmp_path)
    file = tmp_path / f"{PLAIN}.npz"
    damage(file)
    with pytest.raises(ValueError, match=re.escape(f"Delete {file} to train this fold again")) as error:
        short(Constant(), resume_path=tmp_path)
    assert text in str(error.value)
    file.unlink()
    short(Constant(), resume_path=tmp_path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    written, savez = [], np.savez

    def save(file, **arrays):
        written.append(file.name)
        assert sorted(arrays) == ["name", "seconds"]  # NumPy 2.0 stores every other argument as an array
        savez(file, **arrays)

    monkeypatch.setattr("keras_het.labels.stored.np.savez", save)
    Folder(tmp_path, {"seed": 0}).write(PLAIN, seconds=1.0)
    assert written == [f"{PLAIN}.unfinished.npz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PLAIN}.npz", "settings.json"]
    assert json.loads((tmp_path / "settings.json").read_text()) == {"seed": 0}


def test_ctrl_c_says_what_is_kept(tmp_path):
    def interrupting():
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(1)
        return make_model()

    notes = [
        (tmp_path / "new", f"{tmp_path / 'new'} stores 2 finished trainings. Repeat the call to resume."),
        (None, "Nothing is stored. With a folder `resume_path` the same call would resume after finished trainings."),
    ]
    for folder, note in notes:
        made = []
        with pytest.raises(KeyboardInterrupt) as caught:
            short(make_model=interrupting, resume_path=folder)
        assert caught.value.__notes__ == [note]
