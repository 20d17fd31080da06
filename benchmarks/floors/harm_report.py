"""The report of harm.py: what each candidate adds to the figures of Dense, seed by seed."""

import numpy as np

from benchmarks.floors import tasks
from benchmarks.floors.candidates import CANDIDATES, FAMILIES
from benchmarks.floors.limits import FIGURES
from benchmarks.floors.report import added
from benchmarks.lib import results
from benchmarks.lib import tasks as of_recipe
from benchmarks.lib.lines import distinct, read, select, with_error

OF_ATLAS = ("distance", "clean accuracy", "clean NLL")
OF_RECIPE = ("noisy NLL", "clean accuracy", "clean NLL")
BOUNDED = ("noisy NLL", "noisy accuracy", "clean accuracy", "clean ECE", "clean NLL")
ROWS = (*CANDIDATES, *FAMILIES)


def place_of(line):
    """The task of a line, in the words of the head of a table."""
    return line.get("task") or f"{line['noise']}, {line['per_class']} each"


def order(line):
    """Where a line stands: by its noise, the examples of each class, and its candidate."""
    place = list(of_recipe.TASKS).index(line["task"]) if "task" in line else list(tasks.NOISES).index(line["noise"])
    return place, line.get("units", 0), line.get("per_class", 0), ROWS.index(line["candidate"]), line["seed"]


def by_place(lines):
    """The lines of each task, by its words and the number of its classes."""
    found = {}
    for line in lines:
        found.setdefault((place_of(line), line.get("units")), []).append(line)
    return found


def of_row(lines, row):
    """The lines of a candidate or of a family on a task, by seed; those of a family are chosen by noisy NLL."""
    members = FAMILIES.get(row, [row])
    found = {}
    for seed in distinct(lines, "seed"):
        own = [line for line in select(lines, seed=seed) if line["candidate"] in members]
        if len(own) == len(members):
            found[seed] = min(own, key=lambda line: line["validation NLL"])
    return dict(sorted(found.items()))


def beside_dense(lines, figure):
    """A row for each candidate and family, a column for each task: a figure of Dense, and what the others add to it.

    A cell is empty where a candidate lacks a seed that Dense has.
    """
    places = by_place(lines)
    table = [["candidate", *(place for place, _ in places)]]
    for row in ROWS:
        cells = [_cell(row, of_row(own, "Dense"), of_row(own, row), figure) for own in places.values()]
        if any(cells):
            table.append([row, *cells])
    return table


def _cell(row, plain, found, figure):
    if not plain or set(found) != set(plain):
        return ""
    values, dense = (np.array([line["figures"][figure] for line in lines.values()]) for lines in (found, plain))
    return with_error(dense) if row == "Dense" else added(values - dense)


def choices(lines):
    """A row for each family: how often noisy labels choose the member that is nearest to the floor, and what it costs.

    The loss is the distance of the chosen one beyond that of the nearest.
    """
    table = [["choice", "trainings", "the nearest is chosen", "mean loss", "largest loss"]]
    for family, members in FAMILIES.items():
        losses = []
        for own in by_place(lines).values():
            for seed, chosen in of_row(own, family).items():
                known = [line for line in select(own, seed=seed) if line["candidate"] in members]
                losses.append(chosen["figures"]["distance"] - min(line["figures"]["distance"] for line in known))
        if losses:
            right = f"{np.mean(np.array(losses) == 0.0):.0%}"
            table.append([family, str(len(losses)), right, f"{np.mean(losses):.4f}", f"{max(losses):.4f}"])
    return table


def figures(lines):
    """A row for each task of the atlas and candidate: figures that have bounds, and the epochs."""
    table = [["noise", "classes", "examples of each", "method", "seeds", *BOUNDED, "epochs"]]
    keys = dict.fromkeys((line["noise"], line["units"], line["per_class"], line["candidate"]) for line in lines)
    for noise, units, per_class, name in keys:
        own = select(lines, noise=noise, units=units, per_class=per_class, candidate=name)
        own = sorted(own, key=lambda line: line["seed"])
        cells = [with_error([line["figures"][figure] for line in own]) for figure in BOUNDED]
        epochs = ", ".join(str(line["epoch"]) for line in own)
        table.append([noise, str(units), str(per_class), name, str(len(own)), *cells, epochs])
    return table


def describe(lines):
    """The tables of the report by their titles."""
    atlas, recipe = ([line for line in lines if ("task" in line) == other] for other in (False, True))
    tables = {}
    for units in sorted(distinct(atlas, "units")):
        for figure in OF_ATLAS:
            tables[f"{units} classes: {figure}, beside Dense"] = beside_dense(select(atlas, units=units), figure)
    for figure in OF_RECIPE if recipe else ():
        tables[f"tasks without a say: {figure}, beside Dense"] = beside_dense(recipe, figure)
    if atlas:
        tables["are noisy labels right?"] = choices(atlas)
        tables[FIGURES] = figures(atlas)
    return tables


def render(folder):
    """Writes the tables of what is there, and prints them."""
    lines = sorted(read(folder, "harm-*.jsonl"), key=order)
    results.publish(folder, "harm", describe(lines), sorted(distinct(lines, "seed")))
