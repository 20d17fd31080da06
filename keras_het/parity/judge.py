"""Comparison of recordings of one model on different backends, with NumPy alone."""

import itertools
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_number
from keras_het.parity.arrays import ROUNDOFF, Numbers, Row, Slices, describe_nan, has_nan, measure
from keras_het.parity.comparison import EXACT, UNKNOWN, Comparison, join, some
from keras_het.parity.recording import PARTS, SECOND, Recording

BLURRED = 1e-3  # with a larger relative rounding, float32 hides faults that float64 shows
_LOW_PRECISION = {"float16": 8 * 2.0**-11, "bfloat16": 8 * 2.0**-8}  # four units in the last place
_CONSTANTS = 2.0**-26  # a model in float64 can have constants in float32, such as a learning rate
_NEGLIGIBLE = 1e-6  # of the rounding in float32: smaller differences in float64 do not show in float32
_COARSE = 10.0  # times the rounding of the other backends and of float64: the rounding of fewer bits
_INSIDE = 10.0  # roundings inside an operation, as in a softmax next to 0 or 1, exceed what changed inputs show
_ISOLATED = 0.01  # of the entries, as behind one ReLU that no run took across its kink
_FEW_BITS = 2.0**-14, 2.0**-5  # errors of TensorFloat-32 and bfloat16, not of float32
_REDUCED = (
    "as TensorFloat-32 (10 bits) or bfloat16 (7 bits) do. float64 agrees, so turn off reduced precision to compare "
    "float32"
)
_FORWARD = ("weights", "layers", "predictions", "layers in training")


def compare(*recordings: Recording, tolerance: float = 1e-5, skip: Sequence[str] = ()) -> Comparison:
    """Compares what one model computes on different backends, versions or machines.

    Two entries a and b are equal if

        |a - b| <= tolerance max(|a|, |b|) + 10 rounding

    `record` measures the rounding: it changes the weights and inputs by up to one unit in the last place, several
    times. The rounding of an entry is the largest change in its row or in its column, whichever is smaller, and at
    least four units in the last place of the largest number there, but for masks, which are repeated constants. So a
    small number beside large ones has its own limit, and a deep network does not fail because it is deep. Starting
    weights must be equal bit for bit.

    If each recording has one in `float64`, float64 judges both ways. Numbers that differ there, differ. If they agree
    there, each backend's float32 is compared with its own float64. A hundred roundings are the limit of both, and of
    predictions of a saved model, whose roundings are those before the training: some operations round more inside than
    their inputs show. Where that hides a fault of ten percent, the result says so. There a backend differs from its own
    float64 only if a hundredth of the entries do, because a few runs do not reach every kink of a ReLU.

    Args:
        recordings: two or more results of `record`.
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
    refuse_if(len(recordings) < 2, "recordings", "be at least two", len(recordings))
    rule = "be in one precision. A recording in float64 judges another as its field: recording.float64 = other"
    refuse_if(len({each.precision == "float64" for each in recordings}) > 1, "recordings", rule, "some in float64")
    exact = [each.float64 for each in recordings if each.float64]
    for other in [*recordings[1:], *exact]:
        _check_same_model(recordings[0], other)
    omitted = dict.fromkeys(name for each in (*recordings, *exact) for name in each.omitted)
    judge = _Judge(dict(zip(_labels(recordings), recordings, strict=True)), tolerance)
    places = [(part, name) for part in PARTS for name in _in_order(each.arrays.get(part, ()) for each in recordings)]
    rows = [row for place in places if not _is_left_out(place[1], omitted, skip) for row in judge.rows(*place)]
    uncalled = _uncalled(rows)
    rows = [row for row in rows if not (row.message and row[:2] in uncalled)]
    refuse_if(not rows, "recordings", "have an array to compare", "none")
    own = [note for each in (*recordings, *exact) for note in each.notes]
    notes = list(dict.fromkeys([*judge.notes(rows, uncalled, omitted), *own]))
    versions, is_exact = list_versions([*recordings, *exact]), len(exact) == len(recordings)
    precision = next(name for name in ROUNDOFF if any(each.precision == name for each in recordings))
    numbers = rows, notes, list(judge.failures()), versions, judge.nan[False], is_exact
    return Comparison([*judge.backends], *numbers, precision)


def parts_for_float64(result: Comparison) -> list[str]:
    """Returns the parts that float32 cannot judge, or whose difference can be rounding or reduced precision."""
    first = next(iter(result.different), None)
    if first and first.part in _FORWARD and first.difference > _FEW_BITS[1] and result.odd_one(first):
        return []
    rows = (row for row in result.rows if max(row.ratio, row.rounding / BLURRED, row.blur / BLURRED) > 1)
    parts = list(dict.fromkeys(row.part for row in rows if row.part not in EXACT))
    return ["predictions", *parts] if parts else []  # which show how exact float64 is


def convicted_by_float64(result: Comparison) -> dict[str, list[str]]:
    """Returns the backends whose float32 and float64 differ, and the parts. More runs can show that it is rounding."""
    rows = [row for row in result.different if row.second == f"{row.first} float64"]
    return {row.first: sorted({each.part for each in rows if each.first == row.first}) for row in rows}


class _Judge:
    """Judge of the arrays of several recordings, each by its label, and in float64 for the backends that have it."""

    def __init__(self, backends: dict[str, Recording], tolerance: float) -> None:
        self.backends, self.tolerance = backends, tolerance
        self.nan: dict[bool, list[str]] = {False: [], True: []}  # {of a second batch: arrays with NaN on all}
        self.excused: dict[str, float] = {}
        self.few_bits: dict[str, str] = {}
        self.impurity = 0.0  # error of outputs in float64 that rounding does not explain

    def rows(self, part: str, name: str) -> list[Row]:
        """Returns the rows of an array: of every pair of backends, and of a backend that its own float64 convicts."""
        results = {label: each.find(part, name) for label, each in self.backends.items() if each.has(part)}
        numbers = {label: result for label, result in results.items() if result}
        rows: list[Row] = []
        for pair in itertools.combinations(results, 2):
            if len(numbers.keys() & set(pair)) == 1:
                hint = _describe_lost_name(pair, [self.backends[label].arrays.get(part, ()) for label in pair])
                rows.append(Row(part, name, *pair, difference=np.inf, message=hint or "missing"))
        return [*rows, *self._judge(part, name, numbers)]

    def _judge(self, part: str, name: str, numbers: Numbers) -> list[Row]:
        """Returns the rows of an array, judged by float64 if every backend has it."""
        rows = self._pairs(part, name, numbers)
        if part in EXACT or not rows or any(row.message for row in rows):
            return rows
        if all(has_nan(array) for array, _ in numbers.values()):  # made inputs can be outside a model's domain
            self.nan[part.endswith(SECOND)].append(rows[0].array)
        judges = {label: self.backends[label].float64 for label in numbers}
        exact = {label: number for label, each in judges.items() if each and (number := each.find(part, name))}
        if len(exact) < len(numbers):
            is_coarse = any(_coarseness(part, label, numbers, {}) > 1 for label in numbers)
            blur = np.inf if is_coarse else _blur(numbers)
            return [row._replace(blur=blur if any(each.difference for each in rows) else 0.0) for row in rows]
        # Of an array that is zero in theory, float64 leaves a millionth: the gradient of a bias before a normalization.
        # The gradient of a softmax of one key is not the same zero on each backend.
        size = _largest(numbers)
        is_zero = 0.0 < size < np.inf and _largest(exact) <= _NEGLIGIBLE * size
        if is_zero and (all(row.ratio <= 1 for row in rows) or self._is_tiny(part, numbers)):
            return [row._replace(limit=max(row.limit, row.difference)) for row in rows]
        # If float64 is float32 in a part, as a resized image on TensorFlow, the error spreads like rounding.
        share = min(1.0, max(_NEGLIGIBLE, self.impurity / ROUNDOFF["float32"]))
        doubles = {}
        for label, (array, own) in exact.items():  # some stay in float32 on some backends, such as a mask
            double = array.astype("float64") if array.dtype.kind == "f" else array
            doubles[label] = double, own.join(numbers[label][1].times(share)).times(_INSIDE)
        in_float64 = self._pairs(part, name, doubles, ["float64"])
        if any(row.ratio > 1 for row in in_float64):
            return [max(pair, key=lambda row: row.ratio) for pair in zip(rows, in_float64, strict=True)]
        if part in _FORWARD or part == "loss":
            for pair in itertools.combinations(exact, 2):
                (a, b), roundings = (doubles[label][0] for label in pair), [exact[label][1] for label in pair]
                error = measure(a, b, roundings, roundoff=ROUNDOFF["float64"])
                self.impurity = max(self.impurity, error.difference if error.ratio > 1 else 0.0)
        hidden = _INSIDE * _blur({label: (doubles[label][0], numbers[label][1]) for label in numbers})
        blur = 0.0 if is_zero or not any(row.difference for row in rows) else hidden
        own_rows = []
        for label, (array, rounding) in numbers.items():
            rounding = rounding.times(1.0 / max(1.0, _coarseness(part, label, numbers, exact)))
            own_rows.append(self._own(part, name, label, array, rounding, doubles[label][0], is_vague=blur > UNKNOWN))
        convicted = [row for row in own_rows if row.ratio > 1]
        is_another_function = len(convicted) == len(own_rows) and all(row.ratio <= 1 for row in rows)
        if convicted and not is_another_function:
            return [*rows, *convicted]
        if worst := max(row.difference if row.ratio > 1 else 0.0 for row in rows):
            self.excused[rows[0].array] = worst
        return [row._replace(limit=max(row.limit, row.difference), blur=blur) for row in rows]

    def _is_tiny(self, part: str, numbers: Numbers) -> bool:
        """True if an array is tiny beside the others of its part, so that it can be rounding alone."""
        others = (array for each in self.backends.values() for array in each.arrays.get(part, {}).values())
        return _largest(numbers) <= 10.0 * ROUNDOFF["float32"] * max(map(_size, others))

    def _own(
        self, part: str, name: str, label: str, single: Any, rounding: Slices, double: Any, *, is_vague: bool
    ) -> Row:
        """Returns the row of a backend's own numbers in float32 and float64."""
        wide = [rounding.times(_INSIDE)]
        row = self._measure(single, double.astype(single.dtype), wide, [self.backends[label].precision])
        if is_vague and row.fraction < _ISOLATED:  # the answer says that the array cannot be judged
            row = row._replace(limit=max(row.limit, row.difference))
        if row.ratio > 1:  # only its first error tells, because an error spreads
            is_reduced = _FEW_BITS[0] < row.difference < _FEW_BITS[1]
            text = f"{label} seems to compute `{name}` with {-np.log2(row.difference):.0f} bits, {_REDUCED}"
            self.few_bits.setdefault(label, text if is_reduced else "")
        return row._replace(part=part, name=name, first=label, second=f"{label} float64")

    def _pairs(self, part: str, name: str, numbers: Numbers, precisions: Sequence[str] = ()) -> list[Row]:
        rows = []
        for pair in itertools.combinations(numbers, 2):
            (a, b), roundings = zip(*(numbers[label] for label in pair), strict=True)
            if part == "saved predictions":  # of trained weights, with the roundings before the training
                roundings = tuple(each.times(_INSIDE) for each in roundings)
            used = precisions or [self.backends[label].precision for label in pair]
            row = measure(a, b) if part in EXACT else self._measure(a, b, roundings, used)
            if row.message == "NaN":
                row = row._replace(message=describe_nan(numbers))
            rows.append(row._replace(part=part, name=name, first=pair[0], second=pair[1]))
        return rows

    def _measure(self, a: Any, b: Any, roundings: Sequence[Slices], precisions: Sequence[str]) -> Row:
        precision = next(name for name in ROUNDOFF if name in precisions)
        roundoff, low = max(ROUNDOFF[precision], _CONSTANTS), _LOW_PRECISION.get(precision, 0.0)
        return measure(a, b, roundings, tolerance=self.tolerance, roundoff=roundoff, slice_tolerance=low)

    def notes(self, rows: list[Row], uncalled: Iterable[tuple[Any, ...]], omitted: Collection[str]) -> Iterator[str]:
        """Yields what is not compared, what float64 excused or could not judge, and causes of differences."""
        if omitted:
            yield f"layers inside a loop are compared as part of the layer around them: {some(omitted)}"
        if weights := dict.fromkeys(row.name for row in rows if row.part == "weights" and row.ratio > 1):
            remedy = (
                "Use `record(model, start=other)`. If both backends loaded one file, it does not hold these weights"
            )
            yield f"these starting weights differ, so all later numbers differ: {some(weights)}. {remedy}"
        lacking: dict[str, dict[str, None]] = {}
        for part, name in uncalled:
            labels = [label for label, each in self.backends.items() if each.has(part) and not each.find(part, name)]
            lacking.setdefault(join(labels), {})[name] = None
        for text, names in lacking.items():
            yield f"not called on {text}, while the next numbers agree: {some(names)}"
        yield from filter(None, self.few_bits.values())
        if self.nan[True]:
            yield f"these are NaN on every backend, and are not compared: {some(self.nan[True])}"
        if self.excused:
            largest = f"the largest difference is {max(self.excused.values()):.1e}"
            text = "these numbers differ, but not in float64, and rounding alone changes them as much"
            yield f"{text} ({largest}): {some(self.excused)}"
        for label, each in self.backends.items():
            for part, error in each.float64.failures.items() if each.float64 else ():
                yield f"{part} failed in float64 on {label}, so float32 has no judge there: {error}"

    def failures(self) -> Iterator[str]:
        """Yields the parts that a backend could not compute, or that its recording lacks."""
        known = {part for each in self.backends.values() for part in each.arrays}
        parts = [part for part in PARTS if part in known and part not in EXACT]
        for label, each in self.backends.items():
            missing = {part: "not in the recording" for part in parts if not each.has(part)}
            yield from (f"{part} on {label}: {text}" for part, text in (each.failures or missing).items())


def _labels(recordings: Sequence[Recording]) -> list[str]:
    """Returns a label for each recording. If two are equal, it has the versions or the device that differ."""
    labels = [each.label + (" float64" if each.precision == "float64" else "") for each in recordings]
    for part in sorted({name for each in recordings for name in each.versions}, key=lambda name: name == "device"):
        values = [f"{part} {each.versions.get(part, '?')}".removeprefix("device ") for each in recordings]
        if len(set(labels)) < len(labels) and len(set(values)) > 1:
            labels = [f"{label} ({value})" for label, value in zip(labels, values, strict=True)]
    is_clear = len(set(labels)) == len(labels)
    return labels if is_clear else [f"{label}, recording {number}" for number, label in enumerate(labels, 1)]


def list_versions(recordings: Iterable[Recording]) -> list[str]:
    """Returns the packages of recordings with their versions, and the devices, each once."""
    return sorted({f"{name} {version}" for recording in recordings for name, version in recording.versions.items()})


def _check_same_model(first: Recording, other: Recording) -> None:
    labels = first.label, other.label
    weights = [recording.arrays.get("weights", {}) for recording in (first, other)]
    lost = _describe_lost_name(labels, weights)
    for name in dict.fromkeys(itertools.chain(*weights)):
        a, b = (named[name].shape if name in named else None for named in weights)
        received = lost or f"{name} of shape {a} on {labels[0]}, {b} on {labels[1]}"
        refuse_if(a != b, "recordings", "be of one model, with weights of equal names and shapes", received)
    plans = [f"steps={recording.steps}, batch_size={recording.batch_size}" for recording in (first, other)]
    refuse_if(plans[0] != plans[1], "recordings", "have equal steps and batch sizes", " and ".join(plans))
    rule = "be of one batch: `record(model, start=other)` uses the weights and the batch of another recording"
    for name in dict.fromkeys((*first.batch, *other.batch)):
        row = measure(first.batch.get(name), other.batch.get(name))
        received = f"{row.message or 'different numbers'} in `{name}` on {labels[0]} and {labels[1]}"
        refuse_if(row.ratio > 1, "recordings", rule, received)


def _describe_lost_name(labels: Sequence[str], names: Sequence[Collection[str]]) -> str:
    """Returns the first names that only one of two recordings has, if both have one, as if a layer lost its name."""
    alone = [next((name for name in names[i] if name not in names[1 - i]), None) for i in (0, 1)]
    text = f"`{alone[0]}` exists on {labels[0]} only, `{alone[1]}` on {labels[1]} only"
    return "" if None in alone else f"{text}. If it is one layer, does its `get_config` return the name?"


def _largest(numbers: Numbers) -> float:
    return max(_size(array) for array, _ in numbers.values())


def _size(array: Any) -> float:
    return float(np.max(np.abs(array), initial=0.0)) if array.dtype.kind == "f" else 0.0


def _coarseness(part: str, label: str, numbers: Numbers, exact: Numbers) -> float:
    """Returns the rounding of one backend in units of ten times the least of the others, or of float64 if larger.

    A float with few bits jumps at every change. Gradients are left out, because they jump at a kink of a ReLU.
    """
    others = [float(rounding.least[0]) for other, (_, rounding) in numbers.items() if other != label]
    if part.removesuffix(SECOND) not in _FORWARD or not all(others):
        return 0.0
    factor = ROUNDOFF["float32"] / ROUNDOFF["float64"]
    smooth = float(exact[label][1].least[0]) * factor if label in exact else 0.0
    return float(numbers[label][1].least[0]) / (_COARSE * max(min(others), smooth))


def _blur(numbers: Numbers) -> float:
    """Returns the largest rounding of some arrays, relative to their largest entries."""
    return max((rounding.relative_to(array) for array, rounding in numbers.values() if not has_nan(array)), default=0.0)


def _in_order(lists: Iterable[Collection[str]]) -> Iterable[str]:
    """Returns the names of several lists, each once, in the order of the longest list: shorter ones lack layers."""
    return dict.fromkeys(itertools.chain(*sorted(lists, key=len, reverse=True)))


def _uncalled(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Returns the layers that some backends do not call, if the next array agrees, as after a fused attention."""
    uncalled, waiting = [], []
    for place, group in itertools.groupby(rows, key=lambda row: row[:2]):
        problems = {row.message or "difference" for row in group if row.ratio > 1}
        if place[0].startswith("layers") and problems == {"missing"}:
            waiting.append(place)
        else:
            uncalled += [] if problems else waiting
            waiting = []
    return uncalled


def _is_left_out(name: str, omitted: Container[str], skip: Iterable[str]) -> bool:
    """True for a layer in a loop (5 calls, or one trace on JAX), and for a layer to skip, its layers and weights."""
    path = name.partition(" (")[0].partition(", ")[0].split("/")
    return name.partition("), ")[0].removesuffix(")") + ")" in omitted or not set(skip).isdisjoint(path)
