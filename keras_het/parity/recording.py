"""Recording: the numbers of a model on one backend, and their file."""

import dataclasses
import functools
import json
import os
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_het.base.npz import read_array
from keras_het.base.refusal import refusal
from keras_het.parity.arrays import NONE, Slices, Store

# In the order in which an error spreads.
_COMPUTED = ("layers", "predictions", "layers in training", "loss", "metrics", "gradients", "training")
SECOND = ", second batch"
PARTS = ("weights", *_COMPUTED, *(f"{part}{SECOND}" for part in _COMPUTED), "saved weights", "saved predictions")
NOT_DETERMINISTIC = "so the model is not deterministic"
_HEADER = "header"


@dataclasses.dataclass(eq=False)
class Recording:
    """Numbers of a model on one backend. `record` makes a recording, and `compare` compares several.

    Attributes:
        backend: name of the backend.
        precision: coarsest dtype in which a layer computes: "bfloat16", "float16", "float32" or "float64".
        versions: {package: version} of Keras and the backend, and the "device".
        arrays: {part: {name: array}}; the parts are weights, layers, predictions, layers in training, loss, metrics,
            gradients and training, and the same for a second batch.
        rounding: {part: {name: `Slices`}}, the largest change that rounding alone makes in each slice.
        batch: {name: array} of the inputs "x", labels "y" and sample weights "sample_weight". In the second batch
            the names start with "second ".
        omitted: names of layers inside a loop of the backend, which are compared as part of the layer around them.
        notes: texts about numbers that cannot be equal, and the reasons.
        failures: {part: text of the error} for the parts that the backend could not compute.
        steps: training steps after which the weights are recorded.
        batch_size: number of rows in a training step, or None for all rows.
        label: name in tables. It is the name of the backend, unless you give another one.
    """

    backend: str
    precision: str = "float32"
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    arrays: dict[str, Any] = dataclasses.field(default_factory=dict)
    rounding: dict[str, dict[str, Slices]] = dataclasses.field(default_factory=dict)
    batch: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    omitted: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    steps: list[int] = dataclasses.field(default_factory=lambda: [3])
    batch_size: int | None = None
    label: str = ""

    def __post_init__(self) -> None:
        self.label = self.label or self.backend

    def has(self, part: str) -> bool:
        """True if the backend computed this part."""
        return part in self.arrays or (part.startswith("layers in training") and "layers" in self.arrays)

    def find(self, part: str, name: str) -> tuple[np.ndarray | None, Slices]:
        """Returns an array, or None, and its rounding.

        A layer's outputs in training are those at inference if they were not recorded.
        """
        if name not in self.arrays.get(part, ()):
            part = part.replace("layers in training", "layers")
        return self.arrays.get(part, {}).get(name), self.rounding.get(part, {}).get(name, NONE)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the recording to a `.npz` file without Python objects.

        Args:
            path: path of the file.
        """
        header = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        count = iter(range(1 << 62))
        with open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:  # the path needs no suffix
            header["arrays"] = {part: _write(archive, count, named) for part, named in self.arrays.items()}
            header["batch"] = _write(archive, count, self.batch)
            header["rounding"] = {
                part: [_write(archive, count, {name: each[side] for name, each in named.items()}) for side in (0, 1)]
                for part, named in self.rounding.items()
            }
            _write_array(archive, _HEADER, np.array(json.dumps(header)))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Recording":
        """Reads a recording from a file that `save` wrote. Its arrays are read when they are used.

        Args:
            path: path of the file.
        Raises:
            ValueError: if the file holds no recording.
        """
        rule = "be a file that `Recording.save` wrote"
        try:
            archive = zipfile.ZipFile(path)
            header = json.loads(str(read_array("path", path, archive, _HEADER)))
            read = functools.partial(_readers, path, archive)
            header["arrays"] = {part: Store(read(rows)) for part, rows in header["arrays"].items()}
            header["batch"] = dict(Store(read(header["batch"])))
            for part, (rows, columns) in header["rounding"].items():
                named = zip(read(rows).items(), read(columns).values(), strict=True)
                header["rounding"][part] = {name: Slices(row(), column()) for (name, row), column in named}
            return cls(**header)
        except (OSError, TypeError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
            raise refusal("path", rule, f"{path}; {type(error).__name__}: {error}") from error


def _write(archive: zipfile.ZipFile, count: Iterator[int], named: Any) -> list[tuple[str, int, str]]:
    """Writes arrays; returns the name, the number and the dtype of each (a file cannot hold bfloat16)."""
    rows = []
    for name, array in named.items():
        number, dtype = next(count), str(array.dtype)
        is_known = array.dtype.kind != "V" and "bfloat16" not in dtype
        _write_array(archive, str(number), array if is_known else array.astype("float32"))
        rows.append((name, number, dtype))
    return rows


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _readers(path: Any, archive: zipfile.ZipFile, rows: list) -> dict[str, Any]:
    """Returns a function for each array that reads it."""

    def reader(name: str, number: int, dtype: str) -> Any:
        if f"{number}.npy" not in members:
            raise KeyError(name)
        kind = np.dtype(dtype)
        return lambda: read_array("path", path, archive, str(number)).astype(kind, copy=False)

    members = set(archive.namelist())
    return {name: reader(name, number, dtype) for name, number, dtype in rows}
