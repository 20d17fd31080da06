"""Compares recordings of one model by different backends, with NumPy alone."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.extras import import_extra
from keras_het.base.refusal import refuse_if
from keras_het.base.tables import align_columns
from keras_het.base.validation import check_number
from keras_het.parity.recording import NOT_DETERMINISTIC, PARTS, Recording, difference, largest_entry

FACTOR = 10.0  # times what rounding alone does to a number, for two backends that round in other places
UNDETERMINED = 0.1  # rounding above it leaves less than one digit of a number
EXACT = ("weights", "saved weights")
TABLE_ROWS = 12
_NAMES_OF_A_NOTE = 5
_TOLERANCES = {"float16": 8 * 2.0**-11, "bfloat16": 8 * 2.0**-8}  # of models that compute in fewer digits


class Row(NamedTuple):
    """One array of two recordings.

    Attributes:
        part: part of the recording, such as "gradients".
        name: name of the layer or weight.
        first: name of the first backend.
        second: name of the second backend.
        difference: largest difference, relative to the largest entry.
        limit: largest difference that counts as equal.
        rounding: distance by which rounding alone moves the array.
    """

    part: str
    name: str
    first: str
    second: str
    difference: float
    limit: float
    rounding: float

    @property
    def ratio(self) -> float:
        """The difference in units of its limit; above 1 the backends differ."""
        if not self.difference:
            return 0.0
        return self.difference / self.limit if self.limit else np.inf


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The differences between recordings; it prints the answer, a table of the largest ones, and notes.

    Attributes:
        labels: names of the recordings.
        rows: list of `Row`, in the order in which an error spreads through a model.
        errors: {(part, name): {label: distance from the recording in float64, in units of the rounding}}.
        notes: texts about numbers that could not be compared as they are, and why.
        failures: texts about parts that some backend could not compute, and why.
    """

    labels: list[str]
    rows: list[Row]
    errors: dict[tuple[str, str], dict[str, float]]
    notes: list[str]
    failures: list[str]

    @property
    def worst(self) -> Row:
        """The row whose difference is largest in units of its limit."""
        return max(self.rows, key=lambda row: row.ratio)

    @property
    def different(self) -> list[Row]:
        """The rows above their limits."""
        return [row for row in self.rows if row.ratio > 1]

    @property
    def is_equal(self) -> bool:
        """Whether every backend computed every part, and no row is above its limit."""
        return not self.different and not self.failures

    @property
    def is_random(self) -> bool:
        """Whether a backend gave other outputs at a second call of the model."""
        return any(NOT_DETERMINISTIC in text for text in self.failures)

    @property
    def first_layer(self) -> str | None:
        """The first layer, in the order of calls, whose outputs differ; None if none does."""
        return next((row.name for row in self.different if row.part == "layers"), None)

    def to_frame(self) -> Any:
        """Returns the rows as a `pandas.DataFrame`.

        Raises:
            ImportError: without pandas.
        """
        return import_extra("pandas", "The frame of a comparison").DataFrame(self.rows, columns=Row._fields)

    def __str__(self) -> str:
        notes = [*(f"Failed: {text}" for text in self.failures), *(f"Note: {text}" for text in self.notes)]
        return "\n".join([self.answer(), "", *self._table(), *([""] if notes else []), *notes])

    def answer(self) -> str:
        """Returns one sentence: whether the backends agree, or which one differs, and where first."""
        names = _listed(self.labels)
        if self.is_random:
            return f"{next(text for text in self.failures if NOT_DETERMINISTIC in text)}."
        if self.different:
            first = self.different[0]
            where = f"{first.part}, `{first.name}`" if first.name else first.part
            figures = f"{first.difference:.1e}, limit {first.limit:.1e}"
            return f"{self._culprit(first)}, first in {where}: {figures}."
        if self.failures:
            return f"{names} agree on what all of them could compute. Failed: {len(self.failures)}."
        return f"{names} agree: {len(self.rows)} differences are within their limits."

    def _culprit(self, first: Row) -> str:
        """Says which backend differs from the others, if that is known."""
        same = [row for row in self.rows if (row.part, row.name) == (first.part, first.name)]
        above = [{row.first, row.second} for row in same if row.ratio > 1]
        odd = [label for label in self.labels if all(label in pair for pair in above)]
        if len(odd) == 1 and len(same) > 1:
            others = [label for label in self.labels if label != odd[0]]
            return f"{odd[0]} differs from {_listed(others)}"
        errors = self.errors.get((first.part, first.name), {})
        if {first.first, first.second} <= set(errors):
            farther, nearer = sorted((first.first, first.second), key=lambda label: -errors[label])
            if errors[farther] > FACTOR * max(errors[nearer], 1.0):
                return f"{farther} differs from {nearer} and from float64"
        return f"{first.first} and {first.second} differ"

    def _table(self) -> list[str]:
        rows = sorted((row for row in self.rows if row.difference or row.part not in EXACT), key=lambda row: -row.ratio)
        above = sum(row.ratio > 1 for row in rows)
        shown = rows[: max(TABLE_ROWS, min(above, 2 * TABLE_ROWS))]
        head = ["part", "name", "backends", "difference", "limit", "times rounding"]
        with_errors = ["errors in float64"] if self.errors else []
        cells = [[*head, *with_errors], *([*self._cells(row), *self._errors_of(row)] for row in shown)]
        rest = [f"... and {len(rows) - len(shown)} rows with less"] if len(rows) > len(shown) else []
        return [*align_columns(cells, left=(0, 1, 2)), *rest]

    def _cells(self, row: Row) -> list[str]:
        name = row.name if len(row.name) <= 44 else f"...{row.name[-41:]}"
        times = f"{row.difference / row.rounding:.1f}" if row.rounding else "-"
        figures = [f"{row.difference:.1e}", f"{row.limit:.1e}", times]
        return [row.part, name, f"{row.first} - {row.second}", *figures]

    def _errors_of(self, row: Row) -> list[str]:
        if not self.errors:
            return []
        errors = self.errors.get((row.part, row.name), {})
        return [" ".join(f"{errors[label]:.1f}" if label in errors else "-" for label in (row.first, row.second))]


def compare(*recordings: Recording, tolerance: float = 1e-5) -> Comparison:
    """Compares what one model computes on different backends.

        difference = max |a - b| / max(|a|, |b|),      limit = max(tolerance, 10 rounding)

    The maxima are over the entries of an array. `rounding` is how far the array moves if every weight and every input
    changes by half a unit in its last place: what float32 leaves open. So a deep network is not called wrong for its
    depth, and a wrong padding is not called rounding. Starting weights must be equal bit for bit.

    A recording of the same model in float64 is not compared as a backend. It says how far each backend is from it.

    Args:
        recordings: two or more, of `record`.
        tolerance: difference that always counts as equal; for models that compute in float16 or bfloat16, eight units
            in the last place of that dtype, if that is more.
    Raises:
        ValueError: for fewer than two recordings, or recordings of other models or other batches.

    Example:
        >>> weights = {"kernel": np.ones(2, "float32")}
        >>> jax, torch = (
        ...     Recording(name, arrays={"weights": weights, "loss": {"": np.array(loss)}})
        ...     for name, loss in (("jax", 1.0), ("torch", 1.5))
        ... )
        >>> print(compare(jax, torch).answer())
        jax and torch differ, first in loss: 3.3e-01, limit 1.0e-05.
    """
    check_number("tolerance", tolerance, above=0.0)
    backends = [recording for recording in recordings if recording.precision != "float64"]
    if len(backends) < 2:  # all in float64: then these are the backends
        backends = list(recordings)
    references = [recording for recording in recordings if recording not in backends]
    refuse_if(len(backends) < 2, "recordings", "be at least two", len(recordings))
    for other in recordings[1:]:
        _check_same_model(recordings[0], other)
    omitted = {name for recording in recordings for name in recording.omitted}
    rows = [row for part in PARTS for row in _rows(part, backends, tolerance, omitted)]
    labels = [recording.label for recording in backends]
    return Comparison(labels, rows, _errors(rows, backends, references), _notes(recordings, rows), _failures(backends))


def _check_same_model(first: Recording, other: Recording) -> None:
    shapes = [
        {name: array.shape for name, array in recording.arrays.get("weights", {}).items()}
        for recording in (first, other)
    ]
    if shapes[0] != shapes[1]:
        name = next(name for name in (*shapes[0], *shapes[1]) if shapes[0].get(name) != shapes[1].get(name))
        received = f"{name} of shape {shapes[0].get(name)} on {first.label}, {shapes[1].get(name)} on {other.label}"
        refuse_if(True, "recordings", "be of one model, with weights of equal names and shapes", received)
    for name in (*first.batch, *other.batch):
        if name not in first.batch or name not in other.batch:
            refuse_if(True, "recordings", "be of one batch", f"`{name}` in one recording alone")
        equal = difference(first.batch[name], other.batch[name]) == 0.0
        rule = "be of one batch: `record(model, start=other)` takes weights and batch of another recording"
        refuse_if(not equal, "recordings", rule, f"other numbers in `{name}` on {first.label} and {other.label}")


def _rows(part: str, backends: Sequence[Recording], tolerance: float, omitted: set[str]) -> Iterator[Row]:
    """Yields the rows of a part, in the order of its arrays, for every pair of backends that computed it."""
    computed = [recording for recording in backends if part in recording.arrays]
    every = (name for recording in computed for name in recording.arrays[part])
    names = dict.fromkeys(name for name in every if _layer(name) not in omitted)
    for name, (first, second) in itertools.product(names, itertools.combinations(computed, 2)):
        a, b = first.arrays[part].get(name), second.arrays[part].get(name)
        rounding = _rounding(part, name, first, second)
        tolerances = (_TOLERANCES.get(recording.precision.removeprefix("mixed_"), 0.0) for recording in (first, second))
        limit = 0.0 if part in EXACT else max(tolerance, FACTOR * rounding, *tolerances)
        unlike = a is None or b is None or a.dtype != b.dtype
        yield Row(part, name, first.label, second.label, np.inf if unlike else difference(a, b), limit, rounding)


def _rounding(part: str, name: str, *recordings: Recording) -> float:
    """Returns the largest rounding error of an array, relative to the largest entry of all recordings.

    A gradient of nothing but rounding errors on one backend does not hide a gradient on the other.
    """
    known = [(r.rounding.get(part, {}).get(name, 0.0), r.arrays[part].get(name)) for r in recordings]
    scales = [(rounding, largest_entry(array)) for rounding, array in known if array is not None]
    largest = max((scale for _, scale in scales), default=0.0)
    errors = (rounding * (scale / largest if largest else 1.0) for rounding, scale in scales)
    return max(errors, default=0.0)


def _layer(name: str) -> str:
    """Returns the name of a layer without the number of its call: a loop of 5 steps is 5 calls, or on JAX one trace."""
    return name.partition("), ")[0].removesuffix(")") + ")"


def _errors(
    rows: list[Row], backends: Sequence[Recording], references: Sequence[Recording]
) -> dict[tuple[str, str], dict[str, float]]:
    """Returns how far each backend is from float64, in units of the rounding."""
    errors: dict[tuple[str, str], dict[str, float]] = {}
    for reference in references[:1]:
        for part, name, rounding in {(row.part, row.name, row.rounding) for row in rows if row.part not in EXACT}:
            exact = reference.arrays.get(part, {}).get(name)
            found = {recording.label: recording.arrays.get(part, {}).get(name) for recording in backends}
            if exact is not None and rounding:
                errors[part, name] = {k: difference(a, exact) / rounding for k, a in found.items() if a is not None}
    return errors


def _notes(recordings: Sequence[Recording], rows: list[Row]) -> list[str]:
    notes = dict.fromkeys(note for recording in recordings for note in recording.notes)
    omitted = list(dict.fromkeys(name for recording in recordings for name in recording.omitted))
    if omitted:
        notes[f"layers inside a loop are compared as part of the layer around it: {_some(omitted)}"] = None
    open_ = dict.fromkeys(f"{row.part} of `{row.name}`" for row in rows if row.rounding > UNDETERMINED)
    if open_:
        notes[f"not determined by so few digits, rounding alone changes them by a tenth or more: {_some(open_)}"] = None
    weights = [row.name for row in rows if row.part == "weights" and row.ratio > 1]
    if weights:
        notes[
            "the starting weights differ, so all that follows differs: give every backend the same ones, by "
            f"`record(model, start=other)`; from one file, these are not saved in it: {_some(dict.fromkeys(weights))}"
        ] = None
    odd = dict.fromkeys(
        f"{part} of `{name}`"
        for recording in recordings
        for part, arrays in recording.arrays.items()
        for name, array in arrays.items()
        if array.dtype.kind == "f" and not np.all(np.isfinite(array))
    )
    if odd:
        notes[f"not finite, and compared elsewhere alone: {_some(odd)}"] = None
    return list(notes)


def _failures(backends: Sequence[Recording]) -> list[str]:
    return [
        f"{part} on {recording.label}: {text}" for recording in backends for part, text in recording.failures.items()
    ]


def _some(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - _NAMES_OF_A_NOTE} more" if len(names) > _NAMES_OF_A_NOTE else ""
    return ", ".join(names[:_NAMES_OF_A_NOTE]) + more


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
