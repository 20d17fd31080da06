"""The results of the demo: a table, a verdict, the pairs of classes, a JSON file and two figures."""

import itertools
import json

import keras
import numpy as np

from keras_het.analysis.pairs import top_pairs
from keras_het.base import extras

PLAIN = "Dense"
GREY, BLUE = "#9a9a9a", "#1f5f99"
METRICS = (
    ("accuracy", "accuracy", 1.0),
    ("nll", "NLL", -1.0),
    ("ece", "ECE", -1.0),
)  # field of a row, name, and 1 if larger is better, else -1
NUM_PAIRS = 8


def import_extra(name):
    """A module of the extra `demo`."""
    return extras.import_extra(name, "The demo")


def mean_error(values):
    """Mean and standard error of values, one for each seed; the error of a single one is nan."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float(
        "nan"
    )


def with_error(values):
    """The mean +- standard error of values as text; the mean alone for a single value."""
    mean, error = mean_error(values)
    return f"{mean:.3f}" if np.isnan(error) else f"{mean:.3f} +- {error:.3f}"


def planted_pairs(confusions):
    """The pairs flipped most, both ways added, as `(i, j, flips)`."""
    return [pair for pair in top_pairs(confusions + confusions.T, NUM_PAIRS) if pair[2]]


def describe(result):
    """The report, as text."""
    settings, rows = result.settings, result.rows
    title = (
        f"{settings.noise:.0%} noisy labels, {settings.seeds} seed(s), at most {settings.epochs} epochs, backend "
        f"{keras.config.backend()}"
    )
    scope = (
        "Accuracy, NLL and ECE on clean test data; temperatures and epochs chosen by NLL on noisy validation data, one "
        "per seed."
    )
    return "\n".join([title, *verdict(rows), "", *table(rows), scope, "", *pair_lines(result)])


def table(rows):
    """Lines of the table: mean +- standard error over the seeds."""
    heads = ("method", *(name for _, name, _ in METRICS), "temperatures", "epochs", "seconds per model")
    lines = [heads]
    for row in rows:
        choices = (", ".join(f"{temperature:g}" for temperature in row.temperatures), ", ".join(map(str, row.epochs)))
        lines.append(
            (row.method, *(with_error(getattr(row, field)) for field, *_ in METRICS), *choices, f"{row.seconds:.1f}")
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def verdict(rows):
    """Names the best method by each metric, and its gain by seed.

    The gain is over the plain head, or, if that is the best, over the next one.
    """
    lines = []
    for field, name, sign in METRICS:
        best, rival, gains = compared(rows, field, sign)
        means = f"{np.mean(getattr(best, field)):.3f}, {rival.method} {np.mean(getattr(rival, field)):.3f}"
        lines.append(f"Best {name}: {best.method} {means}, a gain of {with_error(gains)}{doubt(*mean_error(gains))}.")
    return lines


def compared(rows, field, sign):
    """The best row by a metric, its rival, and the gains of the best over the rival for each seed."""
    best, second, *_ = ranked = sorted(rows, key=lambda row: -sign * np.mean(getattr(row, field)))
    rival = second if best.method == PLAIN else next(row for row in ranked if row.method == PLAIN)
    return best, rival, sign * (getattr(best, field) - getattr(rival, field))


def headline(rows, field, name, sign):
    """`verdict` in a few words, for a plot."""
    best, rival, gains = compared(rows, field, sign)
    gain, error = mean_error(gains)
    if doubt(gain, error):
        return f"{name}: no clear winner"
    return f"{name}: {best.method} wins, {rival.method} {'+' if sign < 0 else '-'}{gain:.3f}"


def doubt(gain, error):
    """The text to add to a gain that may be chance."""
    if np.isnan(error):
        return " (one seed, error unknown)"
    return "" if gain > 2.0 * error else " (within two standard errors: no clear winner)"


def pair_lines(result):
    """Lines with the pairs of largest covariance, the pairs flipped most, and the number of pairs in both lists."""
    found, planted = top_pairs(result.covariance, NUM_PAIRS), planted_pairs(result.confusions)
    both = len({pair[:2] for pair in found} & {pair[:2] for pair in planted})
    units = len(result.covariance)
    chance = len(found) * len(planted) / (units * (units - 1) / 2)
    left = ["largest covariance (full)", *(f"{i} - {j}   {covariance:+.3f}" for i, j, covariance in found)]
    right = ["planted confusions (flips)", *(f"{i} - {j}   {flips:.0f}" for i, j, flips in planted)]
    lines = [f"{a:<30}{b}" for a, b in itertools.zip_longest(left, right, fillvalue="")]
    return [*lines, f"{both} pairs are in both lists; chance would give {chance:.1f}."]


def save(result, folder):
    """Writes `results.json`, `results.png` and `covariance.png` into `folder`."""
    content = {
        "backend": keras.config.backend(),
        "settings": result.settings._asdict(),
        "table": [row._asdict() for row in result.rows],
    }
    content |= {
        "covariance": result.covariance,
        "confusions": result.confusions,
        "runs": [run._asdict() for run in result.runs],
    }
    (folder / "results.json").write_text(json.dumps(content, indent=1, default=lambda array: array.tolist()) + "\n")
    plot_rows(result, folder / "results.png")
    plot_covariance(result, folder / "covariance.png")


def plot_rows(result, path):
    """Draws the table: points with standard errors, a scale for each metric, and the plain head's mean as a line."""
    figure = import_extra("matplotlib.figure").Figure(figsize=(12, 4.4), layout="constrained")
    rows = result.rows
    for axes, (field, name, sign) in zip(figure.subplots(1, len(METRICS)), METRICS, strict=True):
        for position, row in enumerate(rows):
            mean, error = mean_error(getattr(row, field))
            color = GREY if row.method == PLAIN else BLUE
            axes.errorbar(position, mean, np.nan_to_num(error), fmt="o", markersize=9, capsize=6, color=color)
            top = (position, mean + np.nan_to_num(error))
            axes.annotate(f"{mean:.3f}", top, (0, 7), textcoords="offset points", ha="center")
            if row.method == PLAIN:
                axes.axhline(mean, color=GREY, linestyle=":", zorder=0)
        axes.set(
            xlim=(-0.5, len(rows) - 0.2),
            xticks=range(len(rows)),
            ylabel=f"{name} ({'higher' if sign > 0 else 'lower'} is better)",
        )
        axes.set_xticklabels([row.method for row in rows], rotation=30, ha="right", rotation_mode="anchor")
        axes.set_title(headline(rows, field, name, sign), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"Clean test data, {result.settings.noise:.0%} noisy training labels, backend {keras.config.backend()}"
    )
    figure.savefig(path, dpi=150)


def plot_covariance(result, path):
    """Draws the full head's mean centred covariance as a heat map; rings mark the pairs that the noise flipped most."""
    figure = import_extra("matplotlib.figure").Figure(figsize=(6.4, 5.4), layout="constrained")
    axes = figure.subplots()
    off_diagonal = np.where(np.eye(len(result.covariance), dtype=bool), np.nan, result.covariance)
    limit = np.nanmax(np.abs(off_diagonal))
    image = axes.imshow(off_diagonal, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_facecolor("#d9d9d9")  # grey where the map is nan
    pairs = np.array([pair[:2] for pair in planted_pairs(result.confusions)]).reshape(-1, 2)
    rings = np.concatenate([pairs, pairs[:, ::-1]])
    axes.scatter(*rings.T, s=190, facecolors="none", edgecolors="#e69f00", linewidths=2, label="pairs flipped most")
    ticks = range(len(off_diagonal))
    axes.set(
        xlabel="class",
        ylabel="class",
        xticks=ticks,
        yticks=ticks,
        title="Full head: average centred covariance of the logits",
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)
    figure.colorbar(image, label="covariance of (logits / temperature); grey: variances, left out")
    figure.savefig(path, dpi=150)
