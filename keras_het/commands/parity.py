"""`python -m keras_het parity model.keras`: does a model give the same numbers on every installed backend?"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_het.base.environment import BACKENDS, installed_backends
from keras_het.parity.comparison import EXACT, Comparison, Row, compare
from keras_het.parity.recording import Recording, difference

STEPS = 3
UNKNOWN_LAYER = "Could not locate class"
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


class CannotRunError(Exception):
    """Says why a model cannot be compared."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to a parser."""
    parser.add_argument("model", help="file of the model, .keras")
    parser.add_argument("--data", help="file .npz with x and y (of several inputs x.NAME or x:0, x:1)")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, help="default: all that are installed")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="difference that counts as equal (default: 1e-5)")
    parser.add_argument("--json", help="file for the result")
    parser.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE", help="module with your own layers"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the comparison; returns the exit status: 0 equal, 1 different, 2 if a backend could not run."""
    backends = options.backends or installed_backends()
    try:
        result = compare_file(options.model, backends, options.data, options.tolerance, options.modules)
    except CannotRunError as error:
        print(error)
        return 2
    print(f"\n{result}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(_as_json(result), indent=1) + "\n")
    return status(result)


def status(result: Comparison) -> int:
    """Returns 1 for a difference, 2 for a part that failed, 0 otherwise."""
    return 1 if result.different or result.is_random else 2 if result.failures else 0


def _as_json(result: Comparison) -> dict[str, Any]:
    rows = [{**row._asdict(), "difference": min(row.difference, 1e308)} for row in result.rows]
    answer = {"status": status(result), "answer": result.answer(), "first_layer": result.first_layer}
    texts = {"notes": result.notes, "failures": result.failures, "versions": result.versions}
    return {**answer, "backends": result.labels, "rows": rows, **texts}


def compare_file(
    model: str, backends: list[str], data: str | None = None, tolerance: float = 1e-5, modules: Any = ()
) -> Comparison:
    """Compares the model in a file on some backends, each in a process of its own.

    Args:
        model: the file.
        backends: names of the backends.
        data: file of a batch, or None to make one.
        tolerance: tolerance of `compare`.
        modules: names of modules that define layers of the model.
    Raises:
        CannotRunError: if fewer than two backends are given, or one cannot load or run the model, with each reason.
    """
    if len(backends) < 2:
        raise CannotRunError(f"Two backends are needed to compare. Installed or named: {', '.join(backends) or 'none'}")
    for path in filter(None, (model, data)):
        if not pathlib.Path(path).is_file():
            raise CannotRunError(f"There is no file {path}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(model, folder / "model.keras")
        if data:
            shutil.copy(data, folder / "batch.npz")
        return _compared(folder, backends, tolerance, list(modules), made=data is None)


def _compared(
    folder: pathlib.Path, backends: list[str], tolerance: float, modules: list[str], made: bool
) -> Comparison:
    reasons = {}
    for backend, before in zip(backends, [None, *backends], strict=False):
        # The model that one backend has trained and saved is loaded by the next one, in the same process.
        other = {"other": f"{before}.keras"} if before and before not in reasons else {}
        error = _child(folder, backend, modules, recording=f"{backend}.npz", saved=f"{backend}.keras", **other)
        if error:
            reasons[backend] = error
    if reasons:
        raise CannotRunError("\n".join(f"Could not run on {backend}: {text}" for backend, text in reasons.items()))
    error = _child(folder, backends[0], modules, other=f"{backends[-1]}.keras")
    if error:
        raise CannotRunError(f"Could not load on {backends[0]} what {backends[-1]} saved: {error}")
    exact, notes = _in_float64(folder, backends, modules)
    recordings = [Recording.load(folder / f"{backend}.npz") for backend in backends]
    result = compare(*recordings, *exact, tolerance=tolerance)
    pairs = zip(backends, [*backends[1:], backends[0]], strict=True)
    rows = [row for saver, loader in pairs for row in _loaded(folder, saver, loader, result)]
    if made:
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in recordings[0].batch.items())
        notes.insert(0, f"the batch was made from the model's inputs: {shapes}; --data FILE gives your own")
    lost = dict.fromkeys(row.name for row in rows if row.part == "saved weights" and row.ratio > 1)
    if lost:
        notes.append(f"weights that change when the model is saved and loaded: {', '.join(lost)}")
    return dataclasses.replace(result, rows=[*result.rows, *rows], notes=[*notes, *result.notes])


def _child(folder: pathlib.Path, backend: str, modules: list[str], environment: Any = (), **job: Any) -> str | None:
    """Runs a job in a fresh process; returns None, or the last line of its error."""
    files = {"model": "model.keras", "batch": "batch.npz", "as_saved": f"{backend}-saved.npz"}
    files |= {"loaded": f"{backend}-loaded.npz"} | {key: value for key, value in job.items() if isinstance(value, str)}
    paths = {key: str(folder / value) for key, value in files.items()}
    (folder / "job.json").write_text(json.dumps({"modules": modules, "steps": STEPS, **job, **paths}))
    doing = "records in float64" if "float64" in job else "records" if "recording" in job else "loads"
    print(f"{backend} {doing} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "keras_het.parity.child", str(folder / "job.json")]
    variables = {**os.environ, **_QUIET, "KERAS_BACKEND": backend, **dict(environment)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line[:1].isalpha() and ("Error" in line or "Exception" in line)]
    text = (errors or lines or [f"exit status {done.returncode}"])[-1][:500]
    return text + (" If the layer is your own, name its module: --import MODULE" if UNKNOWN_LAYER in text else "")


def _in_float64(folder: pathlib.Path, backends: list[str], modules: list[str]) -> tuple[list[Recording], list[str]]:
    """Returns the recording in float64, by TensorFlow or JAX, or a note why there is none."""
    able = [backend for backend in ("tensorflow", "jax") if backend in backends]
    if not able:
        return [], []
    file = f"{able[0]}-float64.npz"
    error = _child(folder, able[0], modules, {"JAX_ENABLE_X64": "1"}, recording=file, float64=True)
    if error:
        return [], [f"the model does not run in float64 on {able[0]}, so distances from it are not known: {error}"]
    return [Recording.load(folder / file)], []


def _loaded(folder: pathlib.Path, saver: str, loader: str, result: Comparison) -> Iterator[Row]:
    """Yields the rows of a model that one backend has saved and the next one loaded."""
    saved, loaded = (Recording.load(folder / f"{name}.npz") for name in (f"{saver}-saved", f"{loader}-loaded"))
    before = {row.name: row for row in result.rows if row.part == "predictions"}
    for part, arrays in saved.arrays.items():
        for name, array in arrays.items():
            other = loaded.arrays[part].get(name)
            distance = np.inf if other is None else difference(array, other)
            known = before.get(name) if part not in EXACT else None
            limit, rounding = (known.limit, known.rounding) if known else (0.0, 0.0)
            yield Row(part, name, saver, f"{loader}, loaded", distance, limit, rounding)
