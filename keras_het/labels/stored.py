"""The folder of a long call: the settings that it was made with, and the results of its finished trainings."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_het.base.npz import checksum, read_arrays
from keras_het.base.refusal import refusal, refuse_if

ARRAYS = ("scores", "probabilities", "seconds")


class Folder:
    """Stores the result of each training as an .npz file, or nothing if `path` is None.

    Settings, by name, are what the results depend on: numbers, texts and lists of them, written to settings.json. A
    folder of other settings is refused with those that differ.
    """

    def __init__(self, path: str | os.PathLike | None, settings: Mapping[str, Any]):
        self.path = None if path is None else pathlib.Path(path)
        self.settings = json.loads(json.dumps(dict(settings)))
        if self.path is not None:
            self._check_settings(self.path / "settings.json")

    def _check_settings(self, file: pathlib.Path) -> None:
        """Compares the settings with the folder's, or writes them to a new folder."""
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            _replace(file, json.dumps(self.settings, indent=1).encode())
            return
        try:
            stored = dict(json.loads(file.read_text("utf-8")))
        except (ValueError, TypeError) as error:
            raise refusal("resume_path", "be a folder whose settings.json is whole", f"{file}; {error}") from error
        names = [name for name in {**self.settings, **stored} if self.settings.get(name) != stored.get(name)]
        differ = [f"{name} {stored.get(name)!r} in the folder, {self.settings.get(name)!r} now" for name in names]
        refuse_if(differ, "resume_path", "be a folder of the same call, or a new one", f"{file}; {'; '.join(differ)}")

    def read(self, name: str, epochs: int, count: int, units: int) -> dict[str, np.ndarray] | None:
        """Returns the arrays of a training, or None if it is not finished; refuses a file of something else."""
        if self.path is None or not (file := self.path / f"{name}.npz").exists():
            return None
        remedy = f"have results as they were written (delete {file}, and it is trained anew)"
        try:
            stored = read_arrays("resume_path", file, (*ARRAYS, "name"))
        except ValueError as error:
            raise refusal("resume_path", remedy, str(error)) from error
        shapes = {"scores": (epochs, count), "probabilities": (count, units), "seconds": ()}
        refuse_if(str(stored.pop("name")) != name, "resume_path", remedy, "the file of another training")
        for key, shape in shapes.items():
            is_number = stored[key].dtype.kind in "bf" and np.isfinite(stored[key]).all()
            wrong = stored[key].shape != shape or not is_number
            refuse_if(wrong, "resume_path", remedy, f"{key} of shape {stored[key].shape}, {stored[key].dtype}")
        sums = np.abs(stored["probabilities"].sum(axis=1) - 1.0)
        refuse_if(sums.max(initial=0.0) > 1e-4, "resume_path", remedy, "probabilities that do not sum to 1")
        return stored

    def write(self, name: str, **arrays: Any) -> None:
        """Writes the arrays of a training, all of them or nothing."""
        if self.path is not None:
            half = self.path / f"{name}.unfinished.npz"
            np.savez(half, name=name, **arrays)
            half.replace(self.path / f"{name}.npz")

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Adds to a Ctrl-C what is kept."""
        try:
            yield
        except KeyboardInterrupt as error:
            note = "Nothing is kept. With a folder `resume_path` the same call goes on from finished trainings."
            if self.path is not None:
                count = sum(not file.stem.endswith(".unfinished") for file in self.path.glob("*.npz"))
                note = f"{count} finished trainings are kept in {self.path}: the same call goes on from there."
            error.add_note(note)
            raise


def settings_of(data: Any, **others: Any) -> dict[str, Any]:
    """Returns the settings of a call: the size and labels of a `Data`, and what else its results depend on."""
    labels = checksum(data.y, np.zeros(0) if data.weight is None else data.weight)
    return {"examples": len(data), "classes": len(data.classes), "labels": labels, **others}


def described(value: Any) -> Any:
    """Returns what JSON can hold of a setting: arrays as checksums, objects as their class and their attributes."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return checksum(value)
    if isinstance(value, Mapping):
        return {str(name): described(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [described(part) for part in value]
    if isinstance(value, keras.optimizers.Optimizer):
        return described(keras.optimizers.serialize(value))
    own = {} if callable(value) else getattr(value, "__dict__", {})
    return {"class": type(value).__qualname__, **described(own)}


def _replace(file: pathlib.Path, content: bytes) -> None:
    half = file.with_name(f"{file.name}.unfinished")
    half.write_bytes(content)
    half.replace(file)
