"""Draws the picture of the home page: the covariance that the head of its first example has learned.

KERAS_BACKEND=jax python docs/figures/first_example.py
"""

import pathlib

import matplotlib.pyplot as plt
import numpy as np

import keras_het

HERE = pathlib.Path(__file__).parent
program = (HERE.parent / "index.md").read_text().split("```python\n")[1].split("```")[0]
variables = {}
exec(compile(program, "index.md", "exec"), variables)
matrix = keras_het.explain.covariance(variables["model"], variables["x"])

ORDER = [1, 7, 3, 9, 5, 6, 0, 2, 4, 8]  # swapped pairs side by side
shown = np.where(np.eye(10, dtype=bool), np.nan, matrix)[np.ix_(ORDER, ORDER)]
limit = np.nanmax(np.abs(shown))
plt.rcParams["font.size"] = 13  # legible on a phone, which shows the picture 5 inches wide
figure, axes = plt.subplots(figsize=(5.2, 4.3), layout="constrained")
axes.set_facecolor("0.78")  # the variances, which are much larger
image = axes.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none")
axes.set(xticks=range(10), xticklabels=ORDER, yticks=range(10), yticklabels=ORDER, xlabel="digit", ylabel="digit")
bar = figure.colorbar(image, ax=axes, shrink=0.9)
bar.set_label("one or the other   |   together")
bar.set_ticks([])
figure.savefig(HERE / "first_example.png", dpi=220)
