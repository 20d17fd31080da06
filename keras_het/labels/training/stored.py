"""Folder of a long call: its settings, and the results of its finished trainings."""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import checksum, select_rows
from keras_het.base.internals import compile_arguments, layers_of
from keras_het.base.npz import read_arrays
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import number_of
from keras_het.labels.methods import Method

ARRAYS = ("scores", "probabilities", "seconds")
MAX_COMPARED_ROWS = 1000
CONFIG_NAMES = ("name", "shared_object_id")  # Keras counts them


class Folder:
    """Storage of the result of each training as an .npz file, or of nothing if `path` is None.

    The file settings.json has the settings that the results depend on: numbers, texts and lists of them, by name. A
    folder with other settings is refused. Two calls with the same settings can use a folder at the same time, because
    they write the same files, and each file whole.
    """

    def __init__(self, path: str | os.PathLike | None, settings: Mapping[str, Any]):
        self.path = None if path is None else pathlib.Path(path)
        content = json.dumps(dict(settings), indent=1).encode()
        self.settings, self.key = json.loads(content), hashlib.sha256(content).hexdigest()
        if self.path is not None:
            self._check_settings(self.path / "settings.json", content)

    def _check_settings(self, file: pathlib.Path, content: bytes) -> None:
        """Compares the settings with the folder's, or writes them into a new folder."""
        if not file.exists():
            write_whole(file, lambda part: part.write_bytes(content))
        try:
            stored = dict(json.loads(file.read_text("utf-8")))
        except (ValueError, TypeError) as error:
            raise refusal("resume_path", "be a folder with a valid settings.json", f"{file}; {error}") from error
        names = [name for name in {**self.settings, **stored} if self.settings.get(name) != stored.get(name)]
        changes = [f"{name} {stored.get(name)!r} in the folder, {self.settings.get(name)!r} now" for name in names]
        rule = "be a folder of the same call, or a new folder"
        refuse_if(changes, "resume_path", rule, f"{file}; {'; '.join(changes)}")

    def read(self, name: str, epochs: int, count: int, units: int) -> dict[str, np.ndarray] | None:
        """Returns the arrays of a training, or None if it is not finished; refuses any other file."""
        if self.path is None or not (file := self.path / f"{name}.npz").exists():
            return None
        rule = f"have unchanged results. Delete {file} to train this fold again"
        try:
            stored = read_arrays("resume_path", file, (*ARRAYS, "name"))
        except ValueError as error:
            raise refusal("resume_path", rule, str(error)) from error
        refuse_if(str(stored.pop("name")) != name + self.key, "resume_path", rule, "the file of another training")
        measured = max(1, min(len(np.atleast_1d(stored["scores"])), epochs))  # fewer if a callback stopped the training
        shapes = {"scores": (measured, count), "probabilities": (count, units), "seconds": ()}
        for key, shape in shapes.items():
            is_number = stored[key].dtype.kind in "bf" and np.isfinite(stored[key]).all()
            is_wrong = stored[key].shape != shape or not is_number
            refuse_if(is_wrong, "resume_path", rule, f"{key} of shape {stored[key].shape}, {stored[key].dtype}")
        sums = np.abs(stored["probabilities"].sum(axis=1) - 1.0)
        refuse_if(sums.max(initial=0.0) > 1e-4, "resume_path", rule, "probabilities that do not sum to 1")
        return stored

    def write(self, name: str, **arrays: Any) -> None:
        """Writes all arrays of a training, or nothing if it is interrupted."""
        if self.path is not None:
            write_whole(self.path / f"{name}.npz", lambda part: np.savez(part, name=name + self.key, **arrays))

    def count_finished(self) -> int:
        """Counts the finished trainings."""
        return 0 if self.path is None else len([*self.path.glob("*.npz")])

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Adds a note on what is stored to a Ctrl-C."""
        try:
            yield
        except KeyboardInterrupt as error:
            note = "Nothing is stored. With a folder `resume_path` the same call would resume after finished trainings."
            if self.path is not None:
                stored = number_of(self.count_finished(), "finished training")
                note = f"{self.path} stores {stored}. Repeat the call to resume."
            error.add_note(note)
            raise


def write_whole(file: pathlib.Path, write: Callable[[pathlib.Path], Any]) -> None:
    """Replaces a file by what `write` writes to a path that no other process uses; an error leaves the old file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".unfinished-") as folder:
        write(part := pathlib.Path(folder, file.name))
        os.replace(part, file)


def settings_of(data: Any, **others: Any) -> dict[str, Any]:
    """Returns the settings of a call: size and labels of a `Data`, and the `others`."""
    labels = checksum(data.y, np.zeros(0) if data.weight is None else data.weight)
    return {"examples": len(data), "classes": len(data.classes), "labels": labels, **others}


def sample_checksum(data: Any) -> str:
    """Returns a checksum of 1,000 evenly spaced examples of a `Data`."""
    rows = np.linspace(0, len(data) - 1, min(len(data), MAX_COMPARED_ROWS)).astype(int)
    return checksum(select_rows(data.x, rows))


def describe(value: Any) -> Any:
    """Returns a description of a setting for JSON: arrays as checksums, functions and other objects as texts.

    Methods have their attributes, and Keras objects their config. Neither has the code of a function or a class.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): describe(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [describe(part) for part in (value if isinstance(value, list | tuple) else sorted(value, key=repr))]
    if hasattr(value, "__array__") and not isinstance(value, type):
        return checksum(value)
    if isinstance(value, Method):
        return {"class": type(value).__qualname__, **describe(vars(value))}
    if isinstance(value, type) or not hasattr(value, "get_config"):
        return re.sub(" at 0x[0-9A-Fa-f]+", "", repr(value))
    config: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # `get_config` of many Keras classes raises
        config = _without_names(describe(value.get_config()))
    return {"class": type(value).__qualname__, **config}


def describe_model(model: keras.Model) -> dict[str, Any]:
    """Returns a checksum of the layers of a compiled model and of their connections, its optimizer and its loss."""
    layers = json.dumps([describe(layer) for layer in layers_of(model)], sort_keys=True)
    optimizer, loss = describe(model.optimizer), describe(compile_arguments(model).get("loss"))
    return {"layers": hashlib.sha256(layers.encode()).hexdigest()[:12], "optimizer": optimizer, "loss": loss}


def _without_names(config: Any, numbers: dict[str, int] | None = None) -> Any:
    """Returns a config with a number for each name of a layer, in the order of the layers."""
    numbers = {} if numbers is None else numbers
    if isinstance(config, dict):
        if config.get("class_name") == "__lambda__":  # its byte code depends on the line, and on the process
            return "lambda"
        numbers.setdefault(str(config.get("name")), len(numbers))
        return {key: _without_names(part, numbers) for key, part in config.items() if key not in CONFIG_NAMES}
    if isinstance(config, list):
        is_tensor = len(config) == 3 and isinstance(config[0], str) and config[0] in numbers  # (layer, node, index)
        return [numbers[config[0]], *config[1:]] if is_tensor else [_without_names(part, numbers) for part in config]
    return config
