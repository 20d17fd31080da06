"""The tables of `labels.truth`: intervals, sets and checks, means over the seeds."""

import numpy as np

from benchmarks.lib import lines

ACCURACY = {
    "95% interval holds it": "holds",
    "true accuracy": "true",
    "mean estimate": "value",
    "labels agree": "labels agree",
    "half width": "half width",
    "part of the error of T": "error of T",
    "holds ECE": "holds ECE",
    "holds NLL": "holds NLL",
}


def mean(rows, name):
    """The mean over the seeds as text; nothing where there is no such figure."""
    found = [row[name] for row in rows if name in row]
    return f"{np.mean(found):.3f}" if found else ""


def tables(rows, tasks, ways, rules):
    """Intervals, sets and checks, means over the seeds; in the order of the names of tasks, ways to T, and rules."""
    made = {}
    for kind, make, names in (("accuracy", of_accuracy, ways), ("sets", of_sets, rules), ("check", of_checks, None)):
        if own := lines.select(rows, kind=kind):
            made |= make(own, [name for name in tasks if name in lines.distinct(own, "task")], names)
    return made


def of_accuracy(rows, tasks, ways):
    """How often the interval of the clean accuracy holds it."""
    table = [["task", "T", *ACCURACY, "redraws", "refused"]]
    for task in tasks:
        for way in [name for name in ways if lines.select(rows, task=task, way=name)]:
            own = lines.select(rows, task=task, way=way)
            counts = (str(sum(row[name] for row in own)) for name in ("redraws", "refused"))
            table.append([task, way, *(mean(own, name) for name in ACCURACY.values()), *counts])
    return {"accuracy against the true classes, by 1,000 noisy labels": table}


def of_sets(rows, tasks, rules):
    """Cover and size of the sets."""
    table = [["task", "sets", "mean cover", "its deviation", "mean size", "redraws", "refused"]]
    for task in tasks:
        for rule in [name for name in rules if lines.select(rows, task=task, way=name)]:
            own = lines.select(rows, task=task, way=rule)
            counts = (str(sum(row[name] for row in own)) for name in ("redraws", "refused"))
            size = f"{np.mean([row['size'] for row in own]):.2f}"
            table.append([task, rule, mean(own, "cover"), mean(own, "deviation"), size, *counts])
    return {"sets that shall hold the true class in 90%": table}


CHECK = {
    "error of the accuracy": "bias",
    "says no by 500 clean labels": "says no",
    "clean labels promised for the dependence": "promised, dependence",
    "found by so many": "found, dependence",
    "promised for the error": "promised, accuracy",
    "found": "found, accuracy",
}


def of_checks(rows, tasks, _):
    """The checks by clean labels; a promise is there where there is something to find."""
    table = [["task", *CHECK]]
    for task in tasks:
        own = lines.select(rows, task=task)
        cells = [mean(own, name) for name in CHECK.values()]
        table.append([task, *(cell.removesuffix(".000") if float(cell or 0) > 1 else cell for cell in cells)])
    return {"check_transition by clean labels": table}
