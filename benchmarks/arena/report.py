"""The report of the arena, from its result lines: tables, the heat map, the advice, the expectations."""

import numpy as np
from scipy.stats import t as student

from benchmarks.arena import advice, expectations, figure
from benchmarks.arena.gains import BASE, FIGURES, Results, is_clear, points
from benchmarks.lib.lines import distinct, read, select, with_error
from benchmarks.lib.results import publish

TWO = "two networks"  # what rows of two networks are compared with, too
SIMPLER = {  # what else a method is compared with: what it adds something to, or what does the same with less
    "flooding, estimated T": "forward, estimated T",
    "epsilon-softmax": "symmetric crossentropy",
    "removal by margins": "removal by confident learning",
    "removal by neighbours": "symmetric crossentropy",
    "labels of neighbours": "removal by neighbours",
    "Label Wave": "crossentropy, last epoch",
    "squared log-ratios": "symmetric crossentropy",
    "SGN": "SGN without covariance",
    "SGN without covariance": "squared log-ratios",
    "SGN, averaged network": "SGN",
}


def table(results, head, name):
    """Methods down, noises across, a clean figure in each cell."""
    lines = [["method", *results.noises]]
    for method in results.methods:
        columns = [results.figures(noise, head, method, name) for noise in results.noises]
        lines.append([method, *(with_error(column) if len(column) else "" for column in columns)])
    return lines


def gains(results, head, base=BASE, methods=None):
    """Methods down, noises across: points of accuracy over the base, bold where clear."""
    lines = [["method", *results.noises]]
    for method in results.methods if methods is None else methods:
        lines.append([method, *(points(results.gain(noise, (method, head), base)) for noise in results.noises)])
    return lines


def beside_simpler(results, head):
    """Points of accuracy of methods over simpler ones, a row for each pair that is there."""
    lines = [["method, and the simpler one", *results.noises]]
    for method, simpler in SIMPLER.items():
        cells = [points(results.gain(noise, (method, head), (simpler, head))) for noise in results.noises]
        lines += [[f"{method} - {simpler}", *cells]] if any(cells) else []
    return lines


def standing(results):
    """A row for each method and head: noises on which it is clearly better than early stopping, and clearly worse."""
    lines = [["method", "clearly better", "clearly worse"]]
    for rival in advice.rivals(results):
        if rival != BASE:
            over = {noise: results.gain(noise, rival, BASE) for noise in results.noises}
            signs = {noise: np.sign(values.mean()) for noise, values in over.items() if is_clear(values)}
            better, worse = (", ".join(noise for noise in signs if signs[noise] == sign) for sign in (1, -1))
            lines.append([advice.name_of(rival), better or "nowhere", worse or "nowhere"])
    return lines


def expected(results):
    """Expectations of each method with a Dense head, written before the run, beside the outcomes.

    Better is "+", worse is "-", alike is "=".
    """
    lines, right, all_cells = [["method", *results.noises, "why"]], 0, 0
    for method, (row, why) in expectations.read().items():
        cells = []
        for noise in results.noises if method in results.methods else []:
            values = results.gain(noise, (method, "Dense"), BASE)
            came = ("+" if values.mean() > 0 else "-") if is_clear(values) else "="
            cells.append(f"{row[noise]} {came}" + ("" if row[noise] == came else " !"))
            right, all_cells = right + (row[noise] == came), all_cells + 1
        lines += [[method, *cells, why]] if cells else []
    return lines, f"{right} of {all_cells} were as expected."


def choices(results, head):
    """Strength and epoch of every choice, seed by seed."""
    lines = [["method", *results.noises]]
    for method in results.methods:
        cells = [
            [
                f"{cell['strength']} @ {cell['epoch']}"
                for _, cell in sorted(results.cells.get((noise, head, method), {}).items())
            ]
            for noise in results.noises
        ]
        lines.append([method, *("; ".join(cell) for cell in cells)])
    return lines


def describe(lines):
    """All tables, by their titles."""
    results, last = Results(lines), Results(lines, last=True)
    seeds = len(distinct(lines, "seed"))
    alarm = (
        f"By chance alone {2 * student.sf(2, seeds - 1):.0%} of the cells would be bold."
        if seeds > 1
        else "One seed: no cell is bold."
    )
    tables = {"how the advice is chosen": advice.how(results), "begin with": advice.table(results)}
    tables |= {f"beside {BASE[0]}, {BASE[1]} head": standing(results), "bold by chance": alarm}
    for head in results.heads:
        tables[f"{head} head: points of clean accuracy over {BASE[0]}, {BASE[1]}"] = gains(results, head)
    pairs = [method for method in results.methods if method.startswith(f"{TWO}, ")]
    for head in results.heads if pairs else []:
        over = f"points of clean accuracy over {TWO} that learn from all examples"
        tables[f"{head} head: {over}"] = gains(results, head, (TWO, head), pairs)
    beside = {head: beside_simpler(results, head) for head in results.heads}
    tables |= {f"{head} head: points over simpler methods": rows for head, rows in beside.items() if len(rows) > 1}
    tables["expected before the run, and what came"], tables["as expected"] = expected(results)
    for head in results.heads:
        tables |= {f"{head} head: clean {name}": table(results, head, name) for name in FIGURES}
        tables[f"{head} head: clean accuracy at the last epoch"] = table(last, head, "accuracy")
        tables[f"{head} head: strength and epoch, seed by seed"] = choices(results, head)
    tables["sources, and seconds of a processor for a training"] = sources(results, lines)
    commits = ", ".join(dict.fromkeys(line["commit"] for line in lines if line["commit"]))
    hours = sum(line["processor"] for line in lines) / 3600
    whole = (
        f"{len(lines)} trainings, {hours:.2f} hours of a processor, commits {commits}: "
        f"{'; '.join(distinct(lines, 'about'))}."
    )
    return {**tables, "trainings": whole}


def sources(results, lines):
    """A row for each method: where it is from, how many strengths were tried, and the mean seconds of a training."""
    rows = [["method", "source", "trials", "processor seconds"]]
    for method in results.methods:
        own = select(lines, method=method)
        rows.append(
            [method, own[0]["source"], str(own[0]["trials"]), f"{np.mean([line['processor'] for line in own]):.2f}"]
        )
    return rows


def render(folder, name, asked):
    """Writes the tables and the heat map of the lines that are asked for, and prints the tables.

    asked: for each of data, noise, head and method the values that count; a key that is left out has all.
    """
    lines = [
        line for line in read(folder, "arena-*.jsonl") if all(line[key] in values for key, values in asked.items())
    ]
    if not lines:
        raise ValueError(f"{folder} has no line for {name}")
    publish(folder, name, describe(in_order(lines)), sorted(distinct(lines, "seed")))
    figure.save(Results(in_order(lines)), BASE, folder / f"{name}.png")


def in_order(lines):
    """By the order of the expectations, of the noises there, and of heads and seeds, whatever order they ran in."""
    rows = expectations.read()
    methods, noises = list(rows), list(next(iter(rows.values()))[0])
    place = {name: index for index, name in enumerate([*methods, *noises])}
    return sorted(
        lines,
        key=lambda line: (
            place.get(line["method"], len(place)),
            place.get(line["noise"], len(place)),
            line["head"],
            line["seed"],
        ),
    )
