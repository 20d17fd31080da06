"""Draws the picture of label vectors: the planted covariance of eight labels, and those that two losses learn.

KERAS_BACKEND=torch python docs/figures/joint.py
"""

import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_het

HERE = pathlib.Path(__file__).parent
LABELS, FACTORS = 8, 2


def correlation(covariance):
    """Returns the correlations of a covariance."""
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


rng = np.random.default_rng(0)
x, factor = rng.normal(size=(4000, 5)).astype("float32"), 2.0 * rng.normal(size=(LABELS, FACTORS))
own = 0.5 * rng.normal(size=(len(x), LABELS))
u = x @ rng.normal(size=(5, LABELS)) + rng.normal(size=(len(x), FACTORS)) @ factor.T + own
y = (rng.random(u.shape) * (1.0 + np.exp(-u)) < 1.0).astype("float32")

keras.utils.set_random_seed(0)
inputs = keras.Input((5,))
joint = keras_het.models.DistributionModel(
    inputs, keras_het.layers.JointHeteroscedasticDense(LABELS, FACTORS, seed=0)(inputs)
)
joint.compile(keras.optimizers.Adam(0.02), keras_het.losses.JointMultiLabelCrossentropy(64))
separate = keras.Sequential([inputs, keras_het.layers.HeteroscedasticDense(LABELS, FACTORS, link="sigmoid", seed=0)])
separate.compile(keras.optimizers.Adam(0.02), keras.losses.BinaryCrossentropy(from_logits=True))
for model in (joint, separate):
    model.fit(x, y, batch_size=128, epochs=20, verbose=0)

# In the order of the planted angle, labels that occur together are neighbours.
order = np.argsort(np.arctan2(*factor.T))
panels = {
    "planted": correlation(factor @ factor.T + 0.25 * np.eye(LABELS)),
    "learned by the joint loss": correlation(keras_het.explain.covariance(joint, x[:500])),
    "learned by binary crossentropy": correlation(keras_het.explain.covariance(separate, x[:500])),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained")
for axis, (title, matrix) in zip(axes, panels.items(), strict=True):
    image = axis.imshow(matrix[np.ix_(order, order)], cmap="RdBu_r", vmin=-1, vmax=1)
    axis.set(title=title, xticks=range(LABELS), yticks=range(LABELS), xlabel="label")
    axis.set_xticklabels(order)
    axis.set_yticklabels(order)
axes[0].set_ylabel("label")
figure.colorbar(image, ax=axes, label="correlation of the logits", shrink=0.85)
figure.savefig(HERE / "joint.png", dpi=110)
