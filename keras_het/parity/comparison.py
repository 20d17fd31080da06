"""Result of a comparison: its verdict, the answer in words, and a table."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from keras_het.base.tables import align_columns, number_of
from keras_het.parity.arrays import Row
from keras_het.parity.recording import NOT_DETERMINISTIC

EXACT = ("weights", "saved configuration", "saved weights", "saved optimizer")
UNKNOWN = 1e-2  # with a larger relative rounding, float32 hides a fault of ten percent
TABLE_ROWS = 12
_HEAD = ["part", "name", "backends", "difference", "limit", "times rounding", "at", "values"]
_NAMES_IN_NOTE = 5
_FAR = 3.0  # a backend is the odd one if the others are three times as near to each other


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between recordings. It prints the answer, a table of the largest differences, and notes.

    Attributes:
        labels: names of the recordings.
        rows: list of `Row`, in the order in which an error spreads. `pandas.DataFrame(rows)` makes a table.
        notes: texts about numbers that cannot be equal, and the reasons.
        failures: texts about parts that a backend could not compute, and the errors.
        versions: packages that computed the recordings, such as "jax 0.10.2".
        not_finite: names of arrays with NaN on every backend.
        has_float64: True if every backend has a recording in float64 too.
        precision: coarsest dtype in which a layer computes, such as "float32".
    """

    labels: list[str]
    rows: list[Row]
    notes: list[str]
    failures: list[str]
    versions: list[str] = dataclasses.field(default_factory=list)
    not_finite: list[str] = dataclasses.field(default_factory=list)
    has_float64: bool = False
    precision: str = "float32"

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
        return list(dict.fromkeys(row.array for row in self.rows if row.blur > UNKNOWN and row.ratio <= 1))

    @property
    def is_equal(self) -> bool:
        """True if every backend computed every part, every number could be judged, and none is above its limit."""
        return self.status() == 0

    @property
    def is_random(self) -> bool:
        """True if a second call of the model returned different outputs on a backend."""
        return any(NOT_DETERMINISTIC in text for text in self.failures)

    def status(self) -> int:
        """Returns 0 for equal numbers, 1 for a difference or random outputs, 2 for failed, 3 for unjudged parts."""
        if self.different or self.is_random:
            return 1
        return 2 if self.failures else 3 if self.unjudged or self.not_finite else 0

    def __str__(self) -> str:
        return self.text()

    def text(self, *, all_rows: bool = False) -> str:
        """Returns what `print` shows, with every row in the order of the model if you ask for all."""
        notes = [*(f"Failed: {text}" for text in self.failures), *(f"Note: {text}" for text in self.notes)]
        end = [*notes, *([f"Versions: {', '.join(self.versions)}"] if self.versions else [])]
        return "\n".join([self.answer(), "", *self._table(all_rows), *([""] if end else []), *end])

    def answer(self) -> str:
        """Returns the verdict: the backends agree, one of them differs first in a named place, or what is unknown."""
        if self.is_random:
            return f"{next(text for text in self.failures if NOT_DETERMINISTIC in text)}."
        if self.different:
            return self._describe(self.different[0])
        names, unknown = join(self.labels), []
        if self.failures:
            return f"{names} agree on all that they could compute, but {number_of(len(self.failures), 'part')} failed."
        if self.not_finite:
            what = f"{number_of(len(self.not_finite), 'array')} with NaN on every backend"
            unknown.append(f"{what} cannot be compared: first {self.not_finite[0]}")
        if self.unjudged:
            total = len({row[:2] for row in self.rows if row.part not in EXACT})
            where = f" in {self.precision}" if self.has_float64 else ""
            unknown.append(f"{len(self.unjudged)} of {total:,} arrays cannot be judged{where}: {some(self.unjudged)}")
        if unknown:
            return f"{names} agree{' in float64' if self.has_float64 else ''}, but {'; '.join(unknown)}."
        return f"{names} agree: {len(self.rows):,} differences are within their limits."

    def _describe(self, first: Row) -> str:
        """Returns which backend differs, and where first."""
        where = f"{first.part}, `{first.name}`" if first.name else first.part
        trained = {row.name for row in self.rows if row.part == "gradients"}
        if first.part.startswith("gradients"):
            names = list(dict.fromkeys(row.name for row in self.rows if row.part == first.part))
            last = [row for row in self.different if row.part == first.part][-1]
            first = max((row for row in self.different if row[:2] == last[:2]), key=lambda row: row.ratio)
            following = names[names.index(last.name) + 1 :]
            where = f"{first.part}: `{first.name}` is the last weight that differs"
            where += f", and `{following[0]}` after it agrees" if following else ""
        elif first.part == "training" and trained:
            is_trained = first.name.partition(", step")[0] in trained
            why = "the first gradients agree, so it is the optimizer or a later gradient"
            where += f" ({why if is_trained else 'a state, not a trained weight'})"
        figures = first.message or f"difference {first.difference:.1e}, limit {first.limit:.1e}"
        if not first.message and first.at:
            figures += f", at {list(first.at)}: {first.values[0]:.6g} and {first.values[1]:.6g}; "
            figures += f"{'100' if first.fraction == 1 else f'{100 * first.fraction:.2g}'}% of the entries differ"
        return f"{self._culprit(first)}, first in {where}: {figures}."

    def _culprit(self, first: Row) -> str:
        """Returns which backend differs from the others, or which two differ."""
        if first.second.endswith(", loaded"):
            saver, loader = (label.rpartition(", ")[0] for label in (first.first, first.second))
            return f"a model that {saver} saves and {loader} loads is not the same"
        rows = [row for row in self.rows if row[:2] == first[:2]]
        own = sorted({row.first for row in rows if row.second == f"{row.first} float64" and row.ratio > 1})
        odd = own[0] if len(own) == 1 else self.odd_one(first)
        if odd:
            others = [label for label in self.labels if label != odd]
            return f"{odd} differs from {join([*others, 'its own float64'] if len(own) == 1 else others)}"
        if own:
            return f"{join(own)} differ from float64"
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
            count = max(TABLE_ROWS, min(sum(row.ratio > 1 for row in rows), 2 * TABLE_ROWS))
            shown = sorted(rows, key=lambda row: -row.ratio)[:count]
        rest = [f"... and {number_of(len(rows) - len(shown), 'smaller row')}"] if len(rows) > len(shown) else []
        return [*align_columns([_HEAD, *map(_cells, shown)], left=(0, 1, 2, 6, 7)), *rest]


def _cells(row: Row) -> list[str]:
    name = row.name if len(row.name) <= 44 else f"...{row.name[-41:]}"
    times = f"{row.difference / row.rounding:.1f}" if row.rounding and np.isfinite(row.difference) else "-"
    at = ",".join(map(str, row.at)) if row.difference else ""
    values = row.message or (f"{row.values[0]:.6g} {row.values[1]:.6g}" if row.difference else "")
    figures = [f"{row.difference:.1e}", f"{row.limit:.1e}", times]
    return [row.part, name, f"{row.first} - {row.second}", *figures, at, values]


def some(names: Iterable[str]) -> str:
    """Returns the first names, and the number of the others."""
    names = list(names)
    more = f" and {len(names) - _NAMES_IN_NOTE} more" if len(names) > _NAMES_IN_NOTE else ""
    return ", ".join(names[:_NAMES_IN_NOTE]) + more


def join(names: Sequence[str]) -> str:
    """Returns names with "and" before the last."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
