"""Features of a data set for a trained model, batch by batch, in memory or in a file."""

import contextlib
import operator
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import keras
import numpy as np

from keras_het.base.batches import Arrays, as_arrays, triples
from keras_het.base.progress import Progress
from keras_het.training import networks


def streamed(model: keras.Model, x: Any, y: Any, name: str, path: pathlib.Path | None, verbose: int) -> Arrays:
    """Features, labels and weights of a data set, which is read once.

    Args:
        model: the trained model.
        x: the data set.
        y: None: the labels are those of the data set.
        name: name of the argument, for errors.
        path: `.npy` file for the features, which are then a memory map of it; None keeps them in memory.
        verbose: 1 for a bar where it takes more than ten seconds.
    Raises:
        ValueError: as `as_arrays`.
    """
    path = None if path is None else _unused(path)
    with contextlib.nullcontext() if path is None else path.open("wb") as file:
        found = as_arrays(_batches(model, x, file, verbose), y, name)
    return found if path is None else found._replace(x=np.load(path, mmap_mode="r"))


def _unused(path: pathlib.Path) -> pathlib.Path:
    """The path, without a file, or one with a number: Windows keeps what is still a memory map of somebody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for own in [path, *(path.with_stem(f"{path.stem}_{number}") for number in range(2, 100))]:
        with contextlib.suppress(PermissionError):
            own.unlink(missing_ok=True)
            return own
    path.unlink()  # which raises the error
    return path


def _batches(model: keras.Model, x: Any, file: BinaryIO | None, verbose: int) -> Iterator[tuple[np.ndarray, Any, Any]]:
    """Features with labels and weights, batch by batch; what went to the file leaves a row of nothing."""
    features, rows, bar = networks.features_by_batch(model), 0, Progress(operator.length_hint(x), "batch", verbose)
    for inputs, labels, weights in triples(x, 1):
        found = features(inputs)
        rows += len(found)
        if file is not None:
            _write_header(file, rows, found.shape[1])
            file.write(np.ascontiguousarray(found).data)
        bar.add()
        yield found if file is None else np.empty((len(found), 0), "float32"), labels, weights


def _write_header(file: BinaryIO, rows: int, width: int) -> None:
    """Writes the header at the beginning; NumPy leaves room in it for any number of rows."""
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
    file.seek(0, 2)
