"""
Title: Intervals of a regression
Description: A mean that was trained as usual, and then, by one conversion, how far the targets stray from it, and where.
Seeds: 0
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_het

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-2, 2, (1500, 1)), axis=0)
y = np.sin(2 * x) + (0.1 + 0.2 * (x + 2)) * rng.normal(size=(1500, 1))

keras.utils.set_random_seed(0)
dense = keras.layers.Dense
mean = keras.Sequential([keras.Input((1,)), dense(32, "tanh"), dense(1)])
mean.compile(keras.optimizers.Adam(0.02), "mse")
mean.fit(x[::2], y[::2], epochs=30, verbose=0)
convert = keras_het.models.heteroscedastic_regression
model = convert(mean, x[1::2], y[1::2])
model.fit(x[::2], y[::2], epochs=30, verbose=0)

low, high = model.predict_interval(x, level=0.9, verbose=0)
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(x[1::2], y[1::2], ".", color="gray", markersize=3)
ax.plot(x, model.predict(x, verbose=0))
ax.fill_between(x[:, 0], low[:, 0], high[:, 0], alpha=0.3)
ax.set_title("mean, and 90% interval")
figure.savefig("predict_interval.png")

outputs = model.predict_distribution(x[1::2], verbose=0)
print(keras_het.explain.regression_scores(outputs, y[1::2]))
