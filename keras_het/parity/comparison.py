"""Comparison of recordings of one model on different backends, with NumPy alone."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.refusal import refuse_if
from keras_het.base.tables import align_columns, number_of
from keras_het.base.validation import check_number
from keras_het.parity.arrays import ALLOWED_ROUNDINGS, ROUNDOFF, Difference, Slices, describe_nan, has_nan, measure
from keras_het.parity.arrays import relative as relative_rounding
from keras_het.parity.recording import NOT_DETERMINISTIC, PARTS, Recording

EXACT = ("weights", "saved weights")
BLURRED = 1e-3  # with a larger relative rounding, float32 hides faults that float64 shows
UNKNOWN = 1e-2  # with a larger one, float32 hides a fault of ten percent
TABLE_ROWS = 12
_NAMES_IN_NOTE = 5
_LOW_PRECISION = {"float16": 8 * 2.0**-11, "bfloat16": 8 * 2.0**-8}  # four units in the last place
_CONSTANTS = 2.0**-26  # a model in float64 can have constants in float32, such as a learning rate
_NEGLIGIBLE = 1e-6  # of the rounding in float32: smaller differences in float64 do not show in float32
_ZERO = 1e-3  # of the rounding in float32
_FAR = 3.0  # a backend is the odd one if the others are three times as near to each other
_FEW_BITS = 2.0**-14, 2.0**-5  # errors of TensorFloat-32 and bfloat16, not of float32
_IN_TRAINING = "layers in training"
_FORWARD = ("weights", "layers", "predictions", _IN_TRAINING)


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
        message: "", or why the arrays cannot be compared, such as other shapes.
        is_judged: False if rounding hides a fault of ten percent.
    """

    part: str
    name: str
    first: str
    second: str
    difference: float
    limit: float
    rounding: float = 0.0
    at: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)
    fraction: float = 0.0
    message: str = ""
    is_judged: bool = True

    @property
    def ratio(self) -> float:
        """Difference in units of the limit. Above 1, the backends differ."""
        return Difference(self.difference, self.limit).ratio

    @property
    def place(self) -> str:
        """The part, and the name if there is one."""
        return f"{self.part}, `{self.name}`" if self.name else self.part


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between recordings. It prints the answer, a table of the largest differences, and notes.

    Attributes:
        labels: names of the recordings.
        rows: list of `Row`, in the order in which an error spreads through a model. `pandas.DataFrame(rows)` makes a
            table.
        notes: texts about numbers that cannot be equal, and the reasons.
        failures: texts about parts that a backend could not compute, and the errors.
        versions: packages that computed the recordings, such as "jax 0.10.2".
        not_finite: names of arrays with NaN on every backend.
        has_float64: True if every backend has a recording in float64 too.
    """

    labels: list[str]
    rows: list[Row]
    notes: list[str]
    failures: list[str]
    versions: list[str] = dataclasses.field(default_factory=list)
    not_finite: list[str] = dataclasses.field(default_factory=list)
    has_float64: bool = False

    @property
    def worst(self) -> Row:
        """Row with the largest difference in units of its limit."""
        return max(self.rows, key=lambda row: row.ratio)

    @property
    def different(self) -> list[Row]:
        """Rows above their limits, in the order of `rows`."""
        return [row for row in self.rows if row.ratio > 1]

    @property
    def unjudged(self) -> list[str]:
        """Arrays in which rounding hides a fault of ten percent, such as "gradients of `head/kernel`"."""
        return list(dict.fromkeys(f"{row.part} of `{row.name}`" for row in self.rows if not row.is_judged))

    @property
    def is_equal(self) -> bool:
        """True if every backend computed every part, every number could be judged, and none is above its limit."""
        return self.status() == 0

    @property
    def is_random(self) -> bool:
        """True if a second call of the model returned different outputs on a backend."""
        return any(NOT_DETERMINISTIC in text for text in self.failures)

    @property
    def first_layer(self) -> str | None:
        """First layer, in the order of calls, whose outputs differ, or None."""
        return next((row.name for row in self.different if row.part.startswith("layers")), None)

    def status(self) -> int:
        """Returns 0 if the backends agree, 1 if they differ or are not deterministic, 2 if a part failed.

        3 stands for numbers that agree, of which some cannot be judged.
        """
        if self.different or self.is_random:
            return 1
        return 2 if self.failures else 3 if self.unjudged or self.not_finite else 0

    def __str__(self) -> str:
        return self.text()

    def text(self, *, all_rows: bool = False) -> str:
        """Returns what `print` shows, with every row in the order of the model if you ask for all."""
        notes = [*(f"Failed: {text}" for text in self.failures), *(f"Note: {text}" for text in self.notes)]
        versions = [f"Versions: {', '.join(self.versions)}"] if self.versions else []
        end = [*notes, *versions]
        return "\n".join([self.answer(), "", *self._table(all_rows), *([""] if end else []), *end])

    def answer(self) -> str:
        """Returns the verdict: the backends agree, one of them differs first in a named place, or what is unknown."""
        if self.is_random:
            return f"{next(text for text in self.failures if NOT_DETERMINISTIC in text)}."
        names = _join(self.labels)
        if self.different:
            return self._describe(self.different[0])
        if self.failures:
            count = len(self.failures)
            return f"{names} agree on all that they could compute, but {number_of(count, 'part')} failed."
        unknown = []
        if self.not_finite:
            what = f"{number_of(len(self.not_finite), 'array')} with NaN on every backend"
            unknown.append(f"{what} cannot be compared: first {self.not_finite[0]}")
        if self.unjudged:
            total = len({(row.part, row.name) for row in self.rows if row.part not in EXACT})
            where = " in float32" if self.has_float64 else ""
            unknown.append(f"{len(self.unjudged)} of {total:,} arrays cannot be judged{where}: {_some(self.unjudged)}")
        if unknown:
            return f"{names} agree{' in float64' if self.has_float64 else ''}, but {'; '.join(unknown)}."
        return f"{names} agree: {len(self.rows):,} differences are within their limits."

    def _describe(self, first: Row) -> str:
        """Returns which backend differs, and where first."""
        if first.part.startswith("gradients"):
            last = [row for row in self.different if row.part == first.part][-1]
            names = list(dict.fromkeys(row.name for row in self.rows if row.part == first.part))
            following = names[names.index(last.name) + 1 :]
            first = max((row for row in self.different if row[:2] == last[:2]), key=lambda row: row.ratio)
            where = f"{first.part}: `{first.name}` is the last weight that differs"
            where += f", and `{following[0]}` after it agrees" if following else ""
        elif first.part == "training" and any(row.part == "gradients" for row in self.rows):
            weights = {row.name for row in self.rows if row.part == "gradients"}
            is_state = first.name.partition(", step")[0] not in weights
            why = "a state, not a trained weight" if is_state else "all gradients agree, so it is the optimizer"
            where = f"{first.place} ({why})"
        else:
            where = first.place
        figures = first.message or f"difference {first.difference:.1e}, limit {first.limit:.1e}"
        if not first.message and first.at:
            figures += f", at {list(first.at)}: {first.values[0]:.6g} and {first.values[1]:.6g}"
            figures += f"; {_percent(first.fraction)} of the entries differ"
        return f"{self._culprit(first)}, first in {where}: {figures}."

    def _culprit(self, first: Row) -> str:
        """Returns which backend differs from the others, or which two differ."""
        if first.part.startswith("saved"):
            loader = first.second.removesuffix(", loaded")
            return f"a model that {first.first} saves and {loader} loads is not the same"
        rows = [row for row in self.rows if row[:2] == first[:2]]
        own = {row.first for row in rows if row.second == f"{row.first} float64" and row.ratio > 1}
        others = [label for label in self.labels if label not in own]
        if len(own) == 1:
            (culprit,) = own
            return f"{culprit} differs from {_join([*others, 'its own float64'])}"
        pairs = [row for row in rows if row.second in self.labels]
        if odd := self.odd_one(first):
            return f"{odd} differs from {_join([label for label in self.labels if label != odd])}"
        if len(own) > 1:
            return f"{_join(sorted(own))} differ from float64"
        worst = max(pairs, key=lambda row: row.ratio)
        return f"{worst.first} and {worst.second} differ"

    def odd_one(self, first: Row) -> str | None:
        """Returns the backend that is far from all others in an array, while they are near to each other, or None."""
        return _odd_one(self.labels, [row for row in self.rows if row[:2] == first[:2] and row.second in self.labels])

    def _table(self, all_rows: bool) -> list[str]:
        rows = [row for row in self.rows if row.difference or row.part not in EXACT]
        above = sum(row.ratio > 1 for row in rows)
        shown = rows
        if not all_rows:
            shown = sorted(rows, key=lambda row: -row.ratio)[: max(TABLE_ROWS, min(above, 2 * TABLE_ROWS))]
        head = ["part", "name", "backends", "difference", "limit", "times rounding", "at", "values"]
        cells = [head, *map(self._cells, shown)]
        rest = [f"... and {number_of(len(rows) - len(shown), 'smaller row')}"] if len(rows) > len(shown) else []
        return [*align_columns(cells, left=(0, 1, 2, 6, 7)), *rest]

    def _cells(self, row: Row) -> list[str]:
        name = row.name if len(row.name) <= 44 else f"...{row.name[-41:]}"
        times = f"{row.difference / row.rounding:.1f}" if row.rounding and np.isfinite(row.difference) else "-"
        figures = [f"{row.difference:.1e}", f"{row.limit:.1e}", times]
        at = ",".join(map(str, row.at)) if row.difference else ""
        values = row.message or (f"{row.values[0]:.6g} {row.values[1]:.6g}" if row.difference else "")
        return [row.part, name, f"{row.first} - {row.second}", *figures, at, values]


def compare(*recordings: Recording, tolerance: float = 1e-5, skip: Sequence[str] = ()) -> Comparison:
    """Compares what one model computes on different backends, versions or machines.

    Two entries a and b are equal if

        |a - b| <= tolerance max(|a|, |b|) + 10 rounding

    `record` measures the rounding: it changes the weights and inputs by up to one unit in the last place, several
    times. The rounding of an entry is the largest change in its row or in its column, whichever is smaller, and at
    least four units in the last place of the largest number there. So a small number beside large ones has its own
    limit, and a deep network does not fail because it is deep. Starting weights must be equal bit for bit.

    If each backend has a recording in float64 too, float64 judges both ways. Numbers that differ there, differ. If they
    agree there, each backend's float32 is compared with its own float64. A difference is excused only if the rounding
    of that backend is as large. Where it hides a fault of ten percent in float32, the result says so.

    Args:
        recordings: two or more results of `record`. A recording in float64 has the label of its backend.
        tolerance: difference that always counts as equal, relative to the entry. If a layer computes in float16 or
            bfloat16, it is at least four units in the last place of that dtype, for all layers.
        skip: names of layers that are not compared, and neither are their weights.
    Raises:
        ValueError: if there are fewer than two recordings, or if their models, batches or training steps differ.

    Example:
        >>> weights = {"kernel": np.ones(2, "float32")}
        >>> jax, torch = (
        ...     Recording(name, arrays={"weights": weights, "loss": {"": np.array(loss)}})
        ...     for name, loss in (("jax", 1.0), ("torch", 1.5))
        ... )
        >>> print(compare(jax, torch).answer())
        jax and torch differ, first in loss: difference 3.3e-01, limit 1.2e-05.
    """
    check_number("tolerance", tolerance, above=0.0)
    other = next((each for each in recordings if not isinstance(each, Recording)), None)
    refuse_if(other is not None, "recordings", "be results of `record`, or of `Recording.load(path)`", kind=other)
    backends = [recording for recording in recordings if recording.precision != "float64"]
    if len(backends) < 2:  # all in float64: then these are the backends
        backends = list(recordings)
    refuse_if(len(backends) < 2, "recordings", "be at least two", len(recordings))
    for other in recordings[1:]:
        _check_same_model(recordings[0], other)
    labels = _labels(backends)
    exact = {each.label: each for each in recordings if each.precision == "float64" and each not in backends}
    references = [exact.get(recording.label) for recording in backends]
    omitted = {name for recording in recordings for name in recording.omitted}
    judge = _Judge(dict(zip(labels, backends, strict=True)), dict(zip(labels, references, strict=True)), tolerance)
    rows = [
        row
        for part in PARTS
        for name in _names(backends, part)
        if _layer(name) not in omitted and not any(each in _parts_of(name) for each in skip)
        for row in judge.rows(part, name)
    ]
    notes = [*judge.notes(), *_notes(recordings, rows)]
    return Comparison(
        labels, rows, notes, _failures(labels, backends), list_versions(recordings), judge.not_finite,
        all(reference is not None for reference in references),
    )  # fmt: skip


def needs_float64(result: Comparison) -> bool:
    """True if float32 cannot judge, or shows a difference that can be rounding or reduced precision."""
    if not result.different:
        return any(row.rounding > BLURRED or not row.is_judged for row in result.rows)
    first = result.different[0]
    is_clear = first.part in _FORWARD and first.difference > _FEW_BITS[1]
    return not (is_clear and len(result.labels) > 2 and result.odd_one(first))


def needs_more_roundings(result: Comparison) -> bool:
    """True if numbers differ in float32 alone, so that more runs can show that it is rounding."""
    return any(row.second == f"{row.first} float64" for row in result.different)


class _Judge:
    """Judge of the arrays of several recordings.

    Args:
        backends: {label: recording}.
        exact: {label: recording of the same backend in float64, or None}.
        tolerance: relative tolerance of an entry.
    """

    def __init__(self, backends: dict[str, Recording], exact: dict[str, Recording | None], tolerance: float) -> None:
        self.backends, self.exact, self.tolerance = backends, exact, tolerance
        self.not_finite: list[str] = []
        self.excused: dict[str, float] = {}
        self.few_bits: dict[str, str] = {}
        self.impurity = 0.0  # error of outputs in float64 that rounding does not explain

    def rows(self, part: str, name: str) -> list[Row]:
        """Returns the rows of an array: of every pair of backends, and of a backend that its own float64 convicts."""
        computed = {label: each for label, each in self.backends.items() if _has(each, part)}
        arrays = {label: _find(each, part, name) for label, each in computed.items()}
        if part not in EXACT and arrays and all(a is not None and has_nan(a) for a in arrays.values()):
            self.not_finite.append(f"{part} of `{name}`" if name else part)
        roundings = {label: _rounding(each, part, name) for label, each in computed.items()}
        pairs = [
            self._pair(part, name, pair, arrays, roundings, self._precision(pair))
            for pair in itertools.combinations(computed, 2)
        ]
        if any(row.message == "NaN" for row in pairs):
            text = describe_nan({label: array for label, array in arrays.items() if array is not None})
            pairs = [row._replace(message=text) if row.message == "NaN" else row for row in pairs]
        if part in EXACT or not pairs or any(row.message for row in pairs):
            return pairs
        exact = {label: self.exact[label] for label in computed}
        if any(each is None or _find(each, part, name) is None for each in exact.values()):
            known = {label: array for label, array in arrays.items() if array is not None and not has_nan(array)}
            scale = [relative_rounding(roundings[label], array) for label, array in known.items()]
            is_judged = max(scale, default=0.0) <= UNKNOWN or not any(row.difference for row in pairs)
            return [row._replace(is_judged=is_judged or row.ratio > 1) for row in pairs]
        return self._with_float64(part, name, pairs, arrays, roundings, exact)

    def _with_float64(
        self, part: str, name: str, pairs: list[Row], arrays: dict, roundings: dict, exact: dict
    ) -> list[Row]:
        """Returns rows that float64 has judged."""
        doubles: dict[str, Any] = {label: _find(each, part, name) for label, each in exact.items()}
        own_roundings = {label: _rounding(each, part, name) for label, each in exact.items()}
        # If a backend computes a part of float64 in float32, as JAX in attention, the error spreads like rounding.
        share = min(1.0, max(_NEGLIGIBLE, self.impurity / ROUNDOFF["float32"]))
        seen = {label: own_roundings[label].join(roundings[label].times(share)) for label in doubles}
        in_float64 = [self._pair(part, name, (row.first, row.second), doubles, seen, "float64") for row in pairs]
        if any(row.ratio > 1 for row in in_float64):
            doubles = _without_zeros(doubles, functools.reduce(Slices.join, roundings.values()))
            in_float64 = [self._pair(part, name, row[2:4], doubles, seen, "float64") for row in pairs]
        if any(row.ratio > 1 for row in in_float64):
            return [max(row, other, key=lambda each: each.ratio) for row, other in zip(pairs, in_float64, strict=True)]
        if part in _FORWARD or part == "loss":
            for first, second in itertools.combinations(doubles, 2):
                rounding = own_roundings[first].join(own_roundings[second])
                error = measure(doubles[first], doubles[second], rounding, roundoff=ROUNDOFF["float64"])
                self.impurity = max(self.impurity, error.difference if error.ratio > 1 else 0.0)
        own = [self._own(part, name, label, arrays[label], doubles[label], roundings[label]) for label in arrays]
        convicted = [row for row in own if row.ratio > 1]
        if len(convicted) == len(own) and all(row.ratio <= 1 for row in pairs):
            convicted = []  # float32 is another function than float64, the same on every backend
        if not convicted:
            for row in pairs:
                if row.ratio > 1:
                    place = f"{part} of `{name}`"
                    self.excused[place] = max(row.difference, self.excused.get(place, 0.0))
        size = max(map(_size, doubles.values()))
        is_zero = all(_size_of(seen[label]) * ALLOWED_ROUNDINGS >= 0.1 * size for label in doubles)
        hidden = max((relative_rounding(roundings[label], doubles[label]) for label in doubles), default=0.0)
        is_judged = bool(is_zero or hidden <= UNKNOWN or convicted or not any(row.difference for row in pairs))
        kept = [self._excuse(row, bool(convicted))._replace(is_judged=is_judged) for row in pairs]
        return [*kept, *convicted]

    def _excuse(self, row: Row, is_convicted: bool) -> Row:
        """Returns a row within its limit, if float64 agrees and no backend is too far from its own."""
        return row if is_convicted or row.ratio <= 1 else row._replace(limit=row.difference)

    def _own(self, part: str, name: str, label: str, single: Any, double: Any, rounding: Slices) -> Row:
        """Returns the row of a backend's own numbers in float32 and float64."""
        precision = self.backends[label].precision
        difference = self._measure(single, double.astype(single.dtype), rounding, precision)
        row = Row(part, name, label, f"{label} float64", *difference)
        if row.ratio > 1:  # only its first error tells, because an error spreads
            is_reduced = _FEW_BITS[0] < row.difference < _FEW_BITS[1]
            text = f"`{name}` with {-np.log2(row.difference):.0f} bits" if is_reduced else ""
            self.few_bits.setdefault(label, text)
        return row

    def _pair(self, part: str, name: str, pair: Any, arrays: dict, roundings: dict, precision: str) -> Row:
        first, second = pair
        a, b = arrays[first], arrays[second]
        if part in EXACT:
            return Row(part, name, first, second, *measure(a, b))
        rounding = _largest(roundings[first], roundings[second], a, b)
        return Row(part, name, first, second, *self._measure(a, b, rounding, precision, part))

    def _measure(self, a: Any, b: Any, rounding: Slices, precision: str, part: str = "") -> Difference:
        roundoff, low = max(ROUNDOFF[precision], _CONSTANTS), _LOW_PRECISION.get(precision, 0.0)
        if precision == "float64" and part == "training":  # Adam on TensorFlow has its powers of beta in float32
            low = self.tolerance
        return measure(a, b, rounding, tolerance=self.tolerance, roundoff=roundoff, slice_tolerance=low)

    def _precision(self, pair: Any) -> str:
        used = [self.backends[label].precision for label in pair]
        return next(name for name in ROUNDOFF if name in used)

    def notes(self) -> Iterator[str]:
        """Yields what float64 excused, and the backends that compute in few bits."""
        for label, text in ((label, text) for label, text in self.few_bits.items() if text):
            reason = "as TensorFloat-32 (10 bits) or bfloat16 (7 bits) do. float64 agrees"
            yield f"{label} seems to compute {text}, {reason}, so turn off reduced precision to compare float32"
        if self.excused:
            largest = f"the largest difference is {max(self.excused.values()):.1e}"
            text = "these numbers differ, but not in float64, and rounding alone changes them as much"
            yield f"{text} ({largest}): {_some(self.excused)}"


def _labels(recordings: Sequence[Recording]) -> list[str]:
    """Returns a label for each recording. If two are equal, it has the versions or the device that differ."""
    labels = [each.label + (" float64" if each.precision == "float64" else "") for each in recordings]
    for part in sorted({name for each in recordings for name in each.versions}, key=lambda name: name == "device"):
        if len(set(labels)) == len(labels):
            break
        values = {each.versions.get(part, "?") for each in recordings}
        if len(values) > 1:
            word = "" if part == "device" else f"{part} "
            labels = [
                f"{label} ({word}{each.versions.get(part, '?')})"
                for label, each in zip(labels, recordings, strict=True)
            ]
    if len(set(labels)) < len(labels):
        labels = [f"{label}, recording {number}" for number, label in enumerate(labels, 1)]
    return labels


def list_versions(recordings: Iterable[Recording]) -> list[str]:
    """Returns the packages of recordings with their versions, and the devices, each once."""
    return sorted({f"{name} {version}" for recording in recordings for name, version in recording.versions.items()})


def _check_same_model(first: Recording, other: Recording) -> None:
    shapes = [
        {name: array.shape for name, array in recording.arrays.get("weights", {}).items()}
        for recording in (first, other)
    ]
    if shapes[0] != shapes[1]:
        name = next(name for name in (*shapes[0], *shapes[1]) if shapes[0].get(name) != shapes[1].get(name))
        received = f"{name} of shape {shapes[0].get(name)} on {first.label}, {shapes[1].get(name)} on {other.label}"
        refuse_if(True, "recordings", "be of one model, with weights of equal names and shapes", received)
    plans = [f"steps={recording.steps}, batch_size={recording.batch_size}" for recording in (first, other)]
    refuse_if(plans[0] != plans[1], "recordings", "have equal steps and batch sizes", " and ".join(plans))
    for name in (*first.batch, *other.batch):
        if name not in first.batch or name not in other.batch:
            refuse_if(True, "recordings", "be of one batch", f"`{name}` in one recording alone")
        rule = "be of one batch: `record(model, start=other)` uses the weights and the batch of another recording"
        received = f"different numbers in `{name}` on {first.label} and {other.label}"
        refuse_if(measure(first.batch[name], other.batch[name]).ratio > 1, "recordings", rule, received)


def _names(recordings: Sequence[Recording], part: str) -> list[str]:
    """Returns the names of the arrays of a part, in the order of the recordings."""
    return list(dict.fromkeys(name for each in recordings for name in each.arrays.get(part, ())))


def _has(recording: Recording, part: str) -> bool:
    return part in recording.arrays or (part.startswith(_IN_TRAINING) and "layers" in recording.arrays)


def _find(recording: Recording, part: str, name: str) -> np.ndarray | None:
    """Returns an array, or None. A layer's outputs in training are those at inference if they were not recorded."""
    is_missing = recording.array(part, name) is None
    return recording.array(part.replace(_IN_TRAINING, "layers") if is_missing else part, name)


def _rounding(recording: Recording, part: str, name: str) -> Slices:
    part = part if name in recording.rounding.get(part, {}) else part.replace(_IN_TRAINING, "layers")
    return recording.rounding_of(part, name)


def _largest(first: Slices, second: Slices, a: np.ndarray | None, b: np.ndarray | None) -> Slices:
    """Returns the larger rounding, if the shapes fit."""
    if a is None or b is None or a.shape != b.shape:
        return first
    return first.join(second)


def _size(array: np.ndarray) -> float:
    return float(np.max(Slices.of(array).rows, initial=0.0))


def _size_of(rounding: Slices) -> float:
    return float(np.max(rounding.entries(), initial=0.0))


def _without_zeros(doubles: dict[str, np.ndarray], rounding: Slices) -> dict[str, np.ndarray]:
    """Returns arrays of float64 with zeros for entries that are zero in theory.

    Some backends compute a part of float64 in float32. So an entry is zero if one backend has next to nothing there,
    and no backend has more than what float32 rounds.
    """
    sizes, bound = [np.abs(array) for array in doubles.values()], rounding.entries()
    is_zero = np.minimum.reduce(sizes) <= _ZERO * bound
    is_zero &= np.maximum.reduce(sizes) <= ALLOWED_ROUNDINGS * bound
    return {label: np.where(is_zero, 0.0, array) for label, array in doubles.items()}


def _layer(name: str) -> str:
    """Returns the name of a layer without the number of its call. A loop of 5 steps is 5 calls, or one trace on JAX."""
    return name.partition("), ")[0].removesuffix(")") + ")"


@functools.cache
def _parts_of(name: str) -> set[str]:
    """Returns the names of the layers in a name such as "block/dense (Dense)" or "block/dense/kernel, step 2"."""
    return set(name.partition(" (")[0].partition(", ")[0].split("/"))


def _odd_one(labels: Sequence[str], pairs: Sequence[Row]) -> str | None:
    """Returns the label that is far from all others, which are near to each other, or None."""
    if len(labels) < 3:
        return None
    for label in labels:
        far = [row for row in pairs if label in (row.first, row.second)]
        near = [row for row in pairs if label not in (row.first, row.second)]
        smallest, largest = min(row.ratio for row in far), max(row.ratio for row in near)
        if smallest > 1 and (largest <= 1 or smallest > _FAR * largest):
            return label
    return None


def _notes(recordings: Sequence[Recording], rows: list[Row]) -> Iterator[str]:
    yield from dict.fromkeys(note for recording in recordings for note in recording.notes)
    omitted = list(dict.fromkeys(name for recording in recordings for name in recording.omitted))
    if omitted:
        yield f"layers inside a loop are compared as part of the layer around them: {_some(omitted)}"
    weights = [row.name for row in rows if row.part == "weights" and row.ratio > 1]
    if weights:
        yield (
            f"these starting weights differ, so all later numbers differ: {_some(dict.fromkeys(weights))}. Use "
            "`record(model, start=other)`. If both backends loaded one file, the file does not hold these weights"
        )
    infinite = collections.Counter(row.place for row in rows if row.message)
    if infinite:
        yield f"these arrays cannot be compared on some backends: {_some(infinite)}"


def _failures(labels: Sequence[str], backends: Sequence[Recording]) -> list[str]:
    parts = [part for part in PARTS if any(part in recording.arrays for recording in backends)]
    texts = []
    for label, recording in zip(labels, backends, strict=True):
        missing = {part: "not in the recording" for part in parts if not _has(recording, part)}
        texts += [f"{part} on {label}: {text}" for part, text in (recording.failures or missing).items()]
    return texts


def _some(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - _NAMES_IN_NOTE} more" if len(names) > _NAMES_IN_NOTE else ""
    return ", ".join(names[:_NAMES_IN_NOTE]) + more


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(fraction: float) -> str:
    return "100%" if fraction == 1 else f"{100 * fraction:.2g}%"
