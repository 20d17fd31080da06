"""Arrays of a recording: a dictionary that keeps large arrays on disk, their rounding, and differences by entries."""

import collections
import functools
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}  # coarsest first
ALLOWED_ROUNDINGS = 10.0  # two backends round in different places, so they differ by several roundings
_IN_MEMORY = 1 << 20  # bytes of an array that is not written to a file
BLOCK = 1 << 15  # entries compared at once, which fit a cache of the processor
_FEW = 8  # a slice of fewer numbers can round to nothing by chance
_MASK = 1e3  # a repeated constant of at least this size can hide entries, and is no number that was computed
_TINY = float(np.finfo("float32").tiny)  # backends can replace smaller numbers by zero


class Store(collections.UserDict[str, Any]):
    """Arrays, or functions that read them, by name. Large arrays stay in a temporary file; reading returns a copy."""

    _file: Any = None

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __setitem__(self, name: str, array: Any) -> None:
        self.data[name] = array if callable(array) else self._reader(np.asarray(array))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.data[name]()

    def _reader(self, array: np.ndarray) -> Callable[[], np.ndarray]:
        if array.nbytes <= _IN_MEMORY:
            return lambda: array
        file = self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 (closed with the last reference)
        start, shape, dtype = file.seek(0, os.SEEK_END), array.shape, array.dtype
        array.tofile(file)

        def read() -> np.ndarray:
            file.seek(start)
            return np.fromfile(file, dtype, math.prod(shape)).reshape(shape)

        return read


class Slices(NamedTuple):
    """Largest numbers of the rows, (R, 1), and columns, (C,), of an array, whose axes before the last are joined.

    The smaller of both bounds an entry, so small numbers beside large ones keep their own size. `least`, (1,), is the
    median of the rows. Of joined changes it is the smallest, so a jump that only some of them make does not count.
    """

    rows: np.ndarray
    columns: np.ndarray
    least: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray, other: np.ndarray | None = None) -> "Slices":
        """Returns the largest finite |entry| of each slice, or |difference| from another array."""
        pairs = _blocks(array, array if other is None else other)
        with np.errstate(invalid="ignore"):
            return cls._from_blocks(array, (np.abs(x if other is None else x - y) for _, x, y in pairs))

    @classmethod
    def without_masks(cls, array: np.ndarray, other: np.ndarray) -> "Slices":
        """Returns the sizes of the slices without masks: large numbers at the same entries of both, more than once."""
        return cls._from_blocks(array, (_without_masks(np.abs(x), np.abs(y)) for _, x, y in _blocks(array, other)))

    @classmethod
    def _from_blocks(cls, array: np.ndarray, blocks: Iterable[np.ndarray]) -> "Slices":
        """Returns the largest number of each slice, from blocks of rows."""
        parts, columns = [np.zeros((0, 1))], np.zeros(_matrix(array).shape[1])
        for sizes in blocks:
            sizes[~np.isfinite(sizes)] = 0.0
            parts.append(sizes.max(1, keepdims=True, initial=0.0))
            columns = np.maximum(columns, sizes.max(0, initial=0.0))
        rows = np.concatenate(parts)
        least = np.median(rows, keepdims=True)[0] if rows.size else np.zeros(1)
        # A few roundings can all be small by chance, so columns of a vector and short rows are at least their median.
        if len(rows) == 1 and columns.size:
            columns = np.maximum(columns, np.median(columns))
        rows = rows if columns.size >= _FEW or not rows.size else np.maximum(rows, np.median(rows))
        return cls(rows, columns, least)

    def join(self, other: "Slices") -> "Slices":
        largest = np.maximum(self.rows, other.rows), np.maximum(self.columns, other.columns)
        return Slices(*largest, np.minimum(self.least, other.least))

    def times(self, factor: float) -> "Slices":
        return Slices(self.rows * factor, self.columns * factor, self.least)

    def entries(self, shape: tuple[int, ...], start: int = 0) -> np.ndarray:
        """Returns the bound of every entry of an array of this shape, whose first row is the row `start`."""
        count, width = math.prod(shape[:-1]), shape[-1] if shape else 1
        rows = self.rows if self.rows.size == 1 else self.rows[start : start + count]
        return np.broadcast_to(np.minimum(rows, self.columns), (count, width)).reshape(shape)

    def relative_to(self, array: np.ndarray) -> float:
        """Returns the largest bound of an entry, relative to the largest entry of an array."""
        largest = float(np.max(np.minimum(self.rows, self.columns), initial=0.0))
        if not largest:
            return 0.0
        sizes = Slices.without_masks(array, array).rows
        return largest / (float(np.max(sizes, initial=0.0)) or largest)


NONE = Slices(np.zeros((1, 1)), np.zeros(1), np.zeros(1))
Numbers = dict[str, tuple[Any, Slices]]  # {label: an array and its rounding}


class Row(NamedTuple):
    """Difference between two recordings in one array, at the worst entry.

    Attributes:
        part: part of the recording, such as "gradients".
        name: name of the layer or weight. After several training steps it ends in ", step 7".
        first: label of the first recording.
        second: label of the second recording. A backend's own run in float64 is "torch float64".
        difference: |a - b|, relative to the largest number in the entry's row or column, whichever is smaller.
        limit: largest difference that counts as equal.
        rounding: difference that rounding alone makes.
        at: index of the entry.
        values: the two entries.
        fraction: entries above their limits, as a fraction of all.
        message: "", or why the arrays cannot be compared, such as other shapes. Then the difference is infinite.
        blur: largest rounding of the array, relative to its largest entry. Above 0.01, it hides a fault of ten percent.
    """

    part: str = ""
    name: str = ""
    first: str = ""
    second: str = ""
    difference: float = 0.0
    limit: float = 0.0
    rounding: float = 0.0
    at: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)
    fraction: float = 0.0
    message: str = ""
    blur: float = 0.0

    @property
    def ratio(self) -> float:
        """Difference in units of the limit. Above 1, the arrays differ."""
        if not self.difference:
            return 0.0
        return self.difference / self.limit if self.limit and np.isfinite(self.difference) else np.inf

    @property
    def array(self) -> str:
        """The array in words, such as "gradients of `head/kernel`"."""
        return f"{self.part} of `{self.name}`" if self.name else self.part


def measure(
    a: np.ndarray | None,
    b: np.ndarray | None,
    roundings: Iterable[Slices] = (),
    *,
    tolerance: float = 0.0,
    roundoff: float = 0.0,
    slice_tolerance: float = 0.0,
) -> Row:
    """Compares two arrays, or None for a missing one, by their entries, as `compare` describes.

    The largest of the measured `roundings` counts, and at least 4 `roundoff`, the unit in the last place. `tolerance`
    is relative to the entry, and `slice_tolerance` to its row or column. Integers without a rounding must be equal.
    """
    if message := _mismatch(a, b):
        return Row(difference=np.inf, message=message)
    assert a is not None
    assert b is not None
    if a.dtype.kind not in "biufcV":
        return Row() if np.array_equal(a, b) else Row(difference=np.inf, message="other texts")
    rounding = functools.reduce(Slices.join, roundings, NONE)
    rounding = Slices(*(np.where(np.isfinite(side), side, 0.0) for side in rounding))
    if a.dtype.kind in "biu" and not rounding.rows.any():
        tolerance = roundoff = slice_tolerance = 0.0
    sizes = Slices.without_masks(a, b).join(Slices.without_masks(b, a))
    smallest = 2.0**-24 * roundoff * np.max(sizes.rows, initial=0.0) + _TINY if tolerance else 0.0
    rows, above = [], 0
    for start, x, y in _blocks(a, b):
        scale, change = (each.entries(x.shape, start) for each in (sizes, rounding))
        change = np.maximum(change, 4.0 * roundoff * scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            is_finite = np.isfinite(x) & np.isfinite(y)
            distance, entry = (np.where(is_finite, each, 0.0) for each in (np.abs(x - y), np.maximum(abs(x), abs(y))))
            limit = tolerance * entry + ALLOWED_ROUNDINGS * change + slice_tolerance * scale + smallest
            at = int(np.argmax(np.where(distance > 0.0, distance / limit, 0.0)))
        above += int(np.sum(distance > limit))
        unit = scale.flat[at] or 1.0
        difference, allowed, rounded = (float(each.flat[at] / unit) for each in (distance, limit, change))
        index = tuple(map(int, np.unravel_index(start * x.shape[1] + at, a.shape)))
        values = x.flat[at].real.item(), y.flat[at].real.item()
        rows.append(Row("", "", "", "", difference, allowed, rounded, index, values))
    worst = max(rows, key=lambda row: (row.ratio, row.difference), default=Row())
    return worst._replace(fraction=above / max(1, a.size))


def _without_masks(sizes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Sets masks in `sizes`, (R, C), to zero in place, and returns it. `others` has the sizes of the other array."""
    if np.any(sizes >= _MASK):
        with np.errstate(over="ignore", invalid="ignore"):
            short, other_short = sizes.astype("f4"), others.astype("f4")  # float64 keeps what is masked
        large = np.isfinite(sizes) & (sizes >= _MASK) & (short == other_short)
        values, counts = np.unique(short[large], return_counts=True)
        sizes[large & np.isin(short, values[counts > 1])] = 0.0
    return sizes


def has_nan(array: Any) -> bool:
    """True if an entry is not a number."""
    return array.dtype.kind in "fcV" and bool(np.any(np.isnan(array)))


def describe_nan(numbers: Numbers) -> str:
    """Returns which backends have entries that are not finite, and which have none."""
    groups = collections.defaultdict(list)
    for label, (array, _) in numbers.items():
        kind, count = "NaN" if has_nan(array) else "infinity", int(np.sum(~np.isfinite(array)))
        groups[f"{kind} in {count} of {array.size} entries on" if count else "finite on"].append(label)
    return ", ".join(f"{text} {' and '.join(labels)}" for text, labels in groups.items())


def _mismatch(a: np.ndarray | None, b: np.ndarray | None) -> str:
    """Returns why two arrays cannot be compared, or ""; Keras has int64 on TensorFlow for int32 on other backends."""
    if a is None or b is None:
        return "missing"
    if a.shape != b.shape:
        return f"shape {a.shape} and {b.shape}"
    is_text = a.dtype.kind == b.dtype.kind == "U"
    if a.dtype != b.dtype and not is_text and {str(a.dtype), str(b.dtype)} != {"int32", "int64"}:
        return f"{a.dtype} and {b.dtype}"
    if a.dtype.kind not in "fcV" or np.all(np.isfinite(a) & np.isfinite(b)):
        return ""
    x, y = (np.where(np.isfinite(each), 0, each) for each in (a, b))
    return "" if np.array_equal(x, y, equal_nan=True) else "NaN"


def _matrix(array: np.ndarray) -> np.ndarray:
    *rows, columns = [size for size in array.shape if size != 1] or [1]  # depthwise kernels end in an axis of length 1
    return array.reshape(math.prod(rows), columns)


def _blocks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields a few rows of both arrays at a time, after the number of the first row."""
    pair = _matrix(a), _matrix(b)
    step = max(1, BLOCK // max(1, pair[0].shape[1]))
    for start in range(0, len(pair[0]) if a.size else 0, step):
        x, y = (rows[start : start + step].astype("c16" if rows.dtype.kind == "c" else "f8") for rows in pair)
        yield start, x, y
