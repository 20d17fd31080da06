"""The chosen trial and epoch of a method, and its gain over another, seed by seed."""

import numpy as np

from benchmarks.lib.lines import distinct

BASE = ("crossentropy, stopped early", "Dense")  # method and head of what all others are compared with
FIGURES = {"accuracy": 100.0, "NLL": 1.0, "ECE": 1.0}  # and their units: points of accuracy


def choose(runs, stops_early=True):
    """The trial and the epoch of the largest accuracy on noisy validation labels, of equals the first.

    Without `stops_early`: the trial of the largest accuracy at its last epoch.
    """
    candidates = [
        (run, epoch)
        for run in runs
        for epoch in (range(len(run["noisy accuracy"])) if stops_early else [len(run["noisy accuracy"]) - 1])
    ]
    return max(candidates, key=lambda candidate: candidate[0]["noisy accuracy"][candidate[1]])


class Results:
    """Clean figures of what was chosen, of the methods whose trials are all there.

    `cells[noise, head, method][seed]` is a dict of them.
    """

    def __init__(self, lines, last=False):
        self.methods, self.noises, self.heads = (distinct(lines, name) for name in ("method", "noise", "head"))
        self.knows = {line["method"]: line["knows"] for line in lines}
        groups = {}
        for line in lines:
            groups.setdefault((line["noise"], line["head"], line["method"], line["seed"]), []).append(line)
        self.cells = {}
        for (noise, head, method, seed), runs in groups.items():
            if len(runs) == runs[0]["trials"]:
                run, epoch = choose(runs, runs[0]["stops early"] and not last)
                found = {name: run[f"clean {name}"][epoch] for name in FIGURES} | {
                    "strength": run["strength"],
                    "epoch": epoch + 1,
                }
                self.cells.setdefault((noise, head, method), {})[seed] = found

    def figures(self, noise, head, method, name):
        """One number for each seed."""
        return np.array([cell[name] for _, cell in sorted(self.cells.get((noise, head, method), {}).items())])

    def gain(self, noise, one, other, name="accuracy"):
        """The gain of one (method, head) over another, seed by seed, of the seeds that both have."""
        (method, head), (base, base_head) = one, other
        first, second = self.cells.get((noise, head, method), {}), self.cells.get((noise, base_head, base), {})
        return np.array(
            [FIGURES[name] * (first[seed][name] - second[seed][name]) for seed in sorted(first.keys() & second.keys())]
        )


def is_clear(values):
    """True if a mean is beyond two standard errors from 0."""
    return len(values) > 1 and abs(values.mean()) > 2 * standard_error(values)


def points(values, bold=None):
    """A mean and its standard error, in bold where it is clear."""
    if not len(values):
        return ""
    text = f"{values.mean():+.1f}" + (f" +- {standard_error(values):.1f}" if len(values) > 1 else "")
    return f"**{text}**" if (is_clear(values) if bold is None else bold) else text


def standard_error(values):
    return values.std(ddof=1) / np.sqrt(len(values))
