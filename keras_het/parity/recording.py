"""Recording: the numbers of a model on one backend, and their file."""

import dataclasses
import functools
import itertools
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
_SAVED = ("saved configuration", "saved weights", "saved predictions", "saved optimizer")
PARTS = ("weights", *_COMPUTED, *(f"{part}{SECOND}" for part in _COMPUTED), *_SAVED)
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
        float64: `Recording` of the same model in float64 on this backend, which judges this one in its parts, or None.
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

    def find(self, part: str, name: str) -> tuple[np.ndarray, Slices] | None:
        """Returns an array and its rounding, or None if there is no array.

        A layer's outputs in training are those at inference if they were not recorded.
        """
        for source in dict.fromkeys((part, part.replace("layers in training", "layers"))):
            if name in self.arrays.get(source, ()):
                named = self.rounding.get(source, {}) | self.rounding.get(part, {})
                return self.arrays[source][name], named.get(name, NONE)
        return None

    def save(self, path: str | os.PathLike) -> None:
        """Writes the recording, and that in float64, to a `.npz` file without Python objects.

        Args:
            path: path of the file.
        """
        with open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:  # the path needs no suffix
            header = json.dumps(vars(self), default=functools.partial(_encode, archive, itertools.count()))
            _write(archive, _HEADER, np.array(header))

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
            header = str(read_array("path", path, archive, _HEADER))
            return cls._of(json.loads(header, object_hook=functools.partial(_decode, path, archive)))
        except (OSError, TypeError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
            rule = "be a file that `Recording.save` wrote"
            raise refusal("path", rule, f"{path}; {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> "Recording":
        for named in fields["rounding"].values():
            named.update({name: Slices(*(read() for read in sides)) for name, sides in named.items()})
        fields["arrays"] = {part: Store(named) for part, named in fields["arrays"].items()}
        fields["batch"] = dict(Store(fields["batch"]))
        return cls(**fields | {"float64": fields["float64"] and cls._of(fields["float64"])})


def _encode(archive: zipfile.ZipFile, numbers: Iterator[int], value: Any) -> dict[str, Any]:
    """Returns what JSON can hold of a value in a recording. An array is written to a member of the file."""
    if isinstance(value, Recording):
        return vars(value)
    if isinstance(value, Store):  # one array at a time is in memory
        return {name: _encode(archive, numbers, array) for name, array in value.items()}
    is_known = value.dtype.kind != "V" and "bfloat16" not in str(value.dtype)
    member = {"member": next(numbers), "dtype": str(value.dtype)}
    _write(archive, member["member"], np.asarray(value if is_known else value.astype("f4")))
    return member


def _decode(path: Any, archive: zipfile.ZipFile, fields: dict[str, Any]) -> Any:
    """Returns the function that reads an array, for the fields of a member of the file."""
    if not isinstance(member := fields.get("member"), int):
        return fields
    dtype, _ = np.dtype(fields["dtype"]), archive.getinfo(f"{member}.npy")  # raises a KeyError now, not when it is read
    return lambda: read_array("path", path, archive, str(member)).astype(dtype, copy=False)


def _write(archive: zipfile.ZipFile, name: Any, array: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)
