"""Comparison of a saved model on several backends, each in a process of its own."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_het.base.environment import BACKENDS, installed_backends
from keras_het.parity.batch import pack
from keras_het.parity.comparison import Comparison, compare, convicted_by_float64, needs_float64
from keras_het.parity.recording import Recording

UNKNOWN_LAYER = "Could not locate class"
MANY_ROUNDINGS = 12
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
_LAST_LETTERS = 500
Runner = Callable[[dict[str, Any]], str | None]


def assert_parity(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    backends: Sequence[str] | None = None,
    tolerance: float = 1e-5,
    modules: Sequence[str] = (),
    allow_unjudged: bool = False,
) -> Comparison:
    """Raises an AssertionError unless a model computes the same on every backend. It is made for tests.

    The model is saved, and each backend loads it in its own process, as `python -m keras_het parity` does.

    Args:
        model: Keras model that can be saved.
        x: inputs, or None for two batches that are made from the model's inputs and loss.
        y: labels, or None.
        sample_weight: weights of the examples, or None.
        backends: names of backends, at least two. None stands for all that are installed.
        tolerance: difference that counts as equal, as in `compare`.
        modules: names of modules that register the model's own layers.
        allow_unjudged: False to fail if rounding hides a fault of ten percent in some numbers.
    Returns:
        the `Comparison`.
    Raises:
        AssertionError: with the answer, the table and the notes.
        ValueError: if fewer than two backends can load and run the model.
    """
    with tempfile.TemporaryDirectory() as name:
        path, data = pathlib.Path(name) / "model.keras", None
        model.save(path)
        if x is not None:
            data = str(pathlib.Path(name) / "data.npz")
            np.savez(data, **pack(x, y, sample_weight))
        result = compare_file(str(path), backends, data, tolerance, modules=modules)
    if result.status() not in ((0, 3) if allow_unjudged else (0,)):
        raise AssertionError(f"\n{result}")
    return result


def compare_file(
    model: str,
    backends: Sequence[str] | None = None,
    data: str | None = None,
    tolerance: float = 1e-5,
    *,
    modules: Sequence[str] = (),
    skip: Sequence[str] = (),
    plan: Any = (),
) -> Comparison:
    """Compares the model in a file on several backends, each in its own process.

    `data` is the path of a batch, or None to make a batch. `modules` are names of modules that register layers. `plan`
    has the steps and the batch size.

    Raises:
        ValueError: if fewer than two backends can load and run the model. The error has a reason for each.
    """
    backends = list(dict.fromkeys(backends or installed_backends()))
    if len(backends) < 2:
        raise ValueError(f"The comparison needs two backends. Received: {', '.join(backends) or 'none'}")
    with prepared_folder(model, data) as folder:
        runners: dict[str, Runner] = {backend: functools.partial(run_child, folder, backend) for backend in backends}
        return compare_in(folder, runners, tolerance, modules=modules, skip=skip, plan=plan)


def record_file(
    model: str, out: str, label: str = "", data: str | None = None, *, modules: Sequence[str] = (), plan: Any = ()
) -> list[str]:
    """Records the model in a file on the active backend, also in float64 beside it; returns the notes.

    Raises:
        ValueError: if the backend cannot load or run the model.
    """
    backend = os.environ.get("KERAS_BACKEND") or installed_backends()[0]
    if backend not in BACKENDS:
        raise ValueError(f"The backend must be one of {', '.join(BACKENDS)}. Received: KERAS_BACKEND={backend}")
    with prepared_folder(model, data) as folder:
        session = _Session(folder, {backend: functools.partial(run_child, folder, backend)}, modules, plan)
        session.record(backend, roundings=MANY_ROUNDINGS)
        if session.failures:
            raise ValueError(f"Could not run on {backend}: {session.failures[backend]}")
        pathlib.Path(_paths(out)[1]).unlink(missing_ok=True)  # of an earlier recording
        (recording,) = session.recordings.values()
        exact = [] if recording.precision == "float64" else session.record_in_float64()
        for each, path in zip((recording, *exact), _paths(out), strict=False):
            each.label = label or each.label
            each.save(path)
        return [*session.notes, *(f"{part} failed: {text}" for part, text in recording.failures.items())]


def _paths(path: str) -> tuple[str, str]:
    """Returns the paths of a recording and of its recording in float64."""
    return path, f"{path.removesuffix('.npz')}-float64.npz"


def compare_recordings(paths: Sequence[str], tolerance: float = 1e-5, skip: Sequence[str] = ()) -> Comparison:
    """Compares the recordings in files, with those in float64 beside them."""
    own = [[Recording.load(each) for each in _paths(path) if each == path or os.path.isfile(each)] for path in paths]
    names = [(single.label, single.versions) for single, *_ in own]
    for path, name, recordings in zip(paths, names, own, strict=True):
        for recording in recordings if names.count(name) > 1 else ():
            recording.label = path.removesuffix(".npz")
    return compare(*itertools.chain(*own), tolerance=tolerance, skip=skip)


@contextlib.contextmanager
def prepared_folder(model: str, data: str | None) -> Iterator[pathlib.Path]:
    """Yields a temporary folder with the model and the batch."""
    for path in filter(None, (model, data)):
        if not os.path.isfile(path):
            raise ValueError(f"File not found: {path}")
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(model, pathlib.Path(name, "model.keras"))
        if data:
            shutil.copy(data, pathlib.Path(name, "batch.npz"))
        yield pathlib.Path(name)


def compare_in(
    folder: pathlib.Path,
    runners: dict[str, Runner],
    tolerance: float = 1e-5,
    *,
    modules: Sequence[str] = (),
    skip: Sequence[str] = (),
    plan: Any = (),
) -> Comparison:
    """Compares the model in a folder by functions that do a job on a backend, and return None or the error.

    float64 is computed only if float32 cannot judge. If float32 and float64 of one backend differ, more runs measure
    what rounding can change there.
    """
    is_made = not (folder / "batch.npz").exists()
    session = _Session(folder, runners, modules, plan)
    for label in runners:
        session.record(label, saves=True, loads=next(reversed(session.recordings), None))
    if len(session.recordings) < 2:
        raise ValueError("\n".join(f"Could not run on {label}: {text}" for label, text in session.failures.items()))
    first, *_, last = session.recordings
    session.load(first, last)
    judge = functools.partial(compare, tolerance=tolerance, skip=skip)
    result = judge(*session.recordings.values())
    if needs_float64(result) and session.recordings[first].precision != "float64":
        exact = session.record_in_float64()
        result = judge(*session.recordings.values(), *exact)
        if convicted := convicted_by_float64(result):
            for label in convicted:
                session.record(label, roundings=MANY_ROUNDINGS)
            result = judge(*session.recordings.values(), *exact)
    saved = [row._replace(is_judged=True) for pair in session.pairs for row in judge(*pair).rows]
    notes = [_made(session.recordings[first])] * is_made + session.notes + result.notes
    if lost := dict.fromkeys(row.name for row in saved if row.part == "saved weights" and row.ratio > 1):
        notes.append(f"weights that change when the model is saved and loaded: {', '.join(lost)}")
    failures = [*result.failures, *(f"{label}: {text}" for label, text in session.failures.items())]
    return dataclasses.replace(result, rows=[*result.rows, *saved], notes=notes, failures=failures)


class _Session:
    """Jobs on one model, and the files that they write to a folder."""

    def __init__(self, folder: pathlib.Path, runners: dict[str, Runner], modules: Sequence[str], plan: Any) -> None:
        self.folder, self.runners, self.plan = folder, runners, dict(plan) | {"modules": list(modules)}
        self.recordings: dict[str, Recording] = {}
        self.failures: dict[str, str] = {}
        self.pairs: list[tuple[Recording, Recording]] = []  # what one backend saved, and another loaded
        self.notes: list[str] = []

    def run(self, label: str, **job: Any) -> str | None:
        """Does a job of `child.run`, and returns None or the error."""
        return self.runners[label]({**self.plan, "folder": str(self.folder), "label": label, **job})

    def record(self, label: str, **job: Any) -> None:
        """Records on a backend. With `loads`, it also loads the model that another backend saved."""
        error = self.run(label, records=True, **job)
        if (self.folder / f"{label}.npz").exists():
            self.recordings[label] = self._read(label)
        self._add_pair(label, job.get("loads"), error)

    def load(self, label: str, saver: str) -> None:
        """Loads on a backend the model that another backend saved."""
        self._add_pair(label, saver, self.run(label, loads=saver))

    def _add_pair(self, loader: str, saver: str | None, error: str | None) -> None:
        if error:
            self.failures[loader] = error
        elif saver:
            pair = self._read(f"{saver}, saved"), self._read(f"{loader}, loaded")
            for label, recording in zip((saver, loader), pair, strict=True):
                recording.rounding["saved predictions"] = self.recordings[label].rounding.get("predictions", {})
            self.pairs.append(pair)

    def _read(self, name: str) -> Recording:
        return Recording.load(self.folder / f"{name}.npz")

    def record_in_float64(self) -> list[Recording]:
        """Returns the recordings in float64; a backend that has none is noted."""
        recordings = []
        for label in self.recordings:
            error = self.run(label, records=True, float64=True)
            if error:
                text = "so its float32 numbers are compared without a judge"
                self.notes.append(f"the model does not run in float64 on {label}, {text}: {error}")
            else:
                recordings.append(self._read(f"{label}, float64"))
        return recordings


def _made(recording: Recording) -> str:
    """Returns the note on a batch that was made."""
    shapes = [f"{name} {tuple(a.shape)}" for name, a in recording.batch.items() if not name.startswith("second")]
    more = "a second batch has zeros, ties, negative and large numbers, repeated and largest indices, and padding"
    return f"the batch was made from the model's inputs: {', '.join(shapes)}; {more}; --data FILE gives your own"


def run_child(folder: pathlib.Path, backend: str, job: dict[str, Any]) -> str | None:
    """Runs a job in a new process, and returns None or its error."""
    doing = "loads" if not job.get("records") else "records in float64" if job.get("float64") else "records"
    print(f"{backend} {doing} ...", file=sys.stderr, flush=True)
    path, error = folder / "job.json", folder / "error.txt"
    path.write_text(json.dumps(job))
    error.unlink(missing_ok=True)
    needs_x64 = job.get("float64") or asks_for_float64(folder / "model.keras")
    variables = {**os.environ, **_QUIET, "KERAS_BACKEND": backend, **({"JAX_ENABLE_X64": "1"} if needs_x64 else {})}
    command = [sys.executable, "-m", "keras_het.parity.child", str(path)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    text = f"exit status {done.returncode}. {done.stderr.strip()[-_LAST_LETTERS:]}"
    text = error.read_text() if error.exists() else text
    return text + (" If the layer is your own, add --import MODULE with its module" if UNKNOWN_LAYER in text else "")


def asks_for_float64(model: pathlib.Path) -> bool:
    """True if a layer of a saved model computes in float64, which JAX must be told at its start."""
    if not zipfile.is_zipfile(model):
        return False
    with zipfile.ZipFile(model) as archive:
        return "config.json" in archive.namelist() and b'"float64"' in archive.read("config.json")
