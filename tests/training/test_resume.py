"""`choose` goes on where it was interrupted, to the bit, and refuses a folder of something else."""

import re

import keras
import numpy as np
import pytest

from keras_het.base.result_files import ResultFiles
from keras_het.training import Candidate
from tests.training.tasks import Cheat, Constant, X, Y, maker, short

pytestmark = pytest.mark.once


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


def test_a_folder_of_other_candidates_is_refused(tmp_path):
    class Weighted(Candidate):
        name = "weighted"

        def __init__(self, weight):
            self.weight = weight

    short(Weighted(1.0), resume_path=tmp_path)
    with pytest.raises(ValueError, match="is of others"):
        short(Weighted(2.0), resume_path=tmp_path)


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

        return {"callbacks": [Interrupting()]}, calls

    arguments, _ = stop_after(5)
    with pytest.raises(StopError):
        short(Cheat(), Constant(), resume_path=tmp_path / "run", **arguments)
    kept = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "run").glob("*.npz"))}
    assert len(kept) == 5
    arguments, calls = stop_after(None)
    resumed = short(Cheat(), Constant(), resume_path=tmp_path / "run", **arguments)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    whole = short(Cheat(), Constant(), **stop_after(None)[0])
    assert len(calls) == whole.trainings - 5
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
        ("right", arrays["scores"].astype("U5"), "must have shape (3, 80) and be bool or float32. Received: shape (3, 80), <U5"),
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
