"""The heat map of the arena."""

import numpy as np

from benchmarks.arena.gains import is_clear

LIMIT = 15.0  # points, where the colours end


def save(results, base, path):
    """Methods down, noises across, a panel for each head: points of clean accuracy over the base.

    Bold is what is beyond two standard errors.
    """
    from matplotlib.figure import Figure

    height = 2.1 + 0.36 * len(results.methods)
    figure = Figure(figsize=(2.4 + 0.86 * len(results.noises) * len(results.heads), height), layout="constrained")
    panels = figure.subplots(1, len(results.heads), sharey=True, squeeze=False)[0]
    for axes, head in zip(panels, results.heads, strict=True):
        image = draw(axes, results, head, base)
    figure.colorbar(
        image, ax=list(panels), label="points of accuracy on clean test data", extend="both", fraction=0.03, aspect=30
    )
    figure.suptitle(
        f"Over {base[0]} ({base[1]} head), every method chosen by noisy labels; bold: beyond two standard errors",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)


def draw(axes, results, head, base):
    """One panel."""
    gains = [[results.gain(noise, (method, head), base) for noise in results.noises] for method in results.methods]
    means = np.array([[values.mean() if len(values) else np.nan for values in row] for row in gains])
    # Red and blue differ for the colour-blind, too.
    image = axes.imshow(means, cmap="RdBu", vmin=-LIMIT, vmax=LIMIT, aspect="auto")
    for row, column in np.argwhere(~np.isnan(means)):
        mean, own = means[row, column], (results.methods[row], head) == base
        bold = is_clear(gains[row][column])
        colour = "white" if abs(mean) > 0.62 * LIMIT else "black"
        axes.text(
            column,
            row,
            "0" if own else f"{mean:+.1f}",
            ha="center",
            va="center",
            fontsize=8,
            color=colour,
            weight="bold" if bold else "normal",
        )
    axes.set_xticks(range(len(results.noises)), results.noises, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(
        range(len(results.methods)), [f"{name} ({results.knows[name]})".removesuffix(" ()") for name in results.methods]
    )
    axes.set_title(f"{head} head", fontsize=10)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bounds = sum(results.knows[name] == "bound" for name in results.methods)
    if bounds and all(results.knows[name] == "bound" for name in results.methods[:bounds]):
        axes.axhline(bounds - 0.5, color="black", linewidth=1.5)
    return image
