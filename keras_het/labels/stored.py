"""Folder of a long call: its settings, and the results of its finished trainings."""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_het.base.batches import checksum, select_rows
from keras_het.base.npz import read_arrays
from keras_het.base.refusal import outside_level, refusal, refuse_if
from keras_het.base.tables import number_of

ARRAYS = ("scores", "probabilities", "seconds")
MAX_COMPARED_ROWS = 1000
LIBRARIES = ("builtins", "keras", "keras_het", "numpy")  # their code is not compared
COMPARED_TYPES = (bool, int, float, str, list, tuple, dict, np.ndarray, type, types.FunctionType)  # in a notebook
WRAPPERS = (functools.partial, property, staticmethod, classmethod, types.MethodType)
WRAPPED_ATTRIBUTES = ("func", "args", "keywords", "fget", "__func__", "__self__")


class Folder:
    """Storage of the result of each training as an .npz file, or of nothing if `path` is None.

    The file settings.json has the settings that the results depend on: numbers, texts and lists of them, by name. A
    folder with other settings, or one that another call uses, is refused.
    """

    def __init__(self, path: str | os.PathLike | None, settings: Mapping[str, Any]):
        self.path = None if path is None else pathlib.Path(path)
        self.settings = json.loads(json.dumps(dict(settings)))
        if self.path is not None:
            self._check_settings(self.path / "settings.json")

    def _check_settings(self, file: pathlib.Path) -> None:
        """Compares the settings with the folder's, or writes them into a new folder."""
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            _replace(file, json.dumps(self.settings, indent=1).encode())
            return
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
        measured = max(1, min(len(np.atleast_1d(stored["scores"])), epochs))  # fewer if a callback stopped the training
        shapes = {"scores": (measured, count), "probabilities": (count, units), "seconds": ()}
        refuse_if(str(stored.pop("name")) != name, "resume_path", rule, "the file of another training")
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
            unfinished = self.path / f"{name}.unfinished.npz"
            np.savez(unfinished, name=name, **arrays)
            unfinished.replace(self.path / f"{name}.npz")

    def count_finished(self) -> int:
        """Counts the finished trainings."""
        files = [] if self.path is None else self.path.glob("*.npz")
        return sum(not file.stem.endswith(".unfinished") for file in files)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Refuses a folder that another call uses, by a lock of SQLite, which ends with its process on every system."""
        if self.path is None:
            yield
            return
        import sqlite3  # some builds of Python lack it

        with contextlib.ExitStack() as stack:
            try:
                path = self.path / "lock.sqlite"
                lock = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
                stack.enter_context(contextlib.closing(lock)).execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                is_used, rule = error.sqlite_errorcode & 255 == sqlite3.SQLITE_BUSY, "be a folder of one call at a time"
                refuse_if(is_used, "resume_path", rule, f"{self.path}, which another call uses")
                text = f"The folder {self.path} cannot be locked ({error}). Use it in one call at a time."
                warnings.warn(text, stacklevel=outside_level())
            self._check_settings(self.path / "settings.json")
            yield

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Locks the folder, and adds a note on what is stored to a Ctrl-C."""
        try:
            with self.locked():
                yield
        except KeyboardInterrupt as error:
            note = "Nothing is stored. With a folder `resume_path` the same call would resume after finished trainings."
            if self.path is not None:
                stored = number_of(self.count_finished(), "finished training")
                note = f"{self.path} stores {stored}. Repeat the call to resume."
            error.add_note(note)
            raise


def settings_of(data: Any, **others: Any) -> dict[str, Any]:
    """Returns the settings of a call: size and labels of a `Data`, and the `others`."""
    labels = checksum(data.y, np.zeros(0) if data.weight is None else data.weight)
    return {"examples": len(data), "classes": len(data.classes), "labels": labels, **others}


def sample_checksum(data: Any) -> str:
    """Returns a checksum of 1,000 evenly spaced examples of a `Data`."""
    rows = np.linspace(0, len(data) - 1, min(len(data), MAX_COMPARED_ROWS)).astype(int)
    return checksum(select_rows(data.x, rows))


def describe(value: Any, outer: tuple[int, ...] = ()) -> Any:
    """Returns a description of a setting for JSON: arrays as checksums, objects by their class and attributes.

    Functions and classes outside `LIBRARIES` get a checksum of their defaults, closures, attributes, base classes and
    source file. Without a file, as in a notebook, it includes their code and the functions and values that they use.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if id(value) in outer:  # an object that refers to itself
        return {"class": type(value).__qualname__}
    describe_part = functools.partial(describe, outer=(*outer, id(value)))
    if hasattr(value, "__array__") and not isinstance(value, type):
        return checksum(value)
    if isinstance(value, Mapping):
        return {str(name): describe_part(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [describe_part(part) for part in (value if isinstance(value, list | tuple) else sorted(value, key=repr))]
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, describe_part(value.co_consts)]
    if isinstance(value, types.FunctionType | type):
        kind, parts = ("class", _members) if isinstance(value, type) else ("function", _parts)
        is_compared = str(value.__module__).partition(".")[0] not in LIBRARIES
        code = {f"{kind} code": _digest(describe_part(parts(value)))} if is_compared else {}
        return {kind: value.__qualname__} | code
    return describe_part(type(value)) | describe_part(_attributes(value))


def _attributes(value: Any) -> dict[str, Any]:
    """Returns the attributes of an object, or its text without an address if it has none."""
    if isinstance(value, WRAPPERS):
        return {name: getattr(value, name) for name in WRAPPED_ATTRIBUTES if hasattr(value, name)}
    with contextlib.suppress(Exception):  # `get_config` of many Keras classes raises
        if hasattr(value, "get_config"):
            return {name: part for name, part in value.get_config().items() if name != "name"}  # Keras counts names
    return getattr(value, "__dict__", {"text": re.sub(" at 0x[0-9A-Fa-f]+", "", repr(value))})


def _parts(function: Any) -> list[Any]:
    """Returns code, defaults and closure of a function, and a checksum of its file, or the values that it uses."""
    code, names, file = function.__code__, function.__globals__, None
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]  # an empty cell
    with contextlib.suppress(OSError):
        file = hashlib.sha256(pathlib.Path(code.co_filename).read_bytes()).hexdigest()
    values = {name: names[name] for name in _names(code) if isinstance(names.get(name), COMPARED_TYPES)}
    return [code, function.__defaults__, function.__kwdefaults__, cells, file or values]


def _names(code: types.CodeType) -> set[str]:
    """Returns the names in a code object, and in the functions inside it."""
    return {*code.co_names}.union(*(_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def _members(kind: Any) -> dict[str, Any]:
    """Returns the methods, attributes and base classes of a class."""
    members = {name: part for name, part in vars(kind).items() if not name.startswith("__") or callable(part)}
    return {**members, "bases": kind.__bases__}


def _digest(description: Any) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:12]


def _replace(file: pathlib.Path, content: bytes) -> None:
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(file)
