"""Comparison of a saved model on several backends, each in a process of its own."""

import contextlib
import dataclasses
import functools
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
from keras_het.parity.arrays import NONE, measure
from keras_het.parity.comparison import EXACT, Comparison, Row, compare, needs_float64, needs_more_roundings
from keras_het.parity.recording import SECOND, Recording
from keras_het.parity.run import pack_all

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
            np.savez(data, **pack_all(x, y, sample_weight))
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
        exact = session.record_in_float64()
        for recording, path in zip((*session.recordings(), *exact), (out, float64_path(out)), strict=False):
            recording.label = label or recording.label
            recording.save(path)
        return session.notes


def float64_path(path: str) -> str:
    """Returns the path of the recording in float64 beside another."""
    return f"{path.removesuffix('.npz')}-float64.npz"


def compare_recordings(paths: Sequence[str], tolerance: float = 1e-5, skip: Sequence[str] = ()) -> Comparison:
    """Compares the recordings in files, with those in float64 beside them."""
    known = [path for path in map(float64_path, paths) if pathlib.Path(path).is_file()]
    recordings = [Recording.load(path) for path in (*paths, *known)]
    for recording, path in zip(recordings, (*paths, *paths), strict=False):
        labels = [each.label for each in recordings[: len(paths)]]
        if labels.count(recording.label) > 1 and len({str(each.versions) for each in recordings}) == 1:
            recording.label = pathlib.Path(path).stem
    return compare(*recordings, tolerance=tolerance, skip=skip)


@contextlib.contextmanager
def prepared_folder(model: str, data: str | None) -> Iterator[pathlib.Path]:
    """Yields a temporary folder with the model and the batch."""
    for path in filter(None, (model, data)):
        if not pathlib.Path(path).is_file():
            raise ValueError(f"File not found: {path}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(model, folder / "model.keras")
        if data:
            shutil.copy(data, folder / "batch.npz")
        yield folder


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
    what rounding can change.
    """
    is_made = not (folder / "batch.npz").exists()
    session = _Session(folder, runners, modules, plan)
    for label in runners:
        session.record(label, files=True)
    if len(session.recorded) < 2:
        raise ValueError("\n".join(f"Could not run on {label}: {text}" for label, text in session.failures.items()))
    session.load(session.recorded[0], session.recorded[-1])
    result = compare(*session.recordings(), tolerance=tolerance, skip=skip)
    if needs_float64(result) and session.recordings()[0].precision != "float64":
        exact = session.record_in_float64()
        result = compare(*session.recordings(), *exact, tolerance=tolerance, skip=skip)
        if needs_more_roundings(result):
            for label in list(session.recorded):
                session.record(label, roundings=MANY_ROUNDINGS)
            result = compare(*session.recordings(), *exact, tolerance=tolerance, skip=skip)
    rows = list(session.saved_rows(tolerance))
    notes = [*session.notes, *result.notes]
    if is_made:
        notes.insert(0, _made(session.recordings()[0]))
    lost = dict.fromkeys(row.name for row in rows if row.part == "saved weights" and row.ratio > 1)
    if lost:
        notes.append(f"weights that change when the model is saved and loaded: {', '.join(lost)}")
    failures = [*result.failures, *(f"{label}: {text}" for label, text in session.failures.items())]
    return dataclasses.replace(result, rows=[*result.rows, *rows], notes=notes, failures=failures)


class _Session:
    """Jobs on one model, and the files that they write to a folder."""

    def __init__(self, folder: pathlib.Path, runners: dict[str, Runner], modules: Sequence[str], plan: Any) -> None:
        self.folder, self.runners, self.modules, self.plan = folder, runners, modules, dict(plan)
        self.recorded: list[str] = []
        self.failures: dict[str, str] = {}
        self.pairs: list[tuple[str, str]] = []  # who saved, who loaded
        self.notes: list[str] = []

    def run(self, label: str, **job: Any) -> str | None:
        """Does a job, and returns None or the error."""
        files = {"model": "model.keras", "batch": "batch.npz", "error": "error.txt", "as_saved": f"{label}-saved.npz"}
        files |= {"loaded": f"{label}-loaded.npz"} | {
            key: job[key] for key in ("recording", "saved", "other") if key in job
        }
        paths = {key: str(self.folder / value) for key, value in files.items()}
        return self.runners[label](self.plan | {"modules": list(self.modules), "label": label} | job | paths)

    def record(self, label: str, *, roundings: int | None = None, files: bool = False) -> None:
        """Records on a backend. With `files`, the backend also loads the model that the one before it saved."""
        before = self.recorded[-1] if files and self.recorded else None
        job: dict[str, Any] = {"recording": f"{label}.npz", "roundings": roundings}
        if files:
            job |= {"saved": f"{label}.keras"} | ({"other": f"{before}.keras"} if before else {})
        error = self.run(label, **job)
        if (self.folder / f"{label}.npz").exists():
            self.recorded += [label] if label not in self.recorded else []
            self.pairs += [(before, label)] if before and not error else []
        if error:
            self.failures[label] = error

    def load(self, loader: str, saver: str) -> None:
        """Loads the model of the last backend on the first."""
        if error := self.run(loader, other=f"{saver}.keras"):
            self.failures[loader] = error
        else:
            self.pairs.append((saver, loader))

    def record_in_float64(self) -> list[Recording]:
        """Returns the recordings in float64; a backend that has none is noted."""
        recordings = []
        for label in self.recorded:
            error = self.run(label, recording=f"{label}-float64.npz", float64=True)
            if error:
                text = "so its float32 numbers are compared without a judge"
                self.notes.append(f"the model does not run in float64 on {label}, {text}: {error}")
            else:
                recordings.append(Recording.load(self.folder / f"{label}-float64.npz"))
        return recordings

    def recordings(self) -> list[Recording]:
        """Returns the recordings of the backends."""
        return [Recording.load(self.folder / f"{label}.npz") for label in self.recorded]

    def saved_rows(self, tolerance: float) -> Iterator[Row]:
        """Yields the rows of the models that one backend saved and another loaded."""
        known = dict(zip(self.recorded, self.recordings(), strict=True))
        for saver, loader in self.pairs:
            saved, loaded = (
                Recording.load(self.folder / f"{name}.npz") for name in (f"{saver}-saved", f"{loader}-loaded")
            )
            for part, arrays in saved.arrays.items():
                for name in dict.fromkeys([*arrays, *loaded.arrays[part]]):
                    a, b = saved.array(part, name), loaded.array(part, name)
                    first, second = (known[each].rounding_of("predictions", name) for each in (saver, loader))
                    is_exact = part in EXACT
                    limits = {} if is_exact else {"tolerance": tolerance, "roundoff": 2.0**-24}
                    difference = measure(a, b, NONE if is_exact else first.join(second), **limits)
                    yield Row(part, name, saver, f"{loader}, loaded", *difference)


def _made(recording: Recording) -> str:
    """Returns the note on a batch that was made."""
    shapes = [f"{name} {tuple(a.shape)}" for name, a in recording.batch.items() if not name.startswith("second")]
    more = "a second batch has zeros, ties, negative and large numbers, repeated and largest indices, and padding"
    if not any(part.endswith(SECOND) for part in recording.arrays):
        more = "a second batch with zeros, ties and padding was left out, because its loss is not finite"
    text = f"the batch was made from the model's inputs: {', '.join(shapes)}; {more}"
    return f"{text}; --data FILE gives your own"


def run_child(folder: pathlib.Path, backend: str, job: dict[str, Any]) -> str | None:
    """Runs a job in a new process, and returns None or its error."""
    doing = "loads" if "recording" not in job else "records in float64" if job.get("float64") else "records"
    print(f"{backend} {doing} ...", file=sys.stderr, flush=True)
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "error.txt").unlink(missing_ok=True)
    needs_x64 = job.get("float64") or asks_for_float64(folder / "model.keras")
    variables = {**os.environ, **_QUIET, "KERAS_BACKEND": backend, **({"JAX_ENABLE_X64": "1"} if needs_x64 else {})}
    command = [sys.executable, "-m", "keras_het.parity.child", str(folder / "job.json")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    error = folder / "error.txt"
    text = (
        error.read_text()
        if error.exists()
        else f"exit status {done.returncode}. {done.stderr.strip()[-_LAST_LETTERS:]}"
    )
    return text + (" If the layer is your own, add --import MODULE with its module" if UNKNOWN_LAYER in text else "")


def asks_for_float64(model: pathlib.Path) -> bool:
    """True if a layer of a saved model computes in float64, which JAX must be told at its start."""
    if not zipfile.is_zipfile(model):
        return False
    with zipfile.ZipFile(model) as archive:
        return "config.json" in archive.namelist() and b'"float64"' in archive.read("config.json")
