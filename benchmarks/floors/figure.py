"""The plot of the atlas: the distance to the floor by task and head."""

import numpy as np

PARTS = {"distance of the group": "outside the group", "distance within the group": "within the group"}
COLOURS = ("#d95f02", "#4c78a8")
CRITERION = "noisy NLL"  # of the epoch


def save(groups, values, path):
    """A panel for each task, a bar for each method: the distance outside the group, and within it.

    groups: `(noise, units, per_class, method, runs)` of each.
    values: a function of runs, the name of a figure and the criterion of the epoch, `(seeds,)`.
    """
    from matplotlib.figure import Figure

    noises, sizes = (list(dict.fromkeys(keys)) for keys in ((g[0] for g in groups), (g[1:3] for g in groups)))
    figure = Figure(figsize=(1.4 + 2.6 * len(sizes), 0.9 + 1.9 * len(noises)), layout="constrained")
    panels = figure.subplots(len(noises), len(sizes), sharex="row", sharey=True, squeeze=False)
    for row, noise in zip(panels, noises, strict=True):
        for axes, size in zip(row, sizes, strict=True):
            draw(axes, [group for group in groups if (group[0], group[1:3]) == (noise, size)], values)
        first = next(axes for axes in row if axes.axison)
        first.set_ylabel(noise, fontsize=9)
        first.tick_params(labelleft=True)
    for axes, (units, per_class) in zip(panels[0], sizes, strict=True):
        axes.set_title(f"{units} classes, {per_class} examples each", fontsize=9)
    panels[0, 0].invert_yaxis()  # that all share
    handles = [panels[0, 0].patches[0], panels[0, 0].patches[len(panels[0, 0].patches) // 2]]
    figure.legend(handles, PARTS.values(), loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(
        "Noisy NLL above its floor, by task and head (bars: mean; lines: standard error over seeds)", fontsize=10
    )
    figure.savefig(path, dpi=130)


def draw(axes, groups, values):
    """One panel; without runs it stays empty."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=2)
    if not groups:
        axes.axis("off")
        return
    methods, left = [group[3] for group in groups], np.zeros(len(groups))
    for name, colour in zip(PARTS, COLOURS, strict=True):
        means = np.array([values(group[4], name, CRITERION).mean() for group in groups])
        axes.barh(methods, means, left=left, color=colour, height=0.7)
        left += means
    errors = [error(values(group[4], "distance", CRITERION)) for group in groups]
    axes.errorbar(left, methods, xerr=errors, fmt="none", ecolor="black", elinewidth=1)


def error(found):
    """The standard error of a mean, 0 of one value."""
    return found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
