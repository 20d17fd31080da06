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
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_het.base.environment import BACKENDS, installed_backends
from keras_het.parity.batch import pack
from keras_het.parity.comparison import Comparison
from keras_het.parity.judge import compare, convicted_by_float64, parts_for_float64
from keras_het.parity.recording import Recording

UNKNOWN_LAYER = "Could not locate class"
MANY_ROUNDINGS = {"roundings": 16, "units": 30.0}
_SECOND = "a second batch has zeros, ties, negative and large numbers, padding, repeated and largest indices"
_LAST_LETTERS = 500
_JAX_CACHE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


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
        backends: names of backends, or None for all that are installed.
        tolerance: difference that counts as equal, as in `compare`.
        modules: names of modules that register the model's own layers.
        allow_unjudged: False to fail if rounding hides a fault of ten percent in some numbers.
    Raises:
        AssertionError: with the answer, the table and the notes of the `Comparison`, which is returned otherwise.
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

    `data` is the path of a batch, or None to make one. `plan` has the steps and the batch size. float64 computes the
    parts that float32 cannot judge. If both differ on one backend, more runs measure what rounding can change there.
    Raises a ValueError with the reasons if fewer than two backends can load and run the model.
    """
    backends = list(dict.fromkeys(backends or installed_backends()))
    if len(backends) < 2:
        raise ValueError(f"The comparison needs two backends. Received: {', '.join(backends) or 'none'}")
    judge = functools.partial(compare, tolerance=tolerance, skip=skip)
    with (session := _Session(model, data, modules, plan)):
        recordings = session.recordings
        for label in backends:
            session.run(label, records="numbers", saves=True, loads=next(reversed(recordings), None))
        if len(recordings) < 2:
            raise ValueError("\n".join(f"Could not run on {label}: {text}" for label, text in session.failures.items()))
        first, *_, last = recordings
        session.run(first, loads=last)
        result = judge(*recordings.values())
        parts = parts_for_float64(result) if recordings[first].precision != "float64" else []
        for label in recordings if parts else ():
            session.run(label, records="float64", parts=parts)
        result = judge(*recordings.values()) if parts else result
        for label, doubtful in (convicted := convicted_by_float64(result)).items():
            session.run(label, records="roundings", **MANY_ROUNDINGS, parts=doubtful)
        result = judge(*recordings.values()) if convicted else result
        shapes = [f"{name} {a.shape}" for name, a in recordings[first].batch.items() if not name.startswith("second")]
        saved = [row for pair in session.files() for row in judge(*pair).rows]
    rows = [row for row in result.rows if row.difference or row.part != "saved configuration"]
    made = f"the batch was made from the model's inputs: {', '.join(shapes)}; {_SECOND}; --data FILE gives your own"
    notes = [*([] if data else [made]), *result.notes]
    if lost := dict.fromkeys(row.name for row in saved if row.part == "saved weights" and row.ratio > 1):
        notes.append(f"weights that change when the model is saved and loaded: {', '.join(lost)}")
    failures = [*result.failures, *(f"{label}: {text}" for label, text in session.failures.items())]
    return dataclasses.replace(result, rows=[*rows, *saved], notes=notes, failures=failures)


def record_file(
    model: str, out: str, label: str = "", data: str | None = None, *, modules: Sequence[str] = (), plan: Any = ()
) -> Recording:
    """Records the model in a file on the active backend, in float32 and float64; raises ValueError if it cannot."""
    backend = os.environ.get("KERAS_BACKEND") or installed_backends()[0]
    if backend not in BACKENDS:
        raise ValueError(f"The backend must be one of {', '.join(BACKENDS)}. Received: KERAS_BACKEND={backend}")
    with (session := _Session(model, data, modules, plan)):
        session.run(backend, records="numbers", **MANY_ROUNDINGS)
        if session.failures:
            raise ValueError(f"Could not run on {backend}: {session.failures[backend]}")
        recording = session.recordings[backend]
        if recording.precision != "float64":
            session.run(backend, records="float64")
        recording.label = label or recording.label
        recording.save(out)
        return recording


class _Session(tempfile.TemporaryDirectory):
    """Folder with a model and its batch, in which backends do the jobs of `child.run`."""

    def __init__(self, model: str, data: str | None, modules: Sequence[str], plan: Any) -> None:
        for path in filter(None, (model, data)):
            if not os.path.isfile(path):
                raise ValueError(f"File not found: {path}")
        super().__init__()
        self.folder, self.job = pathlib.Path(self.name), {**dict(plan), "modules": list(modules), "folder": self.name}
        self.recordings: dict[str, Recording] = {}
        self.failures: dict[str, str] = {}
        shutil.copy(model, self.folder / "model.keras")
        if data:
            shutil.copy(data, self.folder / "batch.npz")

    def run(self, label: str, **job: Any) -> None:
        """Does a job on a backend, and keeps its recording and its error."""
        error = run_child(self.folder, label, {**self.job, "label": label, **job})
        kind = job.get("records")
        path = self.folder / f"{label}, {kind}.npz"
        recording = Recording.load(path) if path.exists() else None
        if kind == "float64" and error:
            text = "so its float32 numbers are compared without a judge"
            self.recordings[label].notes.append(f"the model does not run in float64 on {label}, {text}: {error}")
        elif error:
            self.failures[label] = error
        if kind == "numbers" and recording:
            self.recordings[label] = recording
            if (file := self.folder / f"{label}.keras").exists():
                recording.arrays["saved configuration"] = _configuration(file)
        elif kind == "float64":
            self.recordings[label].float64 = recording
        for part, named in recording.rounding.items() if kind == "roundings" and recording else ():
            known = self.recordings[label].rounding.setdefault(part, {})
            known |= {name: rounding.join(known.get(name, rounding)) for name, rounding in named.items()}

    def files(self) -> Iterator[list[Recording]]:
        """Yields what each backend saved, and what the next one loaded."""
        labels = [*self.recordings]
        for saver, loader in zip(labels, [*labels[1:], labels[0]], strict=True):
            paths = [self.folder / f"{saver}, saved.npz", self.folder / f"{loader}, loaded.npz"]
            if all(path.exists() for path in paths):
                yield [*map(Recording.load, paths)]


def run_child(folder: pathlib.Path, backend: str, job: dict[str, Any]) -> str | None:
    """Runs a job in a new process, and returns None or its error."""
    doing = f"records {job['records']}" if job.get("records") else "loads"
    print(f"{backend} {doing} ...", file=sys.stderr, flush=True)
    path, error = folder / "job.json", folder / "error.txt"
    path.write_text(json.dumps(job))
    error.unlink(missing_ok=True)
    more = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": backend}
    more |= {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache"), **_JAX_CACHE}  # a model is recorded more than once
    if job.get("records") == "float64" or _asks_for_float64(folder / "model.keras"):
        more["JAX_ENABLE_X64"] = "1"  # JAX must be told at its start
    command = [sys.executable, "-m", "keras_het.parity.child", str(path)]
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    text = f"exit status {done.returncode}. {done.stderr.strip()[-_LAST_LETTERS:]}"
    text = error.read_text() if error.exists() else text
    return text + (" If the layer is your own, add --import MODULE with its module" if UNKNOWN_LAYER in text else "")


def _configuration(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the configuration in a file as text: of every layer by name, and of the model."""
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"), object_hook=_without_backend)
    parts = {"": config}
    with contextlib.suppress(KeyError, TypeError):  # a model of another class has a configuration of its own
        parts = {each["config"]["name"]: each for each in config["config"]["layers"]}
        parts[""] = {**config, "config": {**config["config"], "layers": [*parts]}}
    return {name: np.array(json.dumps(each, sort_keys=True)) for name, each in parts.items()}


def _without_backend(config: dict) -> dict:
    """Returns a part of a configuration without the names of modules and numbers of objects."""
    lost = ("module", "registered_name", "build_config", "compile_config", "shared_object_id")
    return {name: value for name, value in config.items() if name not in lost}


def _asks_for_float64(model: pathlib.Path) -> bool:
    with contextlib.suppress(zipfile.BadZipFile, KeyError), zipfile.ZipFile(model) as archive:
        return b'"float64"' in archive.read("config.json")
    return False
