"""
Title: Classes that the noise ties to each other
Description: The covariance of the logits, of digits of which three pairs have swapped labels; blue is "one or the other".
Seeds: 0
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_het
from keras_het import explain

x, y = load_digits(return_X_y=True)
other = np.array(
    [0, 7, 2, 8, 9, 5, 6, 1, 3, 4]
)  # 1 and 7, 3 and 8, 4 and 9
y = np.where(np.random.default_rng(0).random(len(y)) < 0.4, other[y], y)

keras.utils.set_random_seed(0)
head = keras_het.HeteroscedasticDense(10)
dense = keras.layers.Dense(128, "relu")
model = keras.Sequential([keras.Input((64,)), dense, head])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss)
model.fit(x / 16, y, batch_size=64, epochs=15, verbose=0)

ax = explain.plots.covariance(explain.covariance(model, x / 16))
ax.figure.savefig("covariance.png")
