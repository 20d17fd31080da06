"""The picture of the demo: accuracies of early stopping and of the chosen model, and the worst of the named labels."""

import numpy as np

from benchmarks.demo.data import import_extra
from benchmarks.demo.texts import mean_error

GREY, BLUE, GREEN, ORANGE, DARK = "#b4b8bd", "#0072B2", "#00855f", "#D55E00", "#30343a"
PICTURES = 7  # of each noise
HEIGHT = 0.38  # of a bar


def draw(findings, trials, path):
    """Draws the findings of all seeds at the left, and images of the trials, one for each noise, at the right."""
    figure = import_extra("matplotlib.figure").Figure(figsize=(13, 1.1 + 1.45 * len(trials)), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[5, 6.2], wspace=0.03)
    draw_bars(left, findings)
    draw_images(right, trials)
    figure.savefig(path, dpi=130)


def draw_bars(figure, findings):
    """Two bars for each noise, of right predictions of clean test labels, and the method that was chosen."""
    axes, noises = figure.subplots(), list(dict.fromkeys(finding.noise for finding in findings))
    for place, noise in enumerate(noises):
        own = [finding for finding in findings if finding.noise == noise]
        rows = [("early_stopping", GREY, "early stopping"), ("chosen", BLUE, "keras_het.choose")]
        for offset, (field, color, label) in zip((-0.5, 0.5), rows, strict=True):
            values = 100 * np.array([getattr(finding, field) for finding in own])
            _bar(axes, place + offset * HEIGHT, values, color, label if place == 0 else None)
        _name(axes, place + 0.5 * HEIGHT, [finding.method for finding in own])
    axes.set_yticks(range(len(noises)), noises, fontsize=12)
    axes.set(ylim=(len(noises) - 0.42, -0.58), xlim=(0, 108), xticks=range(0, 101, 25))
    axes.set_xlabel("right predictions of clean test labels, %", color=DARK)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False, fontsize=11)


def _bar(axes, place, values, color, label):
    """The mean as a bar with its number, and its standard error if there are several seeds."""
    mean, error = mean_error(values)
    axes.barh(place, mean, HEIGHT, color=color, label=label)
    if not np.isnan(error):
        axes.errorbar(mean, place, xerr=error, color=DARK, capsize=3, linewidth=1.2)
    end = mean + np.nan_to_num(error), place
    axes.annotate(f"{mean:.0f}", end, (6, 0), textcoords="offset points", va="center", color=DARK, fontsize=11)


def _name(axes, place, names):
    """The methods that were chosen, the most frequent two with their numbers if there are several seeds."""
    counts = sorted(set(names), key=lambda name: (-names.count(name), name))
    lines = [f"{name} ({names.count(name)} of {len(names)})" if len(names) > 1 else name for name in counts]
    text = "\n".join(lines[:2]) + (", ..." if len(lines) > 2 else "")
    axes.annotate(text, (0, place), (6, 0), textcoords="offset points", va="center", color="white", fontsize=9.5)


def draw_images(figure, trials):
    """The labels of least probability of each trial, among those named as wrong: given and suggested label."""
    figure.suptitle("Wrong labels that it names, the worst first: given \N{RIGHTWARDS ARROW} suggested", fontsize=12)
    grid = figure.subplots(len(trials), PICTURES, squeeze=False)
    for row, trial in zip(grid, trials, strict=True):
        issues = [line for line in trial.issues.rows() if line[4]][:PICTURES]
        for axes, line in zip(row, issues, strict=False):
            _image(axes, trial.data, *line[:3])
        for axes in row[len(issues) :]:
            axes.set_axis_off()
    figure.supxlabel("green: wrong indeed;  orange: the given label is right", fontsize=10, color=DARK)


def _image(axes, data, index, given, suggested):
    color = GREEN if data.wrong[index] else ORANGE
    axes.imshow(data.images[index], cmap="gray", vmin=0.0, vmax=1.0)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=color, linewidth=2)
    axes.set_title(f"{given} \N{RIGHTWARDS ARROW} {suggested}", fontsize=11, color=color, pad=3)
