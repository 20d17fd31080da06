"""Hostile files: each file that the package reads, damaged or made to do harm, and what its reader says."""

import contextlib
import pathlib
import tempfile
import warnings
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from keras_het.base.npz import read_arrays
from keras_het.labels import apply_corrections
from keras_het.labels.training.stored import Folder
from tests.fuzz import damage
from tests.fuzz.guard import guarded

UNITS, EXAMPLES, EPOCHS = 3, 6, 2
P = np.full((EXAMPLES, UNITS), 1 / UNITS, "float32")
LABELS = np.arange(EXAMPLES) % UNITS
NAMES = ["cat", "dog", "cow"]
X = np.random.default_rng(0).normal(size=(EXAMPLES, 4)).astype("float32")
MEGABYTES = 300  # a bomb is refused
LARGEST = 16 << 20  # the bound of unpacked arrays is lowered to this


class File(NamedTuple):
    name: str
    write: Any
    read: Any
    kind: str


def read_data(folder):
    arrays = read_arrays("data", folder / "data.npz", ("x", "y"), ("class_names",))
    assert all(np.asarray(each).dtype != object for each in arrays.values()), "Python objects"


class ReadOnly(Folder):
    def _check_settings(self, file, content):
        pass


def read_training(folder):
    arrays = ReadOnly(folder, {}).read("early_stopping_0", EPOCHS, EXAMPLES, UNITS)
    for name, array in arrays.items():
        assert np.isfinite(array).all(), f"{name} that are no numbers"
    assert np.allclose(arrays["probabilities"].sum(axis=1), 1, atol=1e-3), "rows that are no probabilities"


def read_settings(folder):
    Folder(folder, {"seed": 0})


def write_table(folder):
    rows = [f"{index},{NAMES[label]},dog,0.5,0,,{'cow' * (index == 3)}" for index, label in enumerate(LABELS)]
    header = "index,label,suggested,score,is_issue,kind,corrected"
    (folder / "labels.csv").write_text("\r\n".join([header, *rows]), newline="")


def read_table(folder):
    labels = LABELS.copy()
    corrected = apply_corrections(labels, folder, NAMES)
    assert corrected.shape == labels.shape, "another number of labels"
    assert np.isin(corrected, range(UNITS)).all(), "labels out of range"
    np.testing.assert_array_equal(labels, LABELS, err_msg="the argument")


def write_training(folder):
    numbers = {"scores": np.ones((EPOCHS, EXAMPLES), bool), "probabilities": P, "seconds": np.float64(1)}
    ReadOnly(folder, {}).write("early_stopping_0", **numbers)


KINDS = {
    "data": File("data.npz", lambda f: np.savez(f / "data.npz", x=X, y=LABELS, class_names=NAMES), read_data, "member"),
    "training": File("early_stopping_0.npz", write_training, read_training, "member"),
    "settings": File("settings.json", read_settings, read_settings, "line"),
    "table": File("labels.csv", write_table, read_table, "line"),
}


def content_of(file):
    with tempfile.TemporaryDirectory() as folder:
        file.write(pathlib.Path(folder))
        return pathlib.Path(folder, file.name).read_bytes()


CONTENTS = {kind: content_of(file) for kind, file in KINDS.items()}


class Case(NamedTuple):
    kind: str
    other: str | None
    changes: tuple[damage.Change, ...]


@st.composite
def cases(draw):
    kind = draw(st.sampled_from(list(KINDS)))
    other = draw(st.sampled_from(list(KINDS))) if draw(st.integers(0, 9)) == 9 else None
    changes = st.lists(damage.changes(["bytes", KINDS[kind].kind]), min_size=other is None, max_size=3)
    return Case(kind, other, tuple(draw(changes)))


def check(case):
    """Reads the file of a case; returns how that ended. Nothing may run, and no file may change."""
    file, content = KINDS[case.kind], damage.damaged(CONTENTS[case.other or case.kind], case.changes)
    with contextlib.ExitStack() as stack:
        root = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder, scratch = root / "folder", root / "scratch"
        folder.mkdir()
        scratch.mkdir()
        (folder / file.name).write_bytes(content)
        stack.enter_context(mock.patch("tempfile.tempdir", str(scratch)))
        stack.enter_context(mock.patch("keras_het.base.npz.MAX_BYTES", LARGEST))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        with guarded(scratch, MEGABYTES):
            end = read_or_refused(file, folder)
        left = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert left == {file.name: content}, f"the folder has changed: {sorted(left)}"
    return end if content != CONTENTS[case.kind] else "whole"


def read_or_refused(file, folder):
    """Returns in a word how the reading of a file ended. An error must be a ValueError with the file and a rule."""
    try:
        file.read(folder)
    except ValueError as error:
        text = str(error)
        assert all(part in text for part in (str(folder), "must", "Received")), f"no file and rule: {text[:300]}"
        return "refused"
    return "harmless"
