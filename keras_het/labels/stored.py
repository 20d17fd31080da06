"""The folder of a long call: the settings that it was made with, and the results of its finished trainings."""

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

from keras_het.base.batches import select_rows
from keras_het.base.npz import checksum, read_arrays
from keras_het.base.refusal import outside_level, refusal, refuse_if

ARRAYS = ("scores", "probabilities", "seconds")
MAX_ROWS = 1000  # of the examples that are compared
LIBRARIES = ("builtins", "keras", "keras_het", "numpy")  # whose code is not compared
NAMED = (
    bool,
    int,
    float,
    str,
    list,
    tuple,
    dict,
    np.ndarray,
    type,
    types.FunctionType,
)  # variables that are compared in a notebook
WRAPPERS = (functools.partial, property, staticmethod, classmethod, types.MethodType)
WRAPPED = ("func", "args", "keywords", "fget", "__func__", "__self__")


class Folder:
    """Stores the result of each training as an .npz file, or nothing if `path` is None.

    Settings, by name, are what the results depend on: numbers, texts and lists of them, written to settings.json. A
    folder of other settings is refused with those that differ, and a folder that another call uses is refused.
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
        measured = max(1, min(len(np.atleast_1d(stored["scores"])), epochs))  # a callback may have stopped the training
        shapes = {"scores": (measured, count), "probabilities": (count, units), "seconds": ()}
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

    @property
    def finished(self) -> int:
        """The number of finished trainings."""
        files = [] if self.path is None else self.path.glob("*.npz")
        return sum(not file.stem.endswith(".unfinished") for file in files)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Refuses a folder that another call uses. The lock is SQLite's: it ends with its process, on every system."""
        if self.path is None:
            yield
            return
        import sqlite3  # some builds of Python lack it

        with contextlib.ExitStack() as stack:
            try:
                lock = sqlite3.connect(self.path / "lock.sqlite", 0.0, isolation_level=None, check_same_thread=False)
                stack.enter_context(contextlib.closing(lock)).execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                is_used, rule = error.sqlite_errorcode & 255 == sqlite3.SQLITE_BUSY, "be used by one call at a time"
                refuse_if(is_used, "resume_path", rule, f"{self.path}, which another call uses")
                text = f"The folder {self.path} cannot be locked ({error}). Use it in one call at a time."
                warnings.warn(text, stacklevel=outside_level())
            self._check_settings(self.path / "settings.json")
            yield

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Locks the folder, and adds to a Ctrl-C what is kept."""
        try:
            with self.locked():
                yield
        except KeyboardInterrupt as error:
            note = "Nothing is kept. With a folder `resume_path` the same call goes on from finished trainings."
            if self.path is not None:
                note = f"{self.finished} finished trainings are kept in {self.path}: the same call goes on from there."
            error.add_note(note)
            raise


def settings_of(data: Any, **others: Any) -> dict[str, Any]:
    """Returns the settings of a call: the size and labels of a `Data`, and what else its results depend on."""
    labels = checksum(data.y, np.zeros(0) if data.weight is None else data.weight)
    return {"examples": len(data), "classes": len(data.classes), "labels": labels, **others}


def rows_of(data: Any) -> str:
    """Returns a checksum of 1,000 examples, evenly spaced, of a `Data`."""
    return checksum(select_rows(data.x, np.linspace(0, len(data) - 1, min(len(data), MAX_ROWS)).astype(int)))


def described(value: Any, outer: tuple[int, ...] = ()) -> Any:
    """Returns what JSON can hold of a setting: arrays as checksums, objects as their class and their attributes.

    Functions and classes of others have a checksum of attributes, defaults, variables of enclosing functions, base
    classes, and files; without a file, as in a notebook, of their code and the functions and values that it names.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if id(value) in outer:  # an object that refers to itself
        return {"class": type(value).__qualname__}
    describe = functools.partial(described, outer=(*outer, id(value)))
    if hasattr(value, "__array__") and not isinstance(value, type):
        return checksum(value)
    if isinstance(value, Mapping):
        return {str(name): describe(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [describe(part) for part in (value if isinstance(value, list | tuple) else sorted(value, key=repr))]
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, describe(value.co_consts)]
    if isinstance(value, types.FunctionType | type):
        kind, parts = ("class", _members) if isinstance(value, type) else ("function", _parts)
        is_own = str(value.__module__).partition(".")[0] not in LIBRARIES
        return {kind: value.__qualname__} | ({f"{kind} code": _digest(describe(parts(value)))} if is_own else {})
    return describe(type(value)) | describe(_attributes(value))


def _attributes(value: Any) -> dict[str, Any]:
    """Returns what an object is made of; its text, without an address, if it has no attributes."""
    if isinstance(value, WRAPPERS):
        return {name: getattr(value, name) for name in WRAPPED if hasattr(value, name)}
    with contextlib.suppress(Exception):  # many classes of Keras raise
        if hasattr(value, "get_config"):
            return {name: part for name, part in value.get_config().items() if name != "name"}  # Keras counts names
    return getattr(value, "__dict__", {"text": re.sub(" at 0x[0-9A-Fa-f]+", "", repr(value))})


def _parts(function: Any) -> list[Any]:
    """Returns what the results of a function depend on: code, defaults, variables, and the file or what it names."""
    code, names, file = function.__code__, function.__globals__, None
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]  # an empty cell
    with contextlib.suppress(OSError):
        file = hashlib.sha256(pathlib.Path(code.co_filename).read_bytes()).hexdigest()
    named = {name: names[name] for name in _names(code) if isinstance(names.get(name), NAMED)}
    return [code, function.__defaults__, function.__kwdefaults__, cells, file or named]


def _names(code: types.CodeType) -> set[str]:
    """Returns the names in a code, and in the functions that it makes."""
    return {*code.co_names}.union(*(_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def _members(kind: Any) -> dict[str, Any]:
    """Returns the base classes of a class, its methods and its attributes."""
    members = {name: part for name, part in vars(kind).items() if not name.startswith("__") or callable(part)}
    return {**members, "bases": kind.__bases__}


def _digest(description: Any) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:12]


def _replace(file: pathlib.Path, content: bytes) -> None:
    half = file.with_name(f"{file.name}.unfinished")
    half.write_bytes(content)
    half.replace(file)
