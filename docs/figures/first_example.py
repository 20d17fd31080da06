"""Draws the picture of the home page: the covariance that the head of its first example has learned.

KERAS_BACKEND=jax python docs/figures/first_example.py
"""

import pathlib

import matplotlib.pyplot as plt

import keras_het
from keras_het.labels.report.figures import draw_covariance

HERE = pathlib.Path(__file__).parent
program = (HERE.parent / "index.md").read_text().split("```python\n")[1].split("```")[0]
variables = {}
exec(compile(program, "index.md", "exec"), variables)
model, x, classes = (variables[name] for name in ("model", "x", "classes"))

plt.rcParams["font.size"] = 12  # legible on a phone, which shows the picture 5 inches wide
figure, axes = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
draw_covariance(keras_het.explain.covariance(model, x), classes, axes)
figure.savefig(HERE / "first_example.png", dpi=220)
