"""
Title: The images of which the head is least sure
Description: Test digits of the largest entropy, each with its two most probable classes.
Seeds: 0
"""

import keras
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import keras_het
from keras_het import explain
from keras_het.labels import corrupt, look_alike_transitions

x, true = load_digits(return_X_y=True)
noise = look_alike_transitions(x / 16, true, 0.3)
y = corrupt(true, noise, seed=0)

keras.utils.set_random_seed(0)
head = keras_het.HeteroscedasticDense(10)
dense = keras.layers.Dense(64, "relu")
model = keras.Sequential([keras.Input((64,)), dense, head])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss)
model.fit(x[:900] / 16, y[:900], batch_size=100, epochs=12, verbose=0)

found = explain.uncertainty(model, x[900:] / 16)
log_p = model.predict(x[900:] / 16, verbose=0)
figure, axes = plt.subplots(2, 6, figsize=(7.2, 2.9))
for index, ax in zip((-found.entropy).argsort(), axes.flat, strict=False):
    ax.imshow(x[900 + index].reshape(8, 8), cmap="gray_r")
    first, second = log_p[index].argsort()[:-3:-1]
    ax.set_title(f"{first} or {second}")
    ax.set_axis_off()
figure.savefig("uncertainty.png")
