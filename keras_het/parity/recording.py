"""Recording: the numbers of a model on one backend, and their file."""

import dataclasses
import functools
import itertools
import json
import os
import zipfile
from collections.abc import Callable, Iterator
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
        float64: `Recording` of the same model in float64 on this backend, which judges this one, or None.
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
    float64: "Recording | None" = None

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
        """Writes the recording, and that in float64, to a `.npz` file without Python objects.

        Args:
            path: path of the file.
        """
        with open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:  # the path needs no suffix
            header = self._write(functools.partial(_write, archive, itertools.count()))
            _write(archive, iter([_HEADER]), {_HEADER: np.array(json.dumps(header))})

    def _write(self, write: Callable[[Any], list]) -> dict[str, Any]:
        """Writes the arrays, and returns the fields with a list for each dictionary of arrays."""
        header = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        header["arrays"] = {part: write(named) for part, named in self.arrays.items()}
        header["rounding"] = {
            part: [write({name: slices[side] for name, slices in named.items()}) for side in (0, 1)]
            for part, named in self.rounding.items()
        }
        return header | {"batch": write(self.batch), "float64": self.float64 and self.float64._write(write)}

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Recording":
        """Reads a recording from a file that `save` wrote. Its arrays are read when they are used.

        Args:
            path: path of the file.
        Raises:
            ValueError: if the file holds no recording.
        """
        try:
            archive = zipfile.ZipFile(path)
            header = json.loads(str(read_array("path", path, archive, _HEADER)))
            return cls._read(header, functools.partial(_readers, path, archive))
        except (OSError, TypeError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
            rule = "be a file that `Recording.save` wrote"
            raise refusal("path", rule, f"{path}; {type(error).__name__}: {error}") from error

    @classmethod
    def _read(cls, header: dict[str, Any], read: Callable[[list], dict]) -> "Recording":
        for part, (rows, columns) in header["rounding"].items():
            named = zip(read(rows).items(), read(columns).values(), strict=True)
            header["rounding"][part] = {name: Slices(row(), column()) for (name, row), column in named}
        header["arrays"] = {part: Store(read(rows)) for part, rows in header["arrays"].items()}
        exact = header.get("float64") and cls._read(header["float64"], read)
        return cls(**header | {"batch": dict(Store(read(header["batch"]))), "float64": exact})


def _write(archive: zipfile.ZipFile, member_names: Iterator[Any], named: Any) -> list[tuple[str, Any, str]]:
    """Writes arrays; returns the name, the member's name and the dtype of each (a file cannot hold bfloat16)."""
    rows = []
    for name, array in named.items():
        rows.append((name, next(member_names), str(array.dtype)))
        is_known = array.dtype.kind != "V" and "bfloat16" not in str(array.dtype)
        with archive.open(f"{rows[-1][1]}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.asarray(array if is_known else array.astype("f4")), allow_pickle=False)
    return rows


def _readers(path: Any, archive: zipfile.ZipFile, rows: list) -> dict[str, Callable[[], np.ndarray]]:
    def reader(number: int, dtype: np.dtype) -> Callable[[], np.ndarray]:
        archive.getinfo(f"{number}.npy")  # raises a KeyError for a missing array now, not when it is read
        return lambda: read_array("path", path, archive, str(number)).astype(dtype, copy=False)

    return {name: reader(number, np.dtype(dtype)) for name, number, dtype in rows}
