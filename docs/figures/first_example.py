"""Draws the picture of the quickstart: its first example, and the pairs that its head holds.

KERAS_BACKEND=jax python docs/figures/first_example.py
"""

import pathlib

import matplotlib.pyplot as plt

import keras_het
from keras_het.labels.report.figures import draw_covariance

HERE = pathlib.Path(__file__).parent
program = (HERE.parent / "quickstart.md").read_text().split("```python\n")[1].split("```")[0]
variables = {}
exec(compile(program, "quickstart.md", "exec"), variables)
names, model, x, y = (variables[name] for name in ("names", "model", "x", "y"))

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
draw_covariance(keras_het.explain.covariance(model, x[:3000]), names, left)
keras_het.explain.confused_pairs(model, x[:3000], names, count=8).plot(right)
figure.savefig(HERE / "first_example.png", dpi=110)
