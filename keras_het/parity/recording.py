"""Recording: the numbers of a model on one backend, and their file."""

import dataclasses
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

    def array(self, part: str, name: str) -> np.ndarray | None:
        """Returns an array of the recording, or None."""
        return self.arrays.get(part, {}).get(name)

    def rounding_of(self, part: str, name: str) -> Slices:
        """Returns the rounding of an array, or zeros."""
        return self.rounding.get(part, {}).get(name, NONE)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the recording to a `.npz` file without Python objects.

        Args:
            path: path of the file.
        """
        header = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        count = iter(range(1 << 62))
        with (
            open(path, "wb") as file,
            zipfile.ZipFile(file, "w") as archive,
        ):  # a path without the suffix stays as it is
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
            header["arrays"] = {part: Store(_readers(path, archive, rows)) for part, rows in header["arrays"].items()}
            header["batch"] = dict(Store(_readers(path, archive, header["batch"])))
            header["rounding"] = {
                part: _joined(*(_readers(path, archive, rows) for rows in sides))
                for part, sides in header["rounding"].items()
            }
            return cls(**header)
        except (OSError, zipfile.BadZipFile) as error:
            raise refusal("path", rule, f"{path}; {error}") from error
        except (TypeError, ValueError, KeyError, AttributeError) as error:
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
    def read(number: int, dtype: str) -> np.ndarray:
        return read_array("path", path, archive, str(number)).astype(np.dtype(dtype), copy=False)

    members = set(archive.namelist())
    for name, number, dtype in rows:
        if f"{number}.npy" not in members:
            raise KeyError(name)
        np.dtype(dtype)
    return {name: lambda number=number, dtype=dtype: read(number, dtype) for name, number, dtype in rows}


def _joined(rows: dict[str, Any], columns: dict[str, Any]) -> dict[str, Slices]:
    return {name: Slices(read(), columns[name]()) for name, read in rows.items()}
