"""Report of recipe.py for every task: choices of criteria that need no clean labels, and how they order all runs."""

import collections

import numpy as np
from scipy.stats import spearmanr

from benchmarks.lib.lines import distinct, select, with_error

CRITERIA = {  # criteria that you can measure: name, and sign of better values
    "noisy NLL": -1.0,
    "noisy accuracy": 1.0,
    "noisy scaled NLL": -1.0,
    "noisy GCE": -1.0,
    "noisy absolute error": -1.0,
}
CLEAN = ("clean accuracy", "clean NLL", "clean ECE")
RANKED = (*CLEAN, "clean scaled NLL")
GAINS = (*CLEAN, "clean scaled NLL", "noisy NLL", "noisy ECE")
BY_NOISE = {
    "that depend on the example": ("digits, 20%", "digits, 40%", "images, 20%", "MNIST, 40%"),
    "at random": ("groups, 1000 classes, 20 each", "groups, 100 classes, 100 each", "digits, 40% symmetric"),
}


def _of(runs, tasks):
    return [run for run in runs if run["task"] in tasks]


def choose(runs, criterion):
    """Returns the run and the epoch, counted from 0, with the best criterion. The first wins a tie."""
    sign = CRITERIA[criterion]
    ordered = sorted(runs, key=lambda run: (run["temperature"], run["l2"]))
    return max(
        ((run, epoch) for run in ordered for epoch in range(len(run["epochs"]))),
        key=lambda c: sign * c[0]["epochs"][c[1]][criterion],
    )


def chosen(runs, criterion):
    """Returns the result of `choose` for every seed."""
    return [choose(select(runs, seed=seed), criterion) for seed in sorted(distinct(runs, "seed"))]


def choices(runs, criterion):
    """Returns a row for each method of one task: clean scores of the choices, and the choices."""
    lines = [["method", *CLEAN, criterion, "temperatures", "L2", "epochs"]]
    for method in distinct(runs, "method"):
        best = chosen(select(runs, method=method), criterion)
        figures = [with_error([run["epochs"][epoch][name] for run, epoch in best]) for name in (*CLEAN, criterion)]
        lines.append([method, *figures, *(_counts(run[name] for run, _ in best) for name in ("temperature", "l2"))])
        lines[-1].append(", ".join(str(epoch + 1) for _, epoch in best))
    return lines


def _counts(values):
    counts = sorted(collections.Counter(values).items())
    return ", ".join(f"{value:g}" + (f" (x{count})" if count > 1 else "") for value, count in counts)


def gains(runs, criterion):
    """Returns a row for each task: scores of Dense, then the gain of every other method, by its seeds."""
    lines = [["task", "method", *GAINS, "seeds"]]
    for task in distinct(runs, "task"):
        dense = select(runs, task=task, method="Dense")
        plain = _figures(dense, criterion)
        lines.append([task, "Dense", *(with_error(column) for column in plain.T), str(len(plain))])
        for method in distinct(select(runs, task=task), "method"):
            own = select(runs, task=task, method=method)
            if method != "Dense":
                same = [run for run in dense if run["seed"] in distinct(own, "seed")]
                gained = _figures(own, criterion) - _figures(same, criterion)
                lines.append(["", method, *(with_error(column, sign="+") for column in gained.T), str(len(gained))])
    return lines


def _figures(runs, criterion):
    """Returns `GAINS` of the choices of a criterion, `(seeds, len(GAINS))`."""
    return np.array([[run["epochs"][epoch][name] for name in GAINS] for run, epoch in chosen(runs, criterion)])


def correlations(runs):
    """Returns a row for each criterion: its order of all epochs of all runs, and the accuracy that it loses.

    Means over tasks and seeds: Spearman's rank correlations with the clean figures, and the clean accuracy that the
    choice loses to the best epoch of all runs.
    """
    groups = [select(runs, task=task, seed=seed) for task in distinct(runs, "task") for seed in distinct(runs, "seed")]
    lines = [["criterion", *RANKED, "accuracy lost"]]
    for criterion in CRITERIA:
        means = np.mean([(*_ranks(group, criterion), _lost(group, criterion)) for group in groups if group], axis=0)
        lines.append([criterion, *(f"{mean:.2f}" for mean in means[:-1]), f"{means[-1]:.3f}"])
    return lines


def _ranks(runs, criterion):
    """Returns rank correlations with `RANKED`. Larger is better."""
    epochs = [epoch for run in runs for epoch in run["epochs"]]
    ours = [CRITERIA[criterion] * epoch[criterion] for epoch in epochs]
    signs = {name: 1.0 if name == "clean accuracy" else -1.0 for name in RANKED}
    return [spearmanr(ours, [sign * epoch[name] for epoch in epochs]).statistic for name, sign in signs.items()]


def _lost(runs, criterion):
    """Returns the clean accuracy of the best epoch minus the accuracy of the chosen epoch."""
    run, epoch = choose(runs, criterion)
    return (
        max(other["clean accuracy"] for each in runs for other in each["epochs"])
        - run["epochs"][epoch]["clean accuracy"]
    )


def variations(runs, names, criterion="noisy NLL"):
    """Returns a row for each setting, titled by its difference to the first. `names` are the names of the settings."""
    lines = [["task", "changed", *GAINS]]
    for task in distinct(runs, "task"):
        own = select(runs, task=task)
        for setting in dict.fromkeys(tuple(run[name] for name in names) for run in own):
            changed = [f"{name} {value:g}" for name, value in zip(names, setting, strict=True) if value != own[0][name]]
            same = [run for run in own if tuple(run[name] for name in names) == setting]
            columns = _figures(same, criterion).T
            lines.append([task, ", ".join(changed) or "nothing", *(with_error(column) for column in columns)])
    return lines


def whole(runs):
    """Returns the runs without unfinished seeds, which have fewer runs than the other seeds of their task."""
    counts = collections.Counter((run["task"], run["seed"]) for run in runs)
    most = {task: max(count for (name, _), count in counts.items() if name == task) for task, _ in counts}
    return [run for run in runs if counts[run["task"], run["seed"]] == most[run["task"]]]


def describe(runs):
    """Returns the tables of the report by their titles."""
    runs = whole(runs)
    tables = {
        f"beside Dense, all chosen by {criterion}": gains(runs, criterion)
        for criterion in ("noisy NLL", "noisy accuracy")
    }
    ranked = "mean rank correlation over the tasks"
    groups = {ranked: runs} | {f"{ranked}, label errors {how}": _of(runs, names) for how, names in BY_NOISE.items()}
    tables |= {title: correlations(group) for title, group in groups.items() if group}
    for task in distinct(runs, "task"):
        own = select(runs, task=task)
        tables |= {f"{task}: chosen by {criterion}": choices(own, criterion) for criterion in CRITERIA}
        tables[f"{task}: rank correlation over all epochs of all runs"] = correlations(own)
    return tables
