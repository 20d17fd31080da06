"""Command `python -m keras_het parity model.keras`: compares a model on the installed backends."""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_het.base.environment import BACKENDS, installed_backends
from keras_het.base.validation import check_number
from keras_het.parity.comparison import EXACT, Comparison, Row, compare, typed_difference
from keras_het.parity.recording import Recording

UNKNOWN_LAYER = "Could not locate class"
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to a parser."""
    parser.add_argument("model", help="model file, .keras")
    parser.add_argument("--data", help=".npz file with x, y and sample_weight (several inputs: x.NAME, or x:0 and x:1)")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, help="backends to compare (default: all installed)")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="difference that counts as equal (default: 1e-5)")
    parser.add_argument("--json", help="file to write the result to")
    parser.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE", help="module with your own layers"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the comparison, and returns the exit status: 0 equal, 1 different, 2 if a backend could not run."""
    backends = list(dict.fromkeys(options.backends or installed_backends()))
    file = pathlib.Path(options.json) if options.json else None
    if file and not file.parent.is_dir():
        print(f"Folder not found: {file.parent}")
        return 2
    try:
        check_number("tolerance", options.tolerance, above=0.0)
        result = compare_file(options.model, backends, options.data, options.tolerance, options.modules)
        answer, content = f"\n{result}", _as_json(result)
    except ValueError as error:
        answer, content = str(error), {"status": 2, "answer": str(error)}
    print(answer)
    if file:
        file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    return content["status"]


def status(result: Comparison) -> int:
    """Returns 1 for a difference, 2 for a part that failed, 0 otherwise."""
    return 1 if result.different or result.is_random else 2 if result.failures else 0


def _as_json(result: Comparison) -> dict[str, Any]:
    numbers = ("difference", "limit", "rounding")
    rows = [row._asdict() | {name: min(getattr(row, name), 1e308) for name in numbers} for row in result.rows]
    answer = {"status": status(result), "answer": result.answer(), "first_layer": result.first_layer}
    texts = {"notes": result.notes, "failures": result.failures, "versions": result.versions}
    return {**answer, "backends": result.labels, "rows": rows, **texts}


def compare_file(
    model: str, backends: list[str], data: str | None = None, tolerance: float = 1e-5, modules: Any = ()
) -> Comparison:
    """Compares the model in a file on several backends, each in its own process.

    `data` is the path of a batch, or None to make a batch. `modules` are names of modules that register layers.

    Raises:
        ValueError: if there are fewer than two backends, or a backend cannot load or run the model. The error has a
            reason for each backend.
    """
    if len(backends) < 2:
        raise ValueError(f"The comparison needs two backends. Received: {', '.join(backends) or 'none'}")
    for path in filter(None, (model, data)):
        if not pathlib.Path(path).is_file():
            raise ValueError(f"File not found: {path}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(model, folder / "model.keras")
        if data:
            shutil.copy(data, folder / "batch.npz")
        return _compare_in(folder, backends, tolerance, list(modules), made=data is None)


def _compare_in(
    folder: pathlib.Path, backends: list[str], tolerance: float, modules: list[str], made: bool
) -> Comparison:
    environment = {"JAX_ENABLE_X64": "1"} if _asks_for_float64(folder / "model.keras") else {}
    reasons = {}
    for backend, before in zip(backends, [None, *backends], strict=False):
        # A backend loads the model that the backend before it trained and saved, in the same process.
        other = {"other": f"{before}.keras"} if before and before not in reasons else {}
        job = {"recording": f"{backend}.npz", "saved": f"{backend}.keras", **other}
        error = _run_child(folder, backend, modules, environment, **job)
        if error:
            reasons[backend] = error
    if reasons:
        raise ValueError("\n".join(f"Could not run on {backend}: {text}" for backend, text in reasons.items()))
    error = _run_child(folder, backends[0], modules, environment, other=f"{backends[-1]}.keras")
    if error:
        raise ValueError(f"Could not load on {backends[0]} the model that {backends[-1]} saved: {error}")
    recordings = [Recording.load(folder / f"{backend}.npz") for backend in backends]
    reference = next((backend for backend in ("tensorflow", "jax") if backend in backends), backends[0])
    has_float64 = recordings[0].precision == "float64"
    exact, notes = _record_in_float64(folder, [] if has_float64 else [reference], modules)
    result = compare(*recordings, *exact, tolerance=tolerance)
    if exact and result.different:  # do the backends agree in float64? Then the differences are rounding
        others, more = _record_in_float64(folder, [each for each in backends if each != reference], modules)
        result, notes = compare(*recordings, *exact, *others, tolerance=tolerance), [*notes, *more]
    pairs = zip(backends, [*backends[1:], backends[0]], strict=True)
    rows = [row for saver, loader in pairs for row in _loaded_rows(folder, saver, loader, result, tolerance)]
    if made:
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in recordings[0].batch.items())
        notes.insert(0, f"the batch was made from the model's inputs: {shapes}; --data FILE gives your own")
    lost = dict.fromkeys(row.name for row in rows if row.part == "saved weights" and row.ratio > 1)
    if lost:
        notes.append(f"weights that change when the model is saved and loaded: {', '.join(lost)}")
    return dataclasses.replace(result, rows=[*result.rows, *rows], notes=[*notes, *result.notes])


def _asks_for_float64(model: pathlib.Path) -> bool:
    """True if a layer of a saved model computes in float64, which JAX must be told at its start."""
    if not zipfile.is_zipfile(model):
        return False
    with zipfile.ZipFile(model) as archive:
        return "config.json" in archive.namelist() and b'"float64"' in archive.read("config.json")


def _run_child(folder: pathlib.Path, backend: str, modules: list[str], environment: Any = (), **job: Any) -> str | None:
    """Runs a job in a new process, and returns None or the last line of its error."""
    files = {"model": "model.keras", "batch": "batch.npz", "as_saved": f"{backend}-saved.npz"}
    files |= {"loaded": f"{backend}-loaded.npz"} | {key: value for key, value in job.items() if isinstance(value, str)}
    paths = {key: str(folder / value) for key, value in files.items()}
    (folder / "job.json").write_text(json.dumps({"modules": modules, **job, **paths}))
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
    return text + (" If the layer is your own, add --import MODULE with its module" if UNKNOWN_LAYER in text else "")


def _record_in_float64(
    folder: pathlib.Path, backends: list[str], modules: list[str]
) -> tuple[list[Recording], list[str]]:
    """Returns the recordings in float64, and notes on the backends that have none."""
    recordings, notes = [], []
    for backend in backends:
        file = f"{backend}-float64.npz"
        if error := _run_child(folder, backend, modules, {"JAX_ENABLE_X64": "1"}, recording=file, float64=True):
            notes.append(f"the model does not run in float64 on {backend}, so distances from it are unknown: {error}")
        else:
            recordings.append(Recording.load(folder / file))
    return recordings, notes


def _loaded_rows(folder: pathlib.Path, saver: str, loader: str, result: Comparison, tolerance: float) -> Iterator[Row]:
    """Yields the rows of a model that one backend saved and another backend loaded."""
    saved, loaded = (Recording.load(folder / f"{name}.npz") for name in (f"{saver}-saved", f"{loader}-loaded"))
    pair = {saver, loader}
    before = {row.name: row for row in result.rows if row.part == "predictions" and {row.first, row.second} == pair}
    for part, arrays in saved.arrays.items():
        others = loaded.arrays[part]
        for name in dict.fromkeys([*arrays, *others]):
            is_lost = name not in arrays or name not in others
            distance = np.inf if is_lost else typed_difference(arrays[name], others[name])
            known = before.get(name) if part not in EXACT else None
            limit, rounding = (known.limit, known.rounding) if known else (0.0 if part in EXACT else tolerance, 0.0)
            yield Row(part, name, saver, f"{loader}, loaded", distance, limit, rounding)
