"""What recipe.py says: for every task, what each criterion without clean labels chooses, and how well it orders all runs."""

import collections
import json
import pathlib

import harness
import numpy as np
from scipy.stats import spearmanr

CRITERIA = {  # what a user can measure: name, sign of what is better
    "noisy NLL": -1.0,
    "noisy accuracy": 1.0,
    "noisy scaled NLL": -1.0,
    "noisy GCE": -1.0,
    "noisy absolute error": -1.0,
}
CLEAN = ("clean accuracy", "clean NLL", "clean ECE")
METHODS = ("Dense", "diagonal", "full", "parameter-efficient")


def read(folder):
    """All runs in a folder, in the order of their files."""
    return [json.loads(line) for path in sorted(pathlib.Path(folder).glob("recipe-*.jsonl")) for line in path.read_text().splitlines()]


def select(runs, **values):
    """The runs that have these values."""
    return [run for run in runs if all(run[name] == value for name, value in values.items())]


def distinct(runs, name):
    """The values of a column, in order of first appearance."""
    return list(dict.fromkeys(run[name] for run in runs))


def choose(runs, criterion):
    """The run and the epoch, counted from 0, that are best by a criterion; of equals the first."""
    sign = CRITERIA[criterion]
    return max(((run, epoch) for run in runs for epoch in range(len(run["epochs"]))), key=lambda c: sign * c[0]["epochs"][c[1]][criterion])


def chosen(runs, criterion):
    """`choose` for every seed."""
    return [choose(select(runs, seed=seed), criterion) for seed in sorted(distinct(runs, "seed"))]


def with_error(values):
    """Mean +- standard error as text."""
    error = f" +- {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{error}"


def choices(runs, criterion):
    """A row for each method of one task: clean figures of what the criterion chose, and the choices."""
    lines = [["method", *CLEAN, criterion, "temperatures", "L2", "epochs"]]
    for method in METHODS:
        found = chosen(select(runs, method=method), criterion)
        if found:
            figures = [with_error([run["epochs"][epoch][name] for run, epoch in found]) for name in (*CLEAN, criterion)]
            lines.append([method, *figures, *(_counted(run[name] for run, _ in found) for name in ("temperature", "l2"))])
            lines[-1].append(", ".join(str(epoch + 1) for _, epoch in found))
    return harness.markdown(lines)


def _counted(values):
    counts = sorted(collections.Counter(values).items())
    return ", ".join(f"{value:g}" + (f" (x{count})" if count > 1 else "") for value, count in counts)


def correlations(runs):
    """Spearman's rank correlation of each criterion with the clean figures over all epochs of all runs, the mean over the seeds."""
    lines = [["criterion", *CLEAN]]
    for criterion, sign in CRITERIA.items():
        row = []
        for name in CLEAN:
            better = 1.0 if name == "clean accuracy" else -1.0
            of_seeds = []
            for seed in distinct(runs, "seed"):
                epochs = [epoch for run in select(runs, seed=seed) for epoch in run["epochs"]]
                of_seeds.append(spearmanr([sign * e[criterion] for e in epochs], [better * e[name] for e in epochs]).statistic)
            row.append(f"{np.mean(of_seeds):.2f}")
        lines.append([criterion, *row])
    return harness.markdown(lines)


def describe(runs):
    """The report, as Markdown."""
    text = []
    for task in distinct(runs, "task"):
        own = select(runs, task=task)
        text.append(f"## {task}\n\n{len(own)} runs, seeds {', '.join(map(str, sorted(distinct(own, 'seed'))))}.\n")
        for criterion in CRITERIA:
            text.append(f"Chosen by {criterion}:\n\n{choices(own, criterion)}\n")
        text.append(f"Rank correlation of the criteria with the clean figures, over all epochs of all runs:\n\n{correlations(own)}\n")
    return "\n".join(text)
