"""Recording: the numbers of a model on one backend, and their file."""

import dataclasses
import json
import os
import zipfile
from typing import Any

import numpy as np

from keras_het.base.npz import read_arrays
from keras_het.base.refusal import refusal

# In the order in which an error spreads.
PARTS = ("weights", "layers", "predictions", "loss", "gradients", "training", "saved weights", "saved predictions")
NOT_DETERMINISTIC = "so the model is not deterministic"
_HEADER = "header"


@dataclasses.dataclass(eq=False)
class Recording:
    """Numbers of a model on one backend. `record` makes a recording, and `compare` compares several.

    Attributes:
        backend: name of the backend.
        precision: coarsest dtype in which a layer computes: "bfloat16", "float16", "float32" or "float64".
        versions: {package: version} of Keras and the backend.
        arrays: {part: {name: array}}; the parts are weights, layers, predictions, loss, gradients and training.
        rounding: {part: {name: number}}, the difference that rounding alone makes, relative to the largest entry.
        batch: {name: array} of the inputs "x", labels "y" and sample weights "sample_weight".
        omitted: names of layers inside a loop of the backend, which are compared as part of the layer around them.
        notes: texts about numbers that cannot be equal, and the reasons.
        failures: {part: text of the error} for the parts that the backend could not compute.
        steps: training steps after which the weights are recorded.
        batch_size: number of rows in a training step, or None for all rows.
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
        """Name of the recording in tables: the backend, and "float64" if the model computes in float64."""
        return f"{self.backend} float64" if self.precision == "float64" else self.backend

    def save(self, path: str | os.PathLike) -> None:
        """Writes the recording to a `.npz` file without Python objects.

        Args:
            path: path of the file.
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
        """Reads a recording from a file that `save` wrote.

        Args:
            path: path of the file.
        Raises:
            ValueError: if the file holds no recording.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                names = tuple(name.removesuffix(".npy") for name in archive.namelist())
        except (OSError, zipfile.BadZipFile) as error:
            raise refusal("path", "be a file that `Recording.save` wrote", f"{path}; {error}") from error
        arrays = read_arrays("path", path, (_HEADER,), tuple(name for name in names if name != _HEADER))
        try:
            header = json.loads(str(arrays[_HEADER]))
            header["arrays"] = {part: _named(named, arrays) for part, named in header["arrays"].items()}
            header["batch"] = _named(header["batch"], arrays)
            return cls(**header)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise refusal(
                "path", "be a file that `Recording.save` wrote", f"{path}; {type(error).__name__}: {error}"
            ) from error


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

    The result is infinite if the shapes differ, or if an entry is not finite and the other array has another entry.
    Equal entries that are not finite are ignored.

    Example:
        >>> difference(np.array([1.0, 4.0]), np.array([1.0, 3.0]))
        0.25
    """
    if first.shape != second.shape:
        return np.inf
    if not (first.dtype.kind in "biufcV" and second.dtype.kind in "biufcV"):
        return 0.0 if np.array_equal(first, second) else np.inf
    dtype = "complex128" if "c" in (first.dtype.kind, second.dtype.kind) else "float64"
    a, b = first.astype(dtype), second.astype(dtype)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.array_equal(finite, np.isfinite(b)):
        return np.inf
    a, b = a[finite], b[finite]
    scale = max(largest_entry(a), largest_entry(b))
    return float(np.max(np.abs(a - b), initial=0.0) / scale) if scale else 0.0


def largest_entry(array: np.ndarray) -> float:
    """Returns the largest finite `|entry|` of an array, or 0 if the array has no numbers."""
    if array.dtype.kind not in "biufcV":
        return 0.0
    sizes = np.abs(array if array.dtype.kind == "c" else array.astype("float64"))
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
