"""The tables of `paper_tables.py`: the paper's rows at every temperature, and beside Dense with a chosen one."""

import numpy as np

from benchmarks.imagenet.paper import REPORTED, TITLES
from benchmarks.lib.lines import distinct, select, with_error

LENGTHS = ("short", "long")


def describe(lines):
    """The tables by their titles: for each task those of the paper whose rows are all there, and all temperatures."""
    tables = {}
    for task in distinct(lines, "task"):
        own = complete(select(lines, task=task))
        whole = {table: title for table, title in TITLES.items() if set(REPORTED[table]) <= set(distinct(own, "row"))}
        tables |= {f"{task}: {table}, {title}": beside(own, table) for table, title in whole.items()}
        tables[f"{task}: the control's temperature"] = controls(own)
        tables[f"{task}: every temperature"] = by_temperature(own)
    return tables


def complete(lines):
    """The lines of the seeds that have all rows at all temperatures which any seed has."""
    keys = {
        seed: {(line["row"], line["temperature"]) for line in select(lines, seed=seed)}
        for seed in distinct(lines, "seed")
    }
    most = max(len(key) for key in keys.values())
    return [line for line in lines if len(keys[line["seed"]]) == most]


COLUMNS = {  # kind of labels and figure; the paper has likelihoods in two tables
    "table1": ("noisy accuracy", "clean accuracy", "noisy NLL"),
    "table3": ("noisy gAP", "clean gAP", "noisy NLL"),
}


def beside(lines, table):
    """A row for each of the paper's, at the temperature of the least noisy NLL of each seed, as gains over the first.

    The first row is absolute.
    """
    columns = [f"{length} {name}" for name in COLUMNS.get(table, COLUMNS["table1"][:2]) for length in LENGTHS]
    found, first = [["row", "the paper", *map(in_words, columns), "temperatures"]], None
    for row, reported in REPORTED[table].items():
        own = select(lines, row=row)
        chosen = {length: choose(own, length) for length in LENGTHS}
        values = {name: [line[name] for line in chosen[name.split()[0]]] for name in columns}
        cells = [with_error(values[name]) if first is None else gain(values[name], first[name]) for name in columns]
        first = values if first is None else first
        found.append([row, reported, *cells, counted(chosen["long"])])
    return found


def in_words(column):
    """A column with its length behind a comma."""
    length, name = column.split(" ", 1)
    return f"{name}, {length}"


def controls(lines):
    """What a head gains in accuracy at the end, by the temperature that its Dense control has."""
    dense = select(lines, row="Dense")
    others = ("over Dense at temperature 1", "at the head's temperature", "at the best by noisy NLL")
    found = [["row", *(f"{kind} accuracy, {other}" for kind in ("noisy", "clean") for other in others)]]
    for row in ("diagonal", "full"):
        own = choose(select(lines, row=row), "long")
        same = [select(dense, seed=line["seed"], temperature=line["temperature"])[0] for line in own]
        controls = (select(dense, temperature=1.0), same, choose(dense, "long"))
        found.append(
            [
                row,
                *(
                    gain(*(_accuracy(each, kind) for each in (own, control)))
                    for kind in ("noisy", "clean")
                    for control in controls
                ),
            ]
        )
    return found


def _accuracy(lines, kind):
    return [line[f"long {kind} accuracy"] for line in sorted(lines, key=lambda line: line["seed"])]


def choose(lines, length):
    """For every seed the line of the temperature with the least noisy NLL at this length; not a number is the worst."""
    return [
        min(select(lines, seed=seed), key=lambda line: np.nan_to_num(line[f"{length} noisy NLL"], nan=np.inf))
        for seed in sorted(distinct(lines, "seed"))
    ]


def counted(lines):
    """The temperatures of lines, each with how often it comes."""
    values = sorted(line["temperature"] for line in lines)
    return ", ".join(
        f"{value:g}" + (f" (x{values.count(value)})" if values.count(value) > 1 else "")
        for value in dict.fromkeys(values)
    )


def by_temperature(lines):
    """A row for each row and temperature: absolute figures at both lengths."""
    figures = ("noisy accuracy", "clean accuracy", "noisy NLL")
    found = [["row", "temperature", *(f"{figure}, {length}" for figure in figures for length in LENGTHS)]]
    for row in distinct(lines, "row"):
        for temperature in sorted(distinct(select(lines, row=row), "temperature")):
            own = select(lines, row=row, temperature=temperature)
            cells = [
                with_error([line[f"{length} {figure}"] for line in own]) for figure in figures for length in LENGTHS
            ]
            found.append([row, f"{temperature:g}", *cells])
    return found


def gain(values, others):
    """Mean and standard error of the differences, seed by seed, with a sign."""
    text = with_error([a - b for a, b in zip(values, others, strict=True)])
    return text if text.startswith("-") else f"+{text}"
