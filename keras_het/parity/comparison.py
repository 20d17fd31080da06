"""Comparison of recordings of one model on different backends, with NumPy alone."""

import dataclasses
import functools
import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_het.base.refusal import refuse_if
from keras_het.base.tables import align_columns, number_of
from keras_het.base.validation import check_number
from keras_het.parity.arrays import ALLOWED_ROUNDINGS, ROUNDOFF, Numbers, Row, Slices, describe_nan, has_nan, measure
from keras_het.parity.recording import NOT_DETERMINISTIC, PARTS, SECOND, Recording

EXACT = ("weights", "saved weights")
BLURRED = 1e-3  # with a larger relative rounding, float32 hides faults that float64 shows
UNKNOWN = 1e-2  # with a larger one, float32 hides a fault of ten percent
TABLE_ROWS = 12
_NAMES_IN_NOTE = 5
_LOW_PRECISION = {"float16": 8 * 2.0**-11, "bfloat16": 8 * 2.0**-8}  # four units in the last place
_CONSTANTS = 2.0**-26  # a model in float64 can have constants in float32, such as a learning rate
_NEGLIGIBLE = 1e-6  # of the rounding in float32: smaller differences in float64 do not show in float32
_INSIDE = 10.0  # roundings inside an operation, as in a softmax next to 0 or 1, exceed what changed inputs show
_ZERO = 1e-3  # of the rounding in float32
_FAR = 3.0  # a backend is the odd one if the others are three times as near to each other
_FEW_BITS = 2.0**-14, 2.0**-5  # errors of TensorFloat-32 and bfloat16, not of float32
_FORWARD = ("weights", "layers", "predictions", "layers in training")


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
        where, names = first.place, list(dict.fromkeys(row.name for row in self.rows if row.part == first.part))
        trained = {row.name for row in self.rows if row.part == "gradients"}
        if first.part.startswith("gradients"):
            last = [row for row in self.different if row.part == first.part][-1]
            following = names[names.index(last.name) + 1 :]
            first = max((row for row in self.different if row[:2] == last[:2]), key=lambda row: row.ratio)
            where = f"{first.part}: `{first.name}` is the last weight that differs"
            where += f", and `{following[0]}` after it agrees" if following else ""
        elif first.part == "training" and trained:
            is_trained = first.name.partition(", step")[0] in trained
            why = "all gradients agree, so it is the optimizer" if is_trained else "a state, not a trained weight"
            where += f" ({why})"
        figures = first.message or f"difference {first.difference:.1e}, limit {first.limit:.1e}"
        if not first.message and first.at:
            figures += f", at {list(first.at)}: {first.values[0]:.6g} and {first.values[1]:.6g}; "
            figures += f"{'100' if first.fraction == 1 else f'{100 * first.fraction:.2g}'}% of the entries differ"
        return f"{self._culprit(first)}, first in {where}: {figures}."

    def _culprit(self, first: Row) -> str:
        """Returns which backend differs from the others, or which two differ."""
        if first.part.startswith("saved"):
            saver, loader = (label.rpartition(", ")[0] for label in (first.first, first.second))
            return f"a model that {saver} saves and {loader} loads is not the same"
        rows = [row for row in self.rows if row[:2] == first[:2]]
        own = sorted({row.first for row in rows if row.second == f"{row.first} float64" and row.ratio > 1})
        odd = own[0] if len(own) == 1 else self.odd_one(first)
        if odd:
            others = [label for label in self.labels if label != odd]
            return f"{odd} differs from {_join([*others, 'its own float64'] if len(own) == 1 else others)}"
        if own:
            return f"{_join(own)} differ from float64"
        worst = max(rows, key=lambda row: row.ratio)
        return f"{worst.first} and {worst.second} differ"

    def odd_one(self, first: Row) -> str | None:
        """Returns the backend that is far from all others in an array, while they are near to each other, or None."""
        pairs = [row for row in self.rows if row[:2] == first[:2] and row.second in self.labels]
        for label in self.labels if len(self.labels) > 2 else ():
            smallest = min((row.ratio for row in pairs if label in row[2:4]), default=0.0)
            largest = max((row.ratio for row in pairs if label not in row[2:4]), default=np.inf)
            if smallest > max(1.0, _FAR * largest if largest > 1 else 0.0):
                return label
        return None

    def _table(self, all_rows: bool) -> list[str]:
        rows = shown = [row for row in self.rows if row.difference or row.part not in EXACT]
        if not all_rows:
            above = sum(row.ratio > 1 for row in rows)
            shown = sorted(rows, key=lambda row: -row.ratio)[: max(TABLE_ROWS, min(above, 2 * TABLE_ROWS))]
        head = ["part", "name", "backends", "difference", "limit", "times rounding", "at", "values"]
        rest = [f"... and {number_of(len(rows) - len(shown), 'smaller row')}"] if len(rows) > len(shown) else []
        return [*align_columns([head, *map(_cells, shown)], left=(0, 1, 2, 6, 7)), *rest]


def _cells(row: Row) -> list[str]:
    name = row.name if len(row.name) <= 44 else f"...{row.name[-41:]}"
    times = f"{row.difference / row.rounding:.1f}" if row.rounding and np.isfinite(row.difference) else "-"
    at = ",".join(map(str, row.at)) if row.difference else ""
    values = row.message or (f"{row.values[0]:.6g} {row.values[1]:.6g}" if row.difference else "")
    figures = [f"{row.difference:.1e}", f"{row.limit:.1e}", times]
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
    agree there, each backend's float32 is compared with its own float64, with a hundred roundings as the limit: some
    operations round more inside than their inputs show. Where that hides a fault of ten percent, the result says so.

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
    if not backends:  # all in float64: then these are the backends
        backends = list(recordings)
    refuse_if(len(backends) < 2, "recordings", "be at least two", len(recordings))
    for other in recordings[1:]:
        _check_same_model(recordings[0], other)
    named = dict(zip(_labels(backends), backends, strict=True))
    exact = {
        label: other
        for label, backend in named.items()
        for other in recordings
        if other.precision == "float64" and other not in backends
        and (other.label, other.versions) == (backend.label, backend.versions)
    }  # fmt: skip
    omitted = dict.fromkeys(name for recording in recordings for name in recording.omitted)
    judge = _Judge(named, exact, tolerance)
    rows = [
        row
        for part in PARTS
        for name in dict.fromkeys(name for each in backends for name in each.arrays.get(part, ()))
        if not _is_left_out(name, omitted, skip)
        for row in judge.rows(part, name)
    ]
    refuse_if(not rows, "recordings", "have an array to compare", "none")
    notes = [*judge.notes(), *dict.fromkeys(note for each in recordings for note in each.notes), *_notes(rows, omitted)]
    versions = list_versions(recordings)
    return Comparison(list(named), rows, notes, _failures(named), versions, judge.not_finite, len(exact) == len(named))


def needs_float64(result: Comparison) -> bool:
    """True if float32 cannot judge, or shows a difference that can be rounding or reduced precision."""
    if not result.different:
        return any(max(row.rounding, row.blur) > BLURRED or not row.is_judged for row in result.rows)
    first = result.different[0]
    is_clear = first.part in _FORWARD and first.difference > _FEW_BITS[1]
    return not (is_clear and result.odd_one(first))


def convicted_by_float64(result: Comparison) -> list[str]:
    """Returns the backends whose float32 and float64 differ. More runs can show that it is rounding."""
    return list(dict.fromkeys(row.first for row in result.different if row.second == f"{row.first} float64"))


class _Judge:
    """Judge of the arrays of several recordings, each by its label, and in float64 for the backends that have it."""

    def __init__(self, backends: dict[str, Recording], exact: dict[str, Recording], tolerance: float) -> None:
        self.backends, self.exact, self.tolerance = backends, exact, tolerance
        self.not_finite: list[str] = []
        self.nan_in_second: list[str] = []
        self.excused: dict[str, float] = {}
        self.few_bits: dict[str, str] = {}
        self.impurity = 0.0  # error of outputs in float64 that rounding does not explain

    def rows(self, part: str, name: str) -> list[Row]:
        """Returns the rows of an array: of every pair of backends, and of a backend that its own float64 convicts."""
        numbers = {label: each.find(part, name) for label, each in self.backends.items() if each.has(part)}
        rows = self._pairs(part, name, numbers)
        if part in EXACT or not rows or any(row.message for row in rows):
            return rows
        if all(has_nan(array) for array, _ in numbers.values()):  # made inputs can be outside a model's domain
            nan = self.nan_in_second if part.endswith(SECOND) else self.not_finite
            nan.append(f"{part} of `{name}`" if name else part)
        doubles = {label: self.exact[label].find(part, name) for label in numbers if label in self.exact}
        if len(doubles) == len(numbers) and all(array is not None for array, _ in doubles.values()):
            return self._judge(rows, numbers, doubles)
        is_judged = _blur(numbers) <= UNKNOWN or not any(row.difference for row in rows)
        return [row._replace(is_judged=is_judged or row.ratio > 1, blur=_blur(numbers)) for row in rows]

    def _judge(self, rows: list[Row], numbers: Numbers, doubles: Numbers) -> list[Row]:
        """Returns rows that float64 has judged."""
        part, name = rows[0][:2]
        exact = doubles
        # If a backend computes a part of float64 in float32, as JAX in attention, the error spreads like rounding.
        share = min(1.0, max(_NEGLIGIBLE, self.impurity / ROUNDOFF["float32"]))
        doubles = {label: (array, own.join(numbers[label][1].times(share))) for label, (array, own) in exact.items()}
        in_float64 = self._pairs(part, name, doubles, ["float64"])
        if any(row.ratio > 1 for row in in_float64) and not any(row.message for row in in_float64):
            doubles = _without_zeros(doubles, functools.reduce(Slices.join, (each for _, each in numbers.values())))
            in_float64 = self._pairs(part, name, doubles, ["float64"])
        if any(row.ratio > 1 for row in in_float64):
            return [max(pair, key=lambda row: row.ratio) for pair in zip(rows, in_float64, strict=True)]
        if part in _FORWARD or part == "loss":
            for first, second in itertools.combinations(exact, 2):
                roundings = exact[first][1], exact[second][1]
                error = measure(doubles[first][0], doubles[second][0], roundings, roundoff=ROUNDOFF["float64"])
                self.impurity = max(self.impurity, error.difference if error.ratio > 1 else 0.0)
        own = [self._own(part, name, label, *numbers[label], doubles[label][0]) for label in numbers]
        convicted = [row for row in own if row.ratio > 1]
        is_another_function = len(convicted) == len(own) and all(row.ratio <= 1 for row in rows)
        if convicted and not is_another_function:
            return [*rows, *convicted]
        worst = max(row.difference if row.ratio > 1 else 0.0 for row in rows)
        if worst:
            self.excused[f"{part} of `{name}`"] = worst
        is_zero = all(rounding.relative_to(array) >= UNKNOWN for array, rounding in doubles.values())
        is_zero &= any(rounding.relative_to(array) >= UNKNOWN for array, rounding in exact.values())
        hidden = _blur({label: (doubles[label][0], numbers[label][1]) for label in numbers})
        is_judged = is_zero or hidden * _INSIDE <= UNKNOWN or not any(row.difference for row in rows)
        return [row._replace(limit=max(row.limit, row.difference), is_judged=is_judged) for row in rows]

    def _own(self, part: str, name: str, label: str, single: Any, rounding: Slices, double: Any) -> Row:
        """Returns the row of a backend's own numbers in float32 and float64."""
        wide = [rounding.times(_INSIDE)]
        row = self._measure(part, single, double.astype(single.dtype), wide, [self.backends[label].precision])
        if row.ratio > 1:  # only its first error tells, because an error spreads
            is_reduced = _FEW_BITS[0] < row.difference < _FEW_BITS[1]
            text = f"`{name}` with {-np.log2(row.difference):.0f} bits" if is_reduced else ""
            self.few_bits.setdefault(label, text)
        return row._replace(part=part, name=name, first=label, second=f"{label} float64")

    def _pairs(self, part: str, name: str, numbers: Numbers, precisions: Sequence[str] = ()) -> list[Row]:
        rows = []
        for pair in itertools.combinations(numbers, 2):
            (a, b), roundings = zip(*(numbers[label] for label in pair), strict=True)
            used = precisions or [self.backends[label].precision for label in pair]
            row = measure(a, b) if part in EXACT else self._measure(part, a, b, roundings, used)
            if row.message == "NaN":
                row = row._replace(message=describe_nan(numbers))
            rows.append(row._replace(part=part, name=name, first=pair[0], second=pair[1]))
        return rows

    def _measure(self, part: str, a: Any, b: Any, roundings: Sequence[Slices], precisions: Sequence[str]) -> Row:
        precision = next(name for name in ROUNDOFF if name in precisions)
        roundoff, low = max(ROUNDOFF[precision], _CONSTANTS), _LOW_PRECISION.get(precision, 0.0)
        if precision == "float64" and part == "training":  # Adam on TensorFlow has its powers of beta in float32
            low = self.tolerance
        return measure(a, b, roundings, tolerance=self.tolerance, roundoff=roundoff, slice_tolerance=low)

    def notes(self) -> Iterator[str]:
        """Yields what float64 excused, and the backends that compute in few bits."""
        for label, text in ((label, text) for label, text in self.few_bits.items() if text):
            reason = "as TensorFloat-32 (10 bits) or bfloat16 (7 bits) do. float64 agrees"
            yield f"{label} seems to compute {text}, {reason}, so turn off reduced precision to compare float32"
        if self.nan_in_second:
            yield f"these are NaN on every backend, and are not compared: {_some(self.nan_in_second)}"
        if self.excused:
            largest = f"the largest difference is {max(self.excused.values()):.1e}"
            text = "these numbers differ, but not in float64, and rounding alone changes them as much"
            yield f"{text} ({largest}): {_some(self.excused)}"


def _labels(recordings: Sequence[Recording]) -> list[str]:
    """Returns a label for each recording. If two are equal, it has the versions or the device that differ."""
    labels = [each.label + (" float64" if each.precision == "float64" else "") for each in recordings]
    for part in sorted({name for each in recordings for name in each.versions}, key=lambda name: name == "device"):
        values = [each.versions.get(part, "?") for each in recordings]
        if len(set(labels)) < len(labels) and len(set(values)) > 1:
            word = "" if part == "device" else f"{part} "
            labels = [f"{label} ({word}{value})" for label, value in zip(labels, values, strict=True)]
    is_clear = len(set(labels)) == len(labels)
    return labels if is_clear else [f"{label}, recording {number}" for number, label in enumerate(labels, 1)]


def list_versions(recordings: Iterable[Recording]) -> list[str]:
    """Returns the packages of recordings with their versions, and the devices, each once."""
    return sorted({f"{name} {version}" for recording in recordings for name, version in recording.versions.items()})


def _check_same_model(first: Recording, other: Recording) -> None:
    weights = [recording.arrays.get("weights", {}) for recording in (first, other)]
    for name in dict.fromkeys(itertools.chain(*weights)):
        a, b = (named[name].shape if name in named else None for named in weights)
        received = f"{name} of shape {a} on {first.label}, {b} on {other.label}"
        refuse_if(a != b, "recordings", "be of one model, with weights of equal names and shapes", received)
    plans = [f"steps={recording.steps}, batch_size={recording.batch_size}" for recording in (first, other)]
    refuse_if(plans[0] != plans[1], "recordings", "have equal steps and batch sizes", " and ".join(plans))
    for name in dict.fromkeys((*first.batch, *other.batch)):
        is_missing = name not in first.batch or name not in other.batch
        refuse_if(is_missing, "recordings", "be of one batch", f"`{name}` in one recording alone")
        rule = "be of one batch: `record(model, start=other)` uses the weights and the batch of another recording"
        received = f"different numbers in `{name}` on {first.label} and {other.label}"
        refuse_if(measure(first.batch[name], other.batch[name]).ratio > 1, "recordings", rule, received)


def _blur(numbers: Numbers) -> float:
    """Returns the largest rounding of some arrays, relative to their largest entries."""
    return max((rounding.relative_to(array) for array, rounding in numbers.values() if not has_nan(array)), default=0.0)


def _without_zeros(doubles: Numbers, rounding: Slices) -> Numbers:
    """Returns arrays of float64 with zeros for entries that are zero in theory.

    Some backends compute a part of float64 in float32. So an entry is zero if one backend has next to nothing there,
    and no backend has more than what float32 rounds.
    """
    sizes = [np.abs(array) for array, _ in doubles.values()]
    if not all(map(np.any, sizes)):  # a missing gradient, not a rounded zero
        return doubles
    bound = rounding.entries(sizes[0].shape)
    is_zero = np.minimum.reduce(sizes) <= _ZERO * bound
    is_zero &= np.maximum.reduce(sizes) <= ALLOWED_ROUNDINGS * bound
    return {label: (np.where(is_zero, 0.0, array), own) for label, (array, own) in doubles.items()}


def _is_left_out(name: str, omitted: Container[str], skip: Iterable[str]) -> bool:
    """True for a layer in a loop, and for a layer to skip, the layers in it, and their weights.

    Names are such as "block/dense (Dense), call 2" and "block/dense/kernel, step 2". The number of the call does not
    count, because a loop of 5 steps is 5 calls, or one trace on JAX.
    """
    path = name.partition(" (")[0].partition(", ")[0].split("/")
    return name.partition("), ")[0].removesuffix(")") + ")" in omitted or not set(skip).isdisjoint(path)


def _notes(rows: list[Row], omitted: Iterable[str]) -> Iterator[str]:
    if omitted:
        yield f"layers inside a loop are compared as part of the layer around them: {_some(omitted)}"
    if weights := dict.fromkeys(row.name for row in rows if row.part == "weights" and row.ratio > 1):
        yield (
            f"these starting weights differ, so all later numbers differ: {_some(weights)}. Use "
            "`record(model, start=other)`. If both backends loaded one file, the file does not hold these weights"
        )
    if infinite := dict.fromkeys(row.place for row in rows if row.message):
        yield f"these arrays cannot be compared on some backends: {_some(infinite)}"


def _failures(backends: dict[str, Recording]) -> list[str]:
    parts = [part for part in PARTS if any(part in recording.arrays for recording in backends.values())]
    texts = []
    for label, recording in backends.items():
        missing = {part: "not in the recording" for part in parts if not recording.has(part)}
        texts += [f"{part} on {label}: {text}" for part, text in (recording.failures or missing).items()]
    return texts


def _some(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - _NAMES_IN_NOTE} more" if len(names) > _NAMES_IN_NOTE else ""
    return ", ".join(names[:_NAMES_IN_NOTE]) + more


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
