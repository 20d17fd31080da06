"""The files that the command line reads: a model and its data. Nothing in a data file is run."""

import os
import pathlib
import zipfile
from typing import Any

import keras

from keras_het.base.npz import read_arrays

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

    They are `x` and `y`, and `class_names`, `probabilities` and `images` if the file has them. All together may have 4
    GiB, and any size in a file without compression.

    Raises:
        ValueError: with a text that names the fault of the file.
    """
    _check_file("data", path)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`data` must be a .npz file, as numpy.savez(path, x=x, y=y) writes. Received: {path}, which is none"
        )
    arrays: dict[str, Any] = read_arrays("data", path, NEEDED, OPTIONAL)
    if "class_names" in arrays:
        arrays["class_names"] = arrays["class_names"].tolist()  # plain values
    return arrays


def _check_file(name: str, path: str | os.PathLike) -> None:
    if not pathlib.Path(path).is_file():
        raise ValueError(f"`{name}` must be a file. Received: {path}, which is none")
