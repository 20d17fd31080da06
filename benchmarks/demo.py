"""Digits with three kinds of noise: the method that `labels.choose` picks, and the label errors that it finds.

python -m benchmarks.demo [--quick] [--seed 0] [--output FOLDER]      (on the backend of KERAS_BACKEND)

1,280 digits have noisy labels, and only they are trained on. 517 other digits have correct labels, which only measure.
The picture shows the accuracy of early stopping and of the chosen model, and the labels that are flagged first.
"""

import time
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.labels.cleaning import planted
from benchmarks.lib import harness, noises
from benchmarks.lib.trials import BATCH, accuracy, early_stopping, make_model
from keras_het.labels import choose, find_issues

NAMES = {"pair": "swapped pairs", "symmetric": "random flips", "look-alike": "look-alikes"}
STARTS, QUICK_EPOCHS = 3, 30
GREY, BLUE, GREEN, ORANGE = "#b4b8bd", "#0072B2", "#00855f", "#D55E00"
BAR_HEIGHT, IMAGES = 0.38, 7


class Finding(NamedTuple):
    """One kind of noise.

    Attributes:
        name: plain words for the noise.
        stopped: clean accuracy of early stopping, the best of some starts by noisy labels.
        chosen: clean accuracy of the model that `choose` returns.
        method: name of the chosen method.
        reason: reason of the choice.
        precision: fraction of the flagged labels that are wrong.
        recall: fraction of the label errors that are flagged.
        images: digits, `(N, 8, 8)`.
        is_wrong: mask of the label errors, `(N,)`.
        issues: the `LabelIssues`.
    """

    name: str
    stopped: float
    chosen: float
    method: str
    reason: str
    precision: float
    recall: float
    images: np.ndarray
    is_wrong: np.ndarray
    issues: Any


def find(noise, seed, quick=False):
    """Trains on digits with one kind of noise, and returns the `Finding`."""
    task = noises.make("digits", noise, seed)
    task = task._replace(epochs=QUICK_EPOCHS) if quick else task
    x, true, labels = planted(noise, seed)
    stopped = early_stopping(task, seed, 1 if quick else STARTS)
    arguments = {"epochs": task.epochs, "batch_size": BATCH, "folds": 2 if quick else 5, "verbose": 0}
    choice = choose(lambda: make_model(task), x, labels, seed=1000 * seed, **arguments)
    chosen = accuracy(choice.model.predict(task.test.x, batch_size=1000, verbose=0), task.test.y)
    issues, is_wrong = find_issues(choice.probabilities, labels), labels != true
    hits = is_wrong[issues.index[issues.is_issue]]
    precision, recall = (float(hits.sum() / max(total, 1)) for total in (len(hits), is_wrong.sum()))
    images = 1.0 - x.reshape(-1, 8, 8)
    figures = (stopped, chosen, choice.name, choice.reason, precision, recall)
    return Finding(NAMES[noise], *figures, images, is_wrong, issues)


def table(findings):
    """Returns a row for each kind of noise."""
    lines = [["noise", "early stopping", "choose", "points", "method", "precision", "recall"]]
    for finding in findings:
        accuracies = (
            f"{finding.stopped:.3f}",
            f"{finding.chosen:.3f}",
            f"{100 * (finding.chosen - finding.stopped):+.1f}",
        )
        lines.append([finding.name, *accuracies, finding.method, f"{finding.precision:.2f}", f"{finding.recall:.2f}"])
    return lines


def draw(findings, path):
    """Draws the accuracies at the left, and the labels that are flagged first at the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 1.1 + 1.45 * len(findings)), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[5, 6.2], wspace=0.03)
    draw_bars(left.subplots(), findings)
    draw_images(right, findings)
    figure.savefig(path, dpi=130)


def draw_bars(axes, findings):
    """Draws two bars for each kind of noise, with the name of the chosen method."""
    rows = np.arange(len(findings))
    for offset, color, name in ((-0.5, GREY, "early stopping"), (0.5, BLUE, "keras_het.labels.choose")):
        values = [100 * (finding.stopped if offset < 0 else finding.chosen) for finding in findings]
        bars = axes.barh(rows + offset * BAR_HEIGHT, values, BAR_HEIGHT, color=color, label=name)
        axes.bar_label(bars, fmt="%.0f", padding=6)
    for row, finding in zip(rows, findings, strict=True):
        axes.text(2, row + 0.5 * BAR_HEIGHT, finding.method, va="center", color="white", fontsize=9.5)
    axes.set_yticks(rows, [finding.name for finding in findings], fontsize=12)
    axes.set(ylim=(len(findings) - 0.42, -0.58), xlim=(0, 108), xlabel="accuracy on correct test labels, %")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False)


def draw_images(figure, findings):
    """Draws the labels that are flagged first, with observed and suggested class. Label errors are green."""
    figure.suptitle("Flagged labels, most suspicious first: label \N{RIGHTWARDS ARROW} suggested class", fontsize=12)
    grid = figure.subplots(len(findings), IMAGES, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    for row, finding in zip(grid, findings, strict=True):
        flagged = [line for line in finding.issues.rows() if line[4]][:IMAGES]
        for axes, (index, label, suggested, *_) in zip(row, flagged, strict=False):
            color = GREEN if finding.is_wrong[index] else ORANGE
            axes.imshow(finding.images[index], cmap="gray", vmin=0.0, vmax=1.0)
            axes.spines[:].set(color=color, linewidth=2)
            axes.set_title(f"{label} \N{RIGHTWARDS ARROW} {suggested}", fontsize=11, color=color, pad=3)
    figure.supxlabel("green: the label is wrong;  orange: the label is correct", fontsize=10)


def main(arguments=None):
    """Trains, prints a table, and draws the picture."""
    parser = harness.parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the data and the trainings")
    parser.add_argument("--quick", action="store_true", help="half a minute: swapped pairs alone, fewer trainings")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    start, findings = time.perf_counter(), []
    for noise in list(NAMES)[: 1 if options.quick else None]:
        findings.append(find(noise, options.seed, options.quick))
        print(f"{findings[-1].name}: {findings[-1].reason}", flush=True)
    draw(findings, options.output / "demo.png")
    print(f"\n{harness.markdown(table(findings))}\n")
    print("One seed. Accuracy is on correct test labels. Precision and recall score the flagged labels.")
    print(f"Picture: {options.output / 'demo.png'}. {time.perf_counter() - start:.0f} s on {keras.config.backend()}.")


if __name__ == "__main__":
    main()
