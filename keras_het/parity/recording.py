"""The numbers of a model on one backend, and their file."""

import dataclasses
import json
import os
import zipfile
from typing import Any

import numpy as np

from keras_het.base.npz import read_arrays
from keras_het.base.refusal import refusal

# Parts of a recording, in the order in which an error spreads.
PARTS = ("weights", "layers", "predictions", "loss", "gradients", "training", "saved weights", "saved predictions")
NOT_DETERMINISTIC = "not deterministic"
_HEADER = "header"


@dataclasses.dataclass(eq=False)
class Recording:
    """The numbers of a model on one backend; `record` makes one, `compare` compares several.

    Attributes:
        backend: name of the backend.
        precision: dtype in which the model computes, such as "float32", "mixed_bfloat16" or "float64".
        versions: {package: version} of Keras and the backend.
        arrays: {part: {name: array}}; the parts are weights, layers, predictions, loss, gradients and training.
        rounding: {part: {name: number}}, how far rounding alone moves an array, relative to its largest entry.
        batch: {name: array}, the inputs ("x"), labels ("y") and sample weights ("sample_weight") that were used.
        omitted: names of layers that run inside a loop of the backend, and are compared as part of an outer layer.
        notes: texts about numbers that could not be compared as they are, and why.
        failures: {part: text of the error}, of parts that the backend could not compute.
        steps: numbers of the training steps after which the weights are in the recording.
        batch_size: number of rows in a training step, None for all rows of the batch.
    """

    backend: str
    precision: str = "float32"
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    arrays: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    rounding: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    batch: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    omitted: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    steps: list[int] = dataclasses.field(default_factory=lambda: [3])
    batch_size: int | None = None

    @property
    def label(self) -> str:
        """The name of the recording in tables: the backend, and float64 where the model computes in it."""
        return f"{self.backend} float64" if self.precision == "float64" else self.backend

    def save(self, path: str | os.PathLike) -> None:
        """Writes the recording to a `.npz` file, without Python objects.

        Args:
            path: the file.
        """
        header = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        arrays: list[np.ndarray] = []
        header["arrays"] = {part: _numbered(named, arrays) for part, named in self.arrays.items()}
        header["batch"] = _numbered(self.batch, arrays)
        numbered = {str(number): array for number, array in enumerate(arrays)}
        with open(path, "wb") as file:  # a path without the suffix stays as it is
            save: Any = np.savez
            save(file, **{_HEADER: np.array(json.dumps(header))}, **numbered)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Recording":
        """Reads a recording that `save` has written.

        Args:
            path: the file.
        Raises:
            ValueError: for a file that is not such a recording.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                names = tuple(name.removesuffix(".npy") for name in archive.namelist())
        except (OSError, zipfile.BadZipFile) as error:
            raise refusal("path", "be the file of a recording", f"{path}; {error}") from error
        arrays = read_arrays("path", path, (_HEADER,), tuple(name for name in names if name != _HEADER))
        try:
            header = json.loads(str(arrays[_HEADER]))
            header["arrays"] = {part: _named(named, arrays) for part, named in header["arrays"].items()}
            header["batch"] = _named(header["batch"], arrays)
            return cls(**header)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise refusal("path", "be the file of a recording", f"{path}; {type(error).__name__}: {error}") from error


def _numbered(named: dict[str, np.ndarray], arrays: list[np.ndarray]) -> list[tuple[str, int, str]]:
    """Appends arrays to a list; returns the name, the number and the dtype of each (a file cannot hold bfloat16)."""
    rows = []
    for name, array in named.items():
        rows.append((name, len(arrays), str(array.dtype)))
        arrays.append(array.astype("float32") if array.dtype.kind == "V" or "bfloat16" in str(array.dtype) else array)
    return rows


def _named(rows: list[list], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: arrays[str(number)].astype(np.dtype(dtype)) for name, number, dtype in rows}


def difference(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the largest |a - b|, relative to the largest |entry| of the two arrays.

    It is infinite for other shapes, and for entries that are not finite in one array alone, or have another sign there.
    Entries that are not finite in both are left out.

    Example:
        >>> difference(np.array([1.0, 4.0]), np.array([1.0, 3.0]))
        0.25
    """
    if first.shape != second.shape:
        return np.inf
    if not (first.dtype.kind in "biufcV" and second.dtype.kind in "biufcV"):
        return 0.0 if np.array_equal(first, second) else np.inf
    a, b = first.astype("float64"), second.astype("float64")
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.array_equal(finite, np.isfinite(b)):
        return np.inf
    a, b = a[finite], b[finite]
    scale = max(largest_entry(a), largest_entry(b))
    return float(np.max(np.abs(a - b), initial=0.0) / scale) if scale else 0.0


def largest_entry(array: np.ndarray) -> float:
    """Returns the largest finite `|entry|` of an array, 0 for one without numbers."""
    if array.dtype.kind not in "biufV":
        return 0.0
    sizes = np.abs(array.astype("float64"))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
