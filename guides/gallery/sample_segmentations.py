"""
Title: Label maps as different people would draw them
Description: One image, and seven label maps that are drawn for it: each is a whole one, for all its pixels share their noise.
Seeds: 0
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_het

rng = np.random.default_rng(0)
distance = np.hypot(*(np.mgrid[-8:8, -8:8] + 0.5))
radius = rng.uniform(3, 5, (300, 1, 1))
x = np.exp(-((distance / radius) ** 2))[..., None]  # soft discs
y = distance < radius + rng.normal(0, 1, (300, 1, 1))  # or larger

keras.utils.set_random_seed(0)
inputs = keras.Input((16, 16, 1))
hidden = keras.layers.Conv2D(16, 1, activation="relu")(inputs)
head = keras_het.layers.StochasticSegmentation(2, num_factors=1)
model = keras_het.models.DistributionModel(inputs, head(hidden))
loss = keras_het.losses.JointSegmentationCrossentropy(2, num_samples=5)
model.compile(keras.optimizers.Adam(0.02), loss)
model.fit(x, y.astype("int32"), batch_size=50, epochs=15, verbose=0)

maps = keras_het.explain.sample_segmentations(model, x[:1], 7)[:, 0]
figure, axes = plt.subplots(2, 4, figsize=(6.4, 3.3))
for ax, image in zip(axes.flat, [x[0], *maps], strict=True):
    ax.imshow(image, cmap="Blues")
    ax.set_axis_off()
axes[0, 0].set_title("image")
figure.savefig("sample_segmentations.png")
