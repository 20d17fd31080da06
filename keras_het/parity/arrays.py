"""Arrays of a recording: a dictionary that keeps large arrays on disk, their rounding, and differences by entries."""

import collections
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, NamedTuple

import numpy as np

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}  # coarsest first
ALLOWED_ROUNDINGS = 10.0  # two backends round in different places, so they differ by several roundings
_IN_MEMORY = 1 << 20  # bytes of an array that is not written to a file
_BLOCK = 1 << 20  # entries compared at once
_FEW = 8  # a slice of fewer numbers can round to nothing by chance
_TINY = float(np.finfo("float32").tiny)  # backends can replace smaller numbers by zero


class Store(MutableMapping[str, np.ndarray]):
    """Arrays by name. Large arrays stay in a temporary file, and reading one returns a copy.

    Args:
        arrays: {name: array, or a function that reads the array}.
    """

    def __init__(self, arrays: Any = ()) -> None:
        self._read: dict[str, Callable[[], np.ndarray]] = {}
        self._file: Any = None
        for name, array in dict(arrays).items():
            self[name] = array

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __setitem__(self, name: str, array: Any) -> None:
        if callable(array):
            self._read[name] = array
            return
        array = np.asarray(array)
        if array.nbytes <= _IN_MEMORY or array.dtype.hasobject:
            self._read[name] = lambda: array
            return
        self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 (closed with the last reference)
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(np.ascontiguousarray(array).reshape(-1).view("uint8").data)
        self._read[name] = functools.partial(_from_file, self._file, start, array.dtype, array.shape)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._read[name]()

    def __delitem__(self, name: str) -> None:
        del self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def _from_file(file: Any, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    file.seek(start)
    array = np.empty(shape, dtype)
    file.readinto(array.reshape(-1).view("uint8"))
    return array


class Slices(NamedTuple):
    """Largest numbers of the slices of an array of shape (..., C).

    The smaller of both bounds an entry, so small numbers beside large ones keep their own size.

    Attributes:
        rows: largest number of each slice along the last axis, `(..., 1)`.
        columns: largest number of each index of the last axis, `(C,)`.
    """

    rows: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> "Slices":
        """Returns the largest finite |entry| of each slice.

        A vector has one row. Its columns are at least the median, and rows of less than 8 entries have the size of the
        largest row, because a few roundings can all be small by chance.
        """
        sizes = np.abs(_numbers(array))
        sizes = np.where(np.isfinite(sizes), sizes, 0.0).astype("float64")
        if not sizes.size or not sizes.ndim:
            largest = np.max(sizes, initial=0.0)
            return cls(np.asarray(largest), np.asarray(largest))
        if sizes.ndim == 1:
            return cls(np.max(sizes, keepdims=True), np.maximum(sizes, np.median(sizes)))
        rows, columns = sizes.max(-1, keepdims=True), sizes.reshape(-1, sizes.shape[-1]).max(0)
        return cls(rows if sizes.shape[-1] >= _FEW else rows.max(keepdims=True), columns)

    def join(self, other: "Slices") -> "Slices":
        """Returns the larger numbers of two."""
        return Slices(np.maximum(self.rows, other.rows), np.maximum(self.columns, other.columns))

    def times(self, factor: float) -> "Slices":
        """Returns the numbers times a factor."""
        return Slices(self.rows * factor, self.columns * factor)

    def entries(self) -> np.ndarray:
        """Returns the bound of every entry."""
        return np.minimum(self.rows, self.columns)


NONE = Slices(np.zeros(()), np.zeros(()))


class Difference(NamedTuple):
    """Difference between two arrays at their worst entry, relative to the largest number of the entry's slice.

    Attributes:
        difference: |a - b|. It is infinite if the arrays cannot be compared, and `message` tells why.
        limit: largest difference that counts as equal.
        rounding: difference that rounding alone makes.
        at: index of the entry.
        values: the two entries.
        fraction: entries above their limits, as a fraction of all.
        message: "", or why the arrays cannot be compared, such as other shapes.
    """

    difference: float = 0.0
    limit: float = 0.0
    rounding: float = 0.0
    at: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)
    fraction: float = 0.0
    message: str = ""

    @property
    def ratio(self) -> float:
        """Difference in units of the limit. Above 1, the arrays differ."""
        if not self.difference:
            return 0.0
        return self.difference / self.limit if self.limit and np.isfinite(self.difference) else np.inf


def measure(
    a: np.ndarray | None,
    b: np.ndarray | None,
    rounding: Slices = NONE,
    *,
    tolerance: float = 0.0,
    roundoff: float = 0.0,
    slice_tolerance: float = 0.0,
) -> Difference:
    """Compares two arrays by their entries.

        |a - b| <= tolerance max(|a|, |b|) + 10 rounding

    The rounding of an entry is the smaller one of its row and its column, and at least 4 `roundoff` of the largest
    number there. Integers, and arrays without tolerance and rounding, must be equal.

    Args:
        a: array, or None for a missing one.
        b: array, or None for a missing one.
        rounding: measured changes by rounding.
        tolerance: difference that always counts as equal, relative to the entry.
        roundoff: unit in the last place of the dtype, relative to a number.
        slice_tolerance: like `tolerance`, relative to the largest number of the entry's slice.

    Example:
        >>> measure(np.array([1.0, 4.0]), np.array([1.0, 3.0]), tolerance=0.1)[:5]
        (0.25, 0.1, 0.0, (1,), (4.0, 3.0))
    """
    if message := _mismatch(a, b):
        return Difference(np.inf, message=message)
    assert a is not None
    assert b is not None
    if a.dtype.kind not in "biufcV":
        return Difference() if np.array_equal(a, b) else Difference(np.inf, message="other texts")
    measured = rounding.entries()
    if a.dtype.kind in "biu" and not np.any(np.isfinite(measured) & (measured > 0)):
        tolerance = roundoff = slice_tolerance = 0.0
    sizes = Slices.of(a).join(Slices.of(b))
    largest, worst, above = float(np.max(sizes.rows, initial=0.0)), None, 0
    for rows in _blocks(a.shape):
        x, y = _numbers(a[rows]), _numbers(b[rows])
        scale = _part(sizes, rows)
        changes = _part(rounding, rows)
        own = np.maximum(np.where(np.isfinite(changes), changes, 0.0), 4.0 * roundoff * scale)
        entry = np.maximum(np.abs(x), np.abs(y))
        entry = np.where(np.isfinite(entry), entry, 0.0)
        limit = tolerance * entry + ALLOWED_ROUNDINGS * own + slice_tolerance * scale
        if tolerance:
            limit = limit + 2.0**-24 * roundoff * largest + _TINY
        with np.errstate(invalid="ignore"):
            distance = np.where(np.isfinite(x) & np.isfinite(y), np.abs(x - y), 0.0)
        limit = np.broadcast_to(limit, distance.shape)
        above += int(np.sum(distance > limit))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(distance > 0.0, distance / limit, 0.0)
        at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        if worst is None or (ratio[at], distance[at]) > (worst.ratio, worst.difference):
            unit = float(np.broadcast_to(scale, distance.shape)[at]) or 1.0
            figures = (distance[at], limit[at], np.broadcast_to(own, distance.shape)[at])
            first = rows.start if isinstance(rows, slice) and rows.start else 0
            index = tuple(int(i) + (first if not axis else 0) for axis, i in enumerate(at))
            values = (x[at].real.item(), y[at].real.item())
            difference, allowed, change = (float(figure) / unit for figure in figures)
            worst = Difference(difference, allowed, change, index, values)
    return worst._replace(fraction=above / a.size) if worst else Difference()


def relative(slices: Slices, array: np.ndarray) -> float:
    """Returns the largest rounding of an array, relative to its largest entry."""
    size = float(np.max(Slices.of(array).rows, initial=0.0))
    largest = float(np.max(slices.entries(), initial=0.0))
    return largest / size if size else float(largest > 0.0)


def has_nan(array: np.ndarray) -> bool:
    """True if an entry is not a number."""
    return array.dtype.kind in "fcV" and bool(np.any(np.isnan(_numbers(array))))


def describe_nan(arrays: dict[str, np.ndarray]) -> str:
    """Returns which backends have entries that are not finite, and which have none."""
    counts = {label: int(np.sum(~np.isfinite(_numbers(array)))) for label, array in arrays.items()}
    groups = collections.defaultdict(list)
    for label, count in counts.items():
        kind = "NaN" if has_nan(arrays[label]) else "infinity"
        text = f"{kind} in {count} of {arrays[label].size} entries on" if count else "finite on"
        groups[text].append(label)
    return ", ".join(f"{text} {' and '.join(labels)}" for text, labels in groups.items())


def _mismatch(a: np.ndarray | None, b: np.ndarray | None) -> str:
    """Returns why two arrays cannot be compared, or "".

    The width of integers is not compared: Keras has int64 on TensorFlow for int32 on other backends.
    """
    if a is None or b is None:
        return "missing"
    if a.shape != b.shape:
        return f"shape {a.shape} and {b.shape}"
    if a.dtype != b.dtype and {str(a.dtype), str(b.dtype)} != {"int32", "int64"}:
        return f"{a.dtype} and {b.dtype}"
    if a.dtype.kind not in "fcV":
        return ""
    for rows in _blocks(a.shape):
        x, y = _numbers(a[rows]), _numbers(b[rows])
        finite = np.isfinite(x)
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.array_equal(finite, np.isfinite(y)):
            return "NaN"
    return ""


def _numbers(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind == "c" else np.asarray(array, "float64")


def _blocks(shape: tuple[int, ...]) -> Iterator[Any]:
    """Yields indices that cut a large array along its first axis."""
    size = int(np.prod(shape))
    if not size:
        return
    step = max(1, _BLOCK * shape[0] // size) if shape else 1
    if len(shape) < 2 or step >= shape[0]:
        yield ...
        return
    for start in range(0, shape[0], step):
        yield slice(start, start + step)


def _part(slices: Slices, rows: Any) -> np.ndarray:
    """Returns the bounds of the entries of a block."""
    whole = slices.rows.ndim < 2 or slices.rows.shape[0] == 1
    return np.minimum(slices.rows if whole else slices.rows[rows], slices.columns)
