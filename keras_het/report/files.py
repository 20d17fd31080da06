"""The files that the command line reads: a model and its data. Nothing in a data file is run."""

import os
import pathlib
import zipfile
from typing import Any

import keras
import numpy as np

NEEDED, OPTIONAL = ("x", "y"), ("class_names", "probabilities", "images")


def load_model(path: str | os.PathLike) -> keras.Model:
    """Loads a model from a `.keras` file; a file that needs arbitrary code is refused.

    Raises:
        ValueError: with a text that names the fault of the file.
    """
    _check_file("model", path)
    if pathlib.Path(path).suffix != ".keras":  # Keras would run the code that files of older formats hold
        raise ValueError(f"`model` must be a .keras file: load it in Keras and save it anew. Received: {path}")
    try:
        return keras.saving.load_model(path, compile=True)
    except Exception as error:  # Keras raises many kinds of errors for other files
        raise ValueError(f"`model` must be a .keras file that Keras can load. Received: {path}; {error}") from error


def load_data(path: str | os.PathLike) -> dict[str, Any]:
    """Loads the arguments of `report` from a `.npz` file.

    They are `x` and `y`, and `class_names`, `probabilities` and `images` if the file has them.

    Raises:
        ValueError: with a text that names the fault of the file.
    """
    _check_file("data", path)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`data` must be a .npz file, as numpy.savez(path, x=x, y=y) writes. Received: {path}, which is none"
        )
    try:
        return _content(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"`data` must be a .npz file that is whole. Received: {path}; {error}") from error


def _content(path: str | os.PathLike) -> dict[str, Any]:
    """The arrays of a file, which must have known names."""
    with np.load(path, allow_pickle=False) as content:
        missing = [name for name in NEEDED if name not in content]
        if missing:
            raise ValueError(
                f"`data` must have {' and '.join(NEEDED)}. Received: {path} with {', '.join(content) or 'nothing'}"
            )
        unknown = [name for name in content if name not in NEEDED + OPTIONAL]
        if unknown:
            rule = f"have no arrays but {', '.join(NEEDED + OPTIONAL)}"
            raise ValueError(f"`data` must {rule}. Received: {path} with {', '.join(unknown)}")
        return {name: _array(content, name) for name in (*NEEDED, *OPTIONAL) if name in content}


def _array(content: Any, name: str) -> Any:
    """An array of the file; the names of classes as a list of plain values."""
    try:
        array = content[name]
    except ValueError as error:
        rule = (
            "hold numbers and texts, and no Python objects, which could run code; make texts an array of them: "
            "np.array(names, str)"
        )
        raise ValueError(f"`{name}` must {rule}. Received: {error}") from error
    return array.tolist() if name == "class_names" else array


def _check_file(name: str, path: str | os.PathLike) -> None:
    if not pathlib.Path(path).is_file():
        raise ValueError(f"`{name}` must be a file. Received: {path}, which is none")
