"""Draws the picture of segmentation: label maps by annotators, by a joint head, and by a head of each pixel.

PYTHONPATH=. python docs/figures/segmentation.py
"""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from scipy.ndimage import label

from benchmarks.labels import segmentation

SHOWN, SEED = 7, 0
COLORS = LinearSegmentedColormap.from_list("map", ["#f1efe8", "#8fb3cf", "#1b4f7a"])
TWO = {"Dense of each pixel": "a head of\neach pixel", "joint": "the\njoint head"}


def label_maps(task, index):
    """Returns the label maps of a test image from each source, `{name: (100, H, W)}`."""
    x = task.x[segmentation.TRAIN + index][None]
    rows = {"annotators": task.planted(100, np.random.default_rng(1))[:, index]}
    for name in reversed(TWO):
        model = segmentation.fitted(task, name, SEED, epochs=10)
        rows[TWO[name]] = segmentation.sampled(model, x, 100, SEED)[:, 0]
    return rows


def picture(image, rows):
    """Draws the image, and in each row the mean of all maps and the first maps."""
    figure = plt.figure(figsize=(11, 3.9), layout="constrained")
    whole, right = figure.subfigures(1, 2, width_ratios=[2.3, SHOWN + 2.6])
    axes = whole.subplots()
    axes.imshow(image, cmap="gray", interpolation="nearest")
    axes.set_title("an image", fontsize=11)
    axes.set_axis_off()
    grid = right.subplots(len(rows), SHOWN + 1)
    for line, (name, maps) in zip(grid, rows.items(), strict=True):
        for axis, shown in zip(line, [maps.mean(0), *maps[:SHOWN]], strict=True):
            axis.imshow(shown, cmap=COLORS, vmin=0, vmax=1, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_color("#b9b5a8")
        line[0].set_ylabel(name, fontsize=10, rotation=0, ha="right", va="center")
        line[0].spines[:].set(color="#1b4f7a", linewidth=2)
    grid[0, 0].set_title("mean of 100", fontsize=10)
    grid[0, 1].set_title(f"the first {SHOWN} label maps", fontsize=10, loc="left")
    return figure


if __name__ == "__main__":
    task = segmentation.Discs(SEED)
    discs = [label(maps[0])[1] for maps in task.maps[:, segmentation.TRAIN :].swapaxes(0, 1)]
    index = discs.index(2)  # two discs that do not overlap
    figure = picture(task.x[segmentation.TRAIN + index, ..., 0], label_maps(task, index))
    figure.savefig(pathlib.Path(__file__).parent / "segmentation.png", dpi=110)
