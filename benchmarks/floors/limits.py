"""Does a published result pass a floor or a ceiling? Then the result, or the bound, is wrong.

A result is compared in standard errors: its own, or, if that is larger, the one that the ideal model has on as many
examples. Many comparisons find something far out by chance, so the limit of three standard errors grows with them
(Bonferroni).
"""

import re
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from benchmarks.floors.bounds import CEILINGS, FLOORS
from benchmarks.lib.views.rows import BOUNDED, by_task

CRITERIA = ("noisy accuracy", "noisy NLL")  # on validation labels; each chooses an epoch
LIMIT = 3.0  # standard errors, for one comparison
BOUNDS, DEVIATIONS, FIGURES = (
    "bounds and reference points",
    "standard deviation of one example",
    "figures on drawn labels",
)
EXAMPLES = 4000  # of a seed, here and in the recipe


class Comparison(NamedTuple):
    """A figure of a method beside a bound.

    Attributes:
        name: of the task and the method.
        figure: one of `FLOORS` or `CEILINGS`.
        value, error: mean over seeds and its standard error, 0 of one seed.
        bound: the floor or the ceiling.
        ideal: the standard error that the ideal model has on as many examples.
    """

    name: str
    figure: str
    value: float
    error: float
    bound: float
    ideal: float

    @property
    def beyond(self):
        """Standard errors by which the figure is better than the bound; negative where it is worse."""
        better = self.value - self.bound if self.figure in CEILINGS else self.bound - self.value
        return better / max(self.error, self.ideal)


def limit(count):
    """Standard errors that one of `count` comparisons may be beyond its bound."""
    return float(norm.isf(norm.sf(LIMIT) / count))


def passing(comparisons):
    """The comparisons that are beyond a bound by more than chance allows."""
    return [each for each in comparisons if each.beyond > limit(len(comparisons))]


def published(of):
    """All comparisons of published tables; `of(name, title)` returns a table of a result file."""
    recipe = [("recipe", criterion) for criterion in CRITERIA] + [("recipe_links_1000", CRITERIA[1])]
    halves = ("half to choose a rule", "half to try the rule")
    found = [*of_atlas(of), *of_figures(of, of("harm", FIGURES))]
    found += [each for file, criterion in recipe for each in of_recipe(of, file, criterion)]
    return found + [each for half in halves for each in of_epochs(of, half)]


def of_atlas(of):
    """The comparisons of the atlas itself."""
    tables = {criterion: of("floors", f"{FIGURES}, epoch by {criterion}") for criterion in CRITERIA}
    return [each for criterion, table in tables.items() for each in of_figures(of, table, f", by {criterion}")]


def of_figures(of, table, ending=""):
    """The comparisons of a table of the figures that have bounds, of the atlas or of the changes of the full head."""
    found = []
    for row in rows(table):
        key = row["noise"], row["classes"]
        name = f"{row['noise']}, {row['classes']} classes, {row['examples of each']} each, {row['method']}{ending}"
        found += compared(of, name, key, row, int(row["seeds"]))
    return found


def of_recipe(of, file, criterion, seeds=5):
    """The comparisons of the recipe's tasks that have bounds; its table has what methods add to Dense."""
    found = []
    for (task, method), row in by_task(of(file, f"beside Dense, all chosen by {criterion}")).items():
        if method == "Dense":
            plain = row
        if task in BOUNDED:
            own = row if method == "Dense" else {name: added(plain[name], row[name]) for name in (*FLOORS, CEILINGS[1])}
            found += compared(of, f"{task}, {method}, by {criterion}", BOUNDED[task], own, seeds)
    return found


def added(cell, gain):
    """A cell, and what is added to it; the standard error is that of independent parts."""
    (value, error), (more, other) = parsed(cell), parsed(gain)
    return f"{value + more:.4f} +- {np.hypot(error, other):.4f}"


def of_epochs(of, half):
    """The clean accuracies at the epochs that rules choose."""
    found = []
    for row in rows(of("epochs", f"{half}: clean accuracy")):
        for rule in list(row)[4:] if row["task"] in BOUNDED else ():
            name = f"{row['task']}, {row['method']}, {row['epochs']} epochs, {rule}"
            own = {"clean accuracy": row[rule]}
            found += compared(of, name, BOUNDED[row["task"]], own, int(row["seeds"]))
    return found


def compared(of, name, key, row, seeds):
    """The comparisons of a row of a table: all its figures that have a bound."""
    bounds, deviations = (by_key(of("floors", title))[key] for title in (BOUNDS, DEVIATIONS))
    examples = EXAMPLES * seeds
    return [
        Comparison(name, figure, *parsed(row[figure]), float(bounds[figure]), float(deviations[figure]) / examples**0.5)
        for figure in (*FLOORS, *CEILINGS)
        if row.get(figure)
    ]


def parsed(cell):
    """Value and standard error of a cell; 0 where there is none."""
    value, *error = re.findall(r"-?\d+\.\d+", cell)
    return float(value), float(error[0]) if error else 0.0


def by_key(table):
    """The rows of a table by noise and number of classes."""
    return {(row["noise"], row["classes"]): row for row in rows(table)}


def rows(table):
    """The rows of a table as dicts."""
    return [dict(zip(table[0], row, strict=True)) for row in table[1:]]


def summary(comparisons):
    """What came of the comparisons, in words."""
    nearest = max(comparisons, key=lambda each: each.beyond)
    count = len(passing(comparisons))
    beside = f"{nearest.figure} {nearest.value:.3f} beside {nearest.bound:.3f}, {nearest.beyond:+.1f} standard errors"
    return (
        f"{len(comparisons)} figures beside their bounds: {count or 'none'} beyond one by more than "
        f"{limit(len(comparisons)):.1f} standard errors, which is three, corrected for their number. "
        f"The nearest: {nearest.name}, {beside}."
    )
