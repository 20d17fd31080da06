"""Comparison of recordings of one model on different backends, with NumPy alone."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.refusal import refuse_if
from keras_het.base.tables import align_columns, number_of
from keras_het.base.validation import check_number
from keras_het.parity.recording import NOT_DETERMINISTIC, PARTS, Recording, difference, largest_entry

ALLOWED_ROUNDINGS = 10.0  # two backends round in different places, so they differ by several roundings
UNDETERMINED_ROUNDING = 0.1  # a larger rounding leaves less than one digit of a number
EXACT = ("weights", "saved weights")
FORWARD = ("layers", "predictions", "loss")
# A ReLU at zero, or a tiny gradient in Adam, turns a rounding into a large difference of these.
AMPLIFIED = ("gradients", "training")
TABLE_ROWS = 12
_NAMES_IN_NOTE = 5
_TOLERANCES = {"float16": 8 * 2.0**-11, "bfloat16": 8 * 2.0**-8}  # four units in the last place


class Row(NamedTuple):
    """Difference between two recordings in one array.

    Attributes:
        part: part of the recording, such as "gradients".
        name: name of the layer or weight. After several training steps it ends in ", step 7".
        first: name of the first backend.
        second: name of the second backend.
        difference: largest difference, relative to the largest entry.
        limit: largest difference that counts as equal.
        rounding: difference that rounding alone makes.
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
        """Difference in units of the limit. Above 1, the backends differ."""
        if not self.difference:
            return 0.0
        return self.difference / self.limit if self.limit and np.isfinite(self.difference) else np.inf


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between recordings. It prints the answer, a table of the largest differences, and notes.

    Attributes:
        labels: names of the recordings.
        rows: list of `Row`, in the order in which an error spreads through a model. `pandas.DataFrame(rows)` makes a
            table.
        errors: {(part, name): {label: distance from the recording in float64, in units of the rounding}}.
        notes: texts about numbers that cannot be equal, and the reasons.
        failures: texts about parts that a backend could not compute, and the errors.
        versions: packages that computed the recordings, such as "jax 0.10.2".
        is_reference_certain: True if the recording in float64 is of another backend, or equal on several backends. If
            not, it can have the fault of its backend.
    """

    labels: list[str]
    rows: list[Row]
    errors: dict[tuple[str, str], dict[str, float]]
    notes: list[str]
    failures: list[str]
    versions: list[str] = dataclasses.field(default_factory=list)
    is_reference_certain: bool = False

    @property
    def worst(self) -> Row:
        """Row with the largest difference in units of its limit."""
        return max(self.rows, key=lambda row: row.ratio)

    @property
    def different(self) -> list[Row]:
        """Rows above their limits, in the order of `rows`."""
        return [row for row in self.rows if row.ratio > 1]

    @property
    def is_equal(self) -> bool:
        """True if every backend computed every part and no row is above its limit."""
        return not self.different and not self.failures

    @property
    def is_random(self) -> bool:
        """True if a second call of the model returned different outputs on a backend."""
        return any(NOT_DETERMINISTIC in text for text in self.failures)

    @property
    def first_layer(self) -> str | None:
        """First layer, in the order of calls, whose outputs differ, or None."""
        return next((row.name for row in self.different if row.part == "layers"), None)

    def __str__(self) -> str:
        notes = [*(f"Failed: {text}" for text in self.failures), *(f"Note: {text}" for text in self.notes)]
        versions = [f"Versions: {', '.join(self.versions)}"] if self.versions else []
        end = [*notes, *versions]
        return "\n".join([self.answer(), "", *self._table(), *([""] if end else []), *end])

    def answer(self) -> str:
        """Returns one sentence: the backends agree, or one backend differs first in a named place."""
        names = _join(self.labels)
        if self.is_random:
            return f"{next(text for text in self.failures if NOT_DETERMINISTIC in text)}."
        if self.different:
            first = self.different[0]
            where = f"{first.part}, `{first.name}`" if first.name else first.part
            figures = f"difference {first.difference:.1e}, limit {first.limit:.1e}"
            return f"{self._culprit(first)}, first in {where}: {figures}."
        if self.failures:
            count = len(self.failures)
            return f"{names} agree on all that they could compute, but {number_of(count, 'part')} failed."
        return f"{names} agree: {len(self.rows)} differences are within their limits."

    def _culprit(self, first: Row) -> str:
        """Returns which backend differs from the others, or which two differ."""
        if first.part.startswith("saved"):
            loader = first.second.removesuffix(", loaded")
            return f"a model that {first.first} saves and {loader} loads is not the same"
        rows = [row for row in self.rows if (row.part, row.name) == (first.part, first.name)]
        pairs = [{row.first, row.second} for row in rows if row.ratio > 1]
        culprits = [label for label in self.labels if all(label in pair for pair in pairs)]
        if len(culprits) == 1 and len(rows) > 1:
            others = [label for label in self.labels if label != culprits[0]]
            return f"{culprits[0]} differs from {_join(others)}"
        errors = self.errors.get((first.part, first.name), {})
        if self.is_reference_certain and {first.first, first.second} <= set(errors):
            farther, nearer = sorted((first.first, first.second), key=lambda label: -errors[label])
            if errors[farther] > ALLOWED_ROUNDINGS * max(errors[nearer], 1.0):
                return f"{farther} differs from {nearer} and from float64"
        return f"{first.first} and {first.second} differ"

    def _table(self) -> list[str]:
        rows = sorted((row for row in self.rows if row.difference or row.part not in EXACT), key=lambda row: -row.ratio)
        above = sum(row.ratio > 1 for row in rows)
        shown = rows[: max(TABLE_ROWS, min(above, 2 * TABLE_ROWS))]
        head = ["part", "name", "backends", "difference", "limit", "times rounding"]
        with_errors = ["roundings from float64"] if self.errors else []
        cells = [[*head, *with_errors], *([*self._cells(row), *self._errors_of(row)] for row in shown)]
        rest = [f"... and {number_of(len(rows) - len(shown), 'smaller row')}"] if len(rows) > len(shown) else []
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

    The maxima are over the entries of an array. `rounding` is the difference that `record` measures after it changes
    the weights and inputs by up to one unit in the last place. The rounding grows with the depth of a network, so a
    deep network does not fail because it is deep. Starting weights must be equal bit for bit.

    A recording in float64 is a reference: the result holds the distance of each backend from it. If all outputs and
    the loss agree, but a gradient or a trained weight differs, and references of both backends agree within
    `tolerance`, then the distance of each backend from its own reference counts as rounding too. So a ReLU at zero is
    not called a difference. This holds for models that compute in float32.

    Args:
        recordings: two or more results of `record`.
        tolerance: difference that always counts as equal. If a layer computes in float16 or bfloat16, it is at least
            four units in the last place of that dtype, for all layers.
    Raises:
        ValueError: if there are fewer than two recordings, or if their models, batches or training steps differ.

    Example:
        >>> weights = {"kernel": np.ones(2, "float32")}
        >>> jax, torch = (
        ...     Recording(name, arrays={"weights": weights, "loss": {"": np.array(loss)}})
        ...     for name, loss in (("jax", 1.0), ("torch", 1.5))
        ... )
        >>> print(compare(jax, torch).answer())
        jax and torch differ, first in loss: difference 3.3e-01, limit 1.0e-05.
    """
    check_number("tolerance", tolerance, above=0.0)
    other = next((each for each in recordings if not isinstance(each, Recording)), None)
    refuse_if(other is not None, "recordings", "be results of `record`, or of `Recording.load(path)`", kind=other)
    backends = [recording for recording in recordings if recording.precision != "float64"]
    if len(backends) < 2:  # all in float64: then these are the backends
        backends = list(recordings)
    references = [recording for recording in recordings if recording not in backends]
    refuse_if(len(backends) < 2, "recordings", "be at least two", len(recordings))
    for other in recordings[1:]:
        _check_same_model(recordings[0], other)
    omitted = {name for recording in recordings for name in recording.omitted}
    measured = [*_rows(backends, tolerance, omitted)]
    is_forward_equal = all(row.ratio <= 1 for row in measured if row.part in FORWARD)
    rows = [_with_float64(row, recordings, tolerance) if is_forward_equal else row for row in measured]
    labels = [recording.label for recording in backends]
    errors, notes = _errors(measured, backends, references, tolerance), _notes(recordings, rows)
    if explained := [row for row, before in zip(rows, measured, strict=True) if before.ratio > 1 >= row.ratio]:
        names = dict.fromkeys(f"{row.part} of `{row.name}`" for row in explained)
        largest = f"the largest difference is {max(row.difference for row in explained):.1e}"
        notes.append(f"these numbers differ, but not in float64, so it is rounding ({largest}): {_some(names)}")
    is_certain = len(references) > 1 or any(reference.backend not in labels for reference in references)
    return Comparison(labels, rows, errors, notes, _failures(backends), list_versions(recordings), is_certain)


def list_versions(recordings: Sequence[Recording]) -> list[str]:
    """Returns the packages of recordings with their versions, each once."""
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
        equal = difference(first.batch[name], other.batch[name]) == 0.0
        rule = "be of one batch: `record(model, start=other)` uses the weights and the batch of another recording"
        refuse_if(not equal, "recordings", rule, f"different numbers in `{name}` on {first.label} and {other.label}")


def _rows(backends: Sequence[Recording], tolerance: float, omitted: set[str]) -> Iterator[Row]:
    """Yields the rows of all parts, in the order of their arrays, for every pair of backends that computed them."""
    for part in PARTS:
        computed = [recording for recording in backends if part in recording.arrays]
        every = (name for recording in computed for name in recording.arrays[part])
        names = dict.fromkeys(name for name in every if _layer(name) not in omitted)
        for name, pair in itertools.product(names, itertools.combinations(computed, 2)):
            yield _row(part, name, pair, tolerance)


def _row(part: str, name: str, pair: tuple[Recording, Recording], tolerance: float) -> Row:
    first, second = pair
    a, b = first.arrays[part].get(name), second.arrays[part].get(name)
    rounding = _rounding(part, name, first, second)
    tolerances = (_TOLERANCES.get(recording.precision, 0.0) for recording in (first, second))
    is_whole = not rounding and all(array is not None and array.dtype.kind in "biu" for array in (a, b))
    limit = 0.0 if part in EXACT or is_whole else max(tolerance, ALLOWED_ROUNDINGS * rounding, *tolerances)
    distance = np.inf if a is None or b is None else typed_difference(a, b)
    return Row(part, name, first.label, second.label, distance, limit, rounding)


def typed_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the difference of two arrays, which is infinite if their dtypes differ.

    The width of integers is not compared: Keras has int64 on TensorFlow for int32 on other backends.
    """
    is_width = {str(a.dtype), str(b.dtype)} == {"int32", "int64"}
    return difference(a, b) if a.dtype == b.dtype or is_width else np.inf


def _with_float64(row: Row, recordings: Sequence[Recording], tolerance: float) -> Row:
    """Returns a row with the distances from float64 as its rounding, if the backends differ but agree in float64."""
    if row.ratio <= 1 or row.part not in AMPLIFIED:
        return row
    named = {(each.backend, each.precision): each.arrays.get(row.part, {}).get(row.name) for each in recordings}
    first, first_exact, second, second_exact = (
        named.get((backend, precision)) for backend in (row.first, row.second) for precision in ("float32", "float64")
    )
    if first is None or first_exact is None or second is None or second_exact is None:
        return row
    distances = [difference(first, first_exact), difference(second, second_exact)]
    if difference(first_exact, second_exact) > tolerance or not np.all(np.isfinite(distances)):
        return row
    rounding = max(row.rounding, *distances)
    return row._replace(rounding=rounding, limit=max(row.limit, ALLOWED_ROUNDINGS * rounding))


def _rounding(part: str, name: str, *recordings: Recording) -> float:
    """Returns the largest rounding of an array, relative to the largest entry in all recordings.

    So a gradient that is pure rounding on one backend does not hide a real gradient on another backend.
    """
    known = [(r.rounding.get(part, {}).get(name, 0.0), r.arrays[part].get(name)) for r in recordings]
    scales = [(rounding, largest_entry(a)) for rounding, a in known if a is not None and np.isfinite(rounding)]
    largest = max((scale for _, scale in scales), default=0.0)
    errors = (rounding * (scale / largest if largest else 1.0) for rounding, scale in scales)
    return max(errors, default=0.0)


def _layer(name: str) -> str:
    """Returns the name of a layer without the number of its call. A loop of 5 steps is 5 calls, or one trace on JAX."""
    return name.partition("), ")[0].removesuffix(")") + ")"


def _errors(
    rows: list[Row], backends: Sequence[Recording], references: Sequence[Recording], tolerance: float
) -> dict[tuple[str, str], dict[str, float]]:
    """Returns the distance of each backend from float64, in units of the rounding, if the references agree."""
    errors: dict[tuple[str, str], dict[str, float]] = {}
    roundings: dict[tuple[str, str], float] = {}
    for row in rows:
        roundings[row.part, row.name] = max(row.rounding, roundings.get((row.part, row.name), 0.0))
    for (part, name), rounding in roundings.items():
        exact = [array for each in references if (array := each.arrays.get(part, {}).get(name)) is not None]
        arrays = {recording.label: recording.arrays.get(part, {}).get(name) for recording in backends}
        is_known = exact and all(difference(exact[0], other) <= tolerance for other in exact[1:])
        if is_known and rounding and part not in EXACT:
            errors[part, name] = {k: difference(a, exact[0]) / rounding for k, a in arrays.items() if a is not None}
    return errors


def _notes(recordings: Sequence[Recording], rows: list[Row]) -> list[str]:
    notes = dict.fromkeys(note for recording in recordings for note in recording.notes)
    omitted = list(dict.fromkeys(name for recording in recordings for name in recording.omitted))
    if omitted:
        notes[f"layers inside a loop are compared as part of the layer around them: {_some(omitted)}"] = None
    undetermined = dict.fromkeys(f"{row.part} of `{row.name}`" for row in rows if row.rounding > UNDETERMINED_ROUNDING)
    if undetermined:
        notes[f"rounding alone changes these numbers by a tenth or more: {_some(undetermined)}"] = None
    weights = [row.name for row in rows if row.part == "weights" and row.ratio > 1]
    if weights:
        notes[
            f"these starting weights differ, so all later numbers differ: {_some(dict.fromkeys(weights))}. Use "
            "`record(model, start=other)`. If both backends loaded one file, the file does not hold these weights"
        ] = None
    not_finite = dict.fromkeys(
        f"{part} of `{name}`"
        for recording in recordings
        for part, arrays in recording.arrays.items()
        for name, array in arrays.items()
        if array.dtype.kind == "f" and not np.all(np.isfinite(array))
    )
    if not_finite:
        notes[f"only the finite entries are compared: {_some(not_finite)}"] = None
    return list(notes)


def _failures(backends: Sequence[Recording]) -> list[str]:
    parts = [part for part in PARTS if any(part in recording.arrays for recording in backends)]
    texts = []
    for recording in backends:
        missing = {part: "not in the recording" for part in parts if part not in recording.arrays}
        texts += [f"{part} on {recording.label}: {text}" for part, text in (recording.failures or missing).items()]
    return texts


def _some(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - _NAMES_IN_NOTE} more" if len(names) > _NAMES_IN_NOTE else ""
    return ", ".join(names[:_NAMES_IN_NOTE]) + more


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
