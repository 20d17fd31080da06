"""Picture of `choose` and `clean` on labels by people and rules, beside baselines.

python -m benchmarks.real.figure [--output FOLDER]      (docs/figures in a clone)

It draws the tables of `benchmarks/results/real_choose.json` and `real_issues.json`.
"""

import argparse
import pathlib

from benchmarks.lib.results import FOLDER, read
from benchmarks.real import data
from benchmarks.real.choose import REFERENCE

FIGURES = pathlib.Path(__file__).parents[2] / "docs" / "figures"
MODELS = {REFERENCE: "Dense layer, early stopping", "choose": "labels.choose"}
FINDERS = {
    "logistic regression, argmax": "logistic regression, out of sample",
    "clean": "labels.clean",
}
COLORS = ("#9aa3ad", "#c2410c")


def models(tables):
    """Returns accuracy and its standard error by set and row."""
    rows = [
        dict(zip(table[0], row, strict=True))
        for title, table in tables.items()
        if title.startswith("accuracy, sets")
        for row in table[1:]
    ]
    return {row["set"]: {name: number(row[name]) for name in MODELS} for row in rows}


def finders(tables):
    """Returns average precision and its standard error by set and row."""
    result = {}
    for name in data.SETS:
        head, *rows = next((table for title, table in tables.items() if title.split(", which")[0] == name), [[]])
        scores = {row[0]: dict(zip(head, row, strict=True))["average precision"] for row in rows}
        result[name] = {row: number(scores[row]) for row in FINDERS if row in scores}
    return result


def number(text):
    """Returns mean and standard error of a cell."""
    mean, _, error = text.partition(" +- ")
    return float(mean), float(error or 0.0)


def draw(panels, path):
    """Saves a picture with a panel for each title, and the sets one below the other.

    Args:
        panels: values by set and row, and names of the rows, by title.
        path: path of a PNG file.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(9.6, 4.2), sharey=True, layout="constrained")
    for axis, (title, (scores, names)) in zip(axes, panels.items(), strict=True):
        sets = [name for name in data.SETS if scores.get(name)]
        for place, name in enumerate(sets):
            axis.plot([scores[name][row][0] for row in names], [place] * len(names), color="#d4d8dd", zorder=1)
        for (row, label), color in zip(names.items(), COLORS, strict=True):
            mean, error = zip(*(scores[name][row] for name in sets), strict=True)
            axis.errorbar(mean, range(len(sets)), xerr=error, fmt="o", color=color, label=label, markersize=6)
        axis.set_yticks(range(len(sets)), sets)
        axis.set_title(title, loc="left", fontsize=10)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False, fontsize=9, ncols=1)
        axis.grid(axis="x", color="#eceff2")
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=FIGURES)
    options = parser.parse_args()
    panels = {
        "Accuracy on true labels": (models(read(FOLDER / "real_choose.json").tables), MODELS),
        "Wrong labels: average precision": (finders(read(FOLDER / "real_issues.json").tables), FINDERS),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    draw(panels, options.output / "real.png")


if __name__ == "__main__":
    main()
