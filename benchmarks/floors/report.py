"""The report of the atlas: bounds and their check, how far each head is from them, and whether one is passed."""

import numpy as np

from benchmarks.floors import figure, limits, tasks
from benchmarks.floors.bounds import CEILINGS, FIGURES, FLOORS, REFERENCES
from benchmarks.floors.limits import CRITERIA
from benchmarks.floors.training import MEASURED, METHODS
from benchmarks.lib import results
from benchmarks.lib.lines import distinct, read, select, with_error

DISTANCES = MEASURED[:3]


def bounds_table(lines):
    """A row for each task: bounds and reference points."""
    head = ["noise", "classes", *FIGURES, "largest standard error", "draws"]
    return [head, *(_bounds_row(line) for line in lines)]


def _bounds_row(line):
    found = line["bounds"].values()
    errors = max(error for _, error, _ in found)
    return [*_names(line), *(f"{_zero(value):.4f}" for value, _, _ in found), f"{errors:.0e}", f"{line['draws']:,}"]


def _zero(value):
    """Without the sign of a rounded zero."""
    return value if abs(value) >= 5e-5 else 0.0


def _names(line):
    return [line["noise"], str(line["units"])]


def deviations(lines):
    """A row for each task: how much the figures that have a bound vary from one drawn label to the next."""
    head = ["noise", "classes", *FLOORS, *CEILINGS]
    return [head, *([*_names(line), *(f"{line['simulated'][name][2]:.4f}" for name in head[2:])] for line in lines)]


def checks(lines):
    """A row for each task: the ideal model scored on drawn labels, and how many standard errors off at most."""
    names = (*FLOORS, *CEILINGS, *REFERENCES)
    table = [["noise", "classes", "drawn labels", *names, "largest difference"]]
    for line in lines:
        cells = [f"{line['simulated'][name][0]:.4f} +- {line['simulated'][name][1]:.4f}" for name in names]
        largest = max(off(line, name) for name in names)
        table.append([*_names(line), f"{line['drawn labels']:,}", *cells, f"{largest:.1f} standard errors"])
    return table


def off(line, name):
    """Standard errors between a bound and its check."""
    ways = [line[way][name] for way in ("bounds", "simulated")]
    return abs(ways[0][0] - ways[1][0]) / np.hypot(ways[0][1], ways[1][1])


def groups(runs):
    """`(noise, units, per_class, method, runs)` of all that are there, the runs in the order of their seeds."""
    for units, per_class in tasks.SIZES:
        for noise in tasks.NOISES:
            for method in METHODS:
                own = select(runs, noise=noise, units=units, per_class=per_class, method=method)
                if own:
                    yield noise, units, per_class, method, sorted(own, key=lambda run: run["seed"])


def values(own, name, criterion):
    """A figure of each run at the epoch that a criterion chose, `(seeds,)`."""
    return np.array([run["choices"][criterion]["figures"][name][0] for run in own])


def table(runs, names, criterion):
    """A row for each task and method: figures, mean and standard error over the seeds, and the epochs."""
    lines = [["noise", "classes", "examples of each", "method", "seeds", *names, "epochs"]]
    for noise, units, per_class, method, own in groups(runs):
        cells = [with_error(values(own, name, criterion)) for name in names]
        epochs = ", ".join(str(run["choices"][criterion]["epoch"]) for run in own)
        lines.append([noise, str(units), str(per_class), method, str(len(own)), *cells, epochs])
    return lines


def beside_dense(runs, criterion):
    """A row for each task: the distance of Dense, and what every other method adds to it, seed by seed."""
    found = {}
    for *task, method, own in groups(runs):
        found.setdefault((*map(str, task), str(len(own))), {})[method] = values(own, DISTANCES[0], criterion)
    lines = [["noise", "classes", "examples of each", "seeds", *METHODS]]
    for task, by_method in found.items():
        plain = by_method["Dense"]
        cells = [added(by_method[method] - plain) if method in by_method else "" for method in METHODS[1:]]
        lines.append([*task, with_error(plain), *cells])
    return lines


def added(gains):
    """The mean with its sign; bold, if not rounded to zero, beyond two standard errors of three seeds or more."""
    text = with_error(gains)
    text = text if text.startswith("-") else f"+{text}"
    clear = len(gains) > 2 and abs(gains.mean()) > 2 * gains.std(ddof=1) / np.sqrt(len(gains))
    return f"**{text}**" if clear and text[1:6] != "0.000" else text


def whole(runs):
    """Without seeds of a task that lack a method which others with as many classes have."""
    methods = {units: set(distinct(select(runs, units=units), "method")) for units in tasks.LENGTHS}
    task = ("noise", "units", "per_class", "seed")
    found = {}
    for run in runs:
        found.setdefault(tuple(run[name] for name in task), []).append(run)
    return [run for own in found.values() for run in own if set(distinct(own, "method")) == methods[run["units"]]]


def describe(lines, runs):
    """The tables of the report by their titles."""
    tables = {
        limits.BOUNDS: bounds_table(lines),
        "the ideal model on drawn labels": checks(lines),
        limits.DEVIATIONS: deviations(lines),
    }
    for criterion in CRITERIA if runs else ():
        chosen = f"epoch by {criterion}"
        tables[f"distance to the floor beside Dense, {chosen}"] = beside_dense(runs, criterion)
        tables[f"distance to the floor, outside and within the group, {chosen}"] = table(runs, DISTANCES, criterion)
        tables[f"{limits.FIGURES}, {chosen}"] = table(runs, MEASURED[3:], criterion)
    if runs:
        tables["is a bound passed?"] = limits.summary(limits.of_atlas(lambda _, title: tables[title]))
    return tables


def in_order(lines):
    """The lines of bounds in the order of the tasks."""
    order = [(noise, units) for units in tasks.LENGTHS for noise in tasks.NOISES]
    return sorted(lines, key=lambda line: order.index((line["noise"], line["units"])))


def render(folder):
    """Writes the tables and the plot of what is there, and prints the tables."""
    runs = whole(read(folder, "floors-*.jsonl"))
    results.publish(folder, "floors", describe(in_order(read(folder, "bounds.jsonl")), runs), _seeds(runs))
    if runs:
        figure.save(list(groups(runs)), values, folder / "floors.png")


def _seeds(runs):
    return sorted(distinct(runs, "seed")) or [0]
