"""`choose` goes on where it was interrupted, to the bit, and refuses a folder of something else."""

import copy
import re

import keras
import numpy as np
import pytest

from keras_het.base.result_files import ResultFiles
from keras_het.training import Candidate, choose, cross_val_probabilities
from tests.training.tasks import SHORT, SHORT_TRAININGS, Cheat, Constant, X, Y, make_model, maker, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]


def test_a_callback_may_stop_a_training(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    one = short(Constant(), epochs=4, callbacks=[Stop()], resume_path=tmp_path)
    again = short(Constant(), epochs=4, callbacks=[Stop()], resume_path=tmp_path)
    assert again.table == one.table
    np.testing.assert_array_equal(again.model.predict(X, verbose=0), one.model.predict(X, verbose=0))
    right = np.load(tmp_path / "early_stopping_0.npz")["scores"]
    np.testing.assert_array_equal(right[1:], right[[1, 1, 1]])  # nothing changes after the second epoch


def test_a_run_goes_on_with_an_optimizer_that_is_made_again(tmp_path):
    short(resume_path=tmp_path, make_model=maker())
    kept = sorted(path.stat().st_mtime_ns for path in tmp_path.glob("*.npz"))
    short(resume_path=tmp_path, make_model=maker())
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")) == kept
    with pytest.raises(ValueError, match="is of others"):
        short(resume_path=tmp_path, make_model=maker(rate=0.09))


class Weighted(Candidate):
    name = "weighted"

    def __init__(self, weight):
        self.weight = weight


class Logging(keras.callbacks.Callback):
    def __init__(self, file):
        super().__init__()
        self.file = file


@pytest.mark.parametrize(
    ("argument", "first", "other"),
    [
        ("validation_data", (X[:50], Y[:50]), (X[50:100], Y[:50])),
        ("validation_data", (X[:50], Y[:50]), (X[:50], np.roll(Y[:50], 1))),
        ("verified_labels", {0: 0}, {0: 1}),
        ("x", X, X[::-1]),
        ("y", Y, np.roll(Y, 1)),
        ("candidates", [Weighted(1.0)], [Weighted(2.0)]),
        ("callbacks", [Logging("a")], [Logging("b")]),
        ("callbacks", [keras.callbacks.EarlyStopping("loss")], [keras.callbacks.EarlyStopping("loss", patience=3)]),
        ("make_model", maker(), maker(rate=0.09)),
        ("make_model", maker(), maker(lambda: keras.layers.Dense(8))),
        ("epochs", 3, 4),
        ("criterion", "accuracy", "loss"),
    ],
)
def test_trainings_on_other_data_or_with_other_arguments_are_not_taken(argument, first, other, tmp_path):
    arguments = {"validation_data": (X[:50], Y[:50]), "candidates": [], "resume_path": tmp_path}
    again = copy.deepcopy(first)  # a training changes callbacks
    given = {"make_model": make_model, "x": X, "y": Y, **SHORT, **arguments}
    choose(**{**given, argument: first})
    kept = (tmp_path / "early_stopping_0.npz").stat().st_mtime_ns
    with pytest.raises(ValueError, match="is of others"):
        choose(**{**given, argument: other})
    choose(**{**given, argument: again})
    assert (tmp_path / "early_stopping_0.npz").stat().st_mtime_ns == kept


def test_what_cannot_be_compared_is_refused_beside_a_path(tmp_path):
    with (tmp_path / "log").open("w") as file:
        with pytest.raises(ValueError, match=r"`resume_path` must go with .* Received: callbacks\[0\].file, a TextIO"):
            short(resume_path=tmp_path, callbacks=[Logging(file)])
        assert short(callbacks=[Logging(file)]).trainings == 4


def test_files_that_change_places_are_refused(tmp_path):
    """Each is a training of this run, but not that of its name."""
    short(Constant(), resume_path=tmp_path)
    for one, other in (("early_stopping_0", "constant_0"), ("early_stopping_0", "early_stopping_1")):
        paths = [tmp_path / f"{name}.npz" for name in (one, other, "kept")]
        for source, target in ((0, 2), (1, 0), (2, 1)):
            paths[source].replace(paths[target])
        with pytest.raises(ValueError, match=f"whose {one}.npz is of others, or had another name"):
            short(Constant(), resume_path=tmp_path)
        for source, target in ((0, 2), (1, 0), (2, 1)):
            paths[source].replace(paths[target])


class StopError(Exception):
    """An interruption."""


def test_an_interrupted_run_goes_on_to_the_bit(tmp_path):
    def stop_after(count):
        calls = []

        class Interrupting(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                calls.append(1)
                if count is not None and len(calls) > count:
                    raise StopError

        return {"callbacks": [Interrupting()], "folds": 2}, calls

    arguments, _ = stop_after(3)
    with pytest.raises(StopError):
        short(Cheat(), Constant(), resume_path=tmp_path / "run", **arguments)
    kept = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "run").glob("*.npz"))}
    assert len(kept) == 3
    arguments, calls = stop_after(None)
    resumed = short(Cheat(), Constant(), resume_path=tmp_path / "run", **arguments)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    whole = short(Cheat(), Constant(), **stop_after(None)[0])
    assert len(calls) == whole.trainings - 3
    for one, other in zip(resumed.model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(resumed.probabilities, whole.probabilities)
    assert [(s.name, s.score, s.difference, s.error, s.epoch) for s in resumed.table] == [
        (s.name, s.score, s.difference, s.error, s.epoch) for s in whole.table
    ]


def test_a_folder_of_other_data_is_refused(tmp_path):
    short(resume_path=tmp_path)
    with pytest.raises(ValueError, match=re.escape("whose early_stopping_0.npz is of others")):
        short(resume_path=tmp_path, y=np.roll(Y, 1))
    (tmp_path / "early_stopping_0.npz").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="it is trained anew"):
        short(resume_path=tmp_path)


def test_a_file_of_other_arrays_is_refused(tmp_path):
    short(resume_path=tmp_path)
    file = tmp_path / "early_stopping_0.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    for name, other, text in (
        (
            "scores",
            arrays["scores"].astype("U5"),
            "must have shape (3, 80) and be bool or float32. Received: shape (3, 80), <",
        ),
        ("seconds", np.array(["1", "2"]), "must have shape () and be float64. Received: shape (2,), <U1"),
        (
            "probabilities",
            arrays["probabilities"][1:],
            "must have shape (80, 3) and be float32. Received: shape (79, 3)",
        ),
    ):
        np.savez(file, **arrays | {name: other})
        with pytest.raises(ValueError, match="it is trained anew") as error:
            short(resume_path=tmp_path)
        assert f"`{name}` {text}" in str(error.value)


def test_a_half_written_file_has_the_name_of_no_other_training(tmp_path, monkeypatch):
    """With a word before the name it was that of a candidate of such a name, whose training was then lost."""
    written, savez = [], np.savez

    def save(file, **arrays):
        written.append(file.name)
        savez(file, **arrays)

    monkeypatch.setattr("keras_het.base.result_files.np.savez", save)
    files = ResultFiles(tmp_path, dict, "training")
    files.write("early_stopping_0", seconds=1.0)
    assert written == ["early_stopping_0.unfinished.npz"]  # the names of trainings end in a number
    assert [path.name for path in tmp_path.iterdir()] == ["early_stopping_0.npz"]


def test_a_candidate_of_other_code_is_another_one(tmp_path):
    """As in a notebook, whose cell was changed."""

    def candidate(shift):
        class Mine(Candidate):
            name = "mine"

            if shift:

                def labels(self, task, strength):
                    return (task.y + 1) % 3

        return Mine()

    short(candidate(False), resume_path=tmp_path)
    with pytest.raises(ValueError, match="is of others"):
        short(candidate(True), resume_path=tmp_path)


def test_another_loss_of_the_model_is_another_model(tmp_path):
    def make(smoothing):
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=smoothing)
        model.compile(keras.optimizers.Adam(0.1), loss)
        return model

    cross_val_probabilities(lambda: make(None), X, Y, folds=2, resume_path=tmp_path, epochs=1, verbose=0)
    with pytest.raises(ValueError, match="is of others"):
        cross_val_probabilities(lambda: make(-1), X, Y, folds=2, resume_path=tmp_path, epochs=1, verbose=0)


def interrupting(trainings):
    """A function that makes models, of which one is interrupted as by Ctrl-C."""
    made = []

    def make():
        made.append(make_model())
        if len(made) == trainings:
            raise KeyboardInterrupt
        return made[-1]

    return make


def test_ctrl_c_says_what_is_kept(tmp_path):
    for folder, note in [
        (tmp_path / "new", f"2 finished trainings are kept in {tmp_path / 'new'}: the same call goes on from there."),
        (None, "No training is kept. With a folder `resume_path` the same call goes on from finished ones."),
    ]:
        make = interrupting(4 if folder else 3)  # with a folder one more is made, of which the settings are
        with pytest.raises(KeyboardInterrupt) as caught:
            short(make_model=make, resume_path=folder)
        assert caught.value.__notes__ == [note]
    with pytest.raises(KeyboardInterrupt) as caught:
        cross_val_probabilities(interrupting(3), X, Y, epochs=1, folds=3, resume_path=tmp_path / "folds", verbose=0)
    assert caught.value.__notes__[0].startswith("1 finished folds are kept in")


def test_side_by_side_a_run_goes_on_from_what_is_stored(tmp_path):
    arguments = {"epochs": 2, "folds": 3, "verbose": 0, "resume_path": tmp_path}
    one = choose(None, X, Y, **arguments)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert choose(None, X, Y, **arguments).table == one.table
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")} == times  # nothing is trained again
    next(tmp_path.glob("label_smoothing_1.npz")).unlink()
    again = choose(None, X, Y, **arguments)
    assert [score.score for score in again.table] == [score.score for score in one.table]
