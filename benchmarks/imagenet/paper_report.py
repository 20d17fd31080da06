"""The tables of `paper_tables.py`: the paper's rows at every temperature, and beside Dense with a chosen one."""

from benchmarks.imagenet.paper import REPORTED, TITLES
from benchmarks.lib.lines import distinct, select, with_error

LENGTHS = ("short", "long")


def describe(lines):
    """The tables by their titles: for each task and table of the paper one, and all temperatures beside each other."""
    tables = {}
    for task in distinct(lines, "task"):
        own = complete(select(lines, task=task))
        tables |= {f"{task}: {table}, {title}": beside(own, table) for table, title in TITLES.items()}
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


def figure_of(table):
    """What the paper reports in this table."""
    return "gAP" if table == "table3" else "accuracy"


def beside(lines, table):
    """A row for each of the paper's, at the temperature of the least noisy NLL of each seed, as gains over Dense.

    The first row is absolute. Rows of other links have likelihoods that do not compare with it: these are left out.
    """
    figure = figure_of(table)
    names = [f"{length} {kind} {figure}" for length in LENGTHS for kind in ("noisy", "clean")]
    head = ["row", "the paper", *(f"{kind} {figure}, {length}" for length in LENGTHS for kind in ("noisy", "clean"))]
    found, first = [[*head, "temperatures"]], None
    for row, reported in REPORTED[table].items():
        own = select(lines, row=row)
        if not own:
            continue
        chosen = {length: choose(own, length) for length in LENGTHS}
        values = {name: [line[name] for line in chosen[name.split()[0]]] for name in names}
        cells = (
            [with_error(values[name]) for name in names]
            if first is None
            else [signed([a - b for a, b in zip(values[name], first[name], strict=True)]) for name in names]
        )
        first = values if first is None else first
        found.append([row, reported, *cells, counted(chosen["long"])])
    return found


def choose(lines, length):
    """For every seed the line of the temperature with the least noisy NLL at this length."""
    return [
        min(select(lines, seed=seed), key=lambda line: line[f"{length} noisy NLL"])
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


def signed(values):
    """`with_error` with a plus before what is not negative."""
    text = with_error(values)
    return text if text.startswith("-") else f"+{text}"
