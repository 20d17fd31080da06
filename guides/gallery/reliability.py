"""
Title: How far the confidence can be trusted
Description: The share of right predictions by confidence, of a model that was trained for too long, and after one number is fitted.
Seeds: 0
"""

import keras
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from keras_het import explain, models
from keras_het.labels import corrupt, symmetric

x, true = load_digits(return_X_y=True)
noise = symmetric(10, 0.3)
y = corrupt(true, noise, seed=0)

keras.utils.set_random_seed(0)
dense = keras.layers.Dense
layers = [keras.Input((64,)), dense(256, "relu"), dense(10, "log_softmax")]
model = keras.Sequential(layers)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss)
model.fit(x[:800] / 16, y[:800], batch_size=100, epochs=60, verbose=0)
scaled = models.scale_temperature(model, x[800:1000] / 16, y[800:1000])

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
for ax, shown in zip(axes, (model, scaled), strict=True):
    p = explain.predict_probabilities(shown, x[1000:] / 16)
    found = explain.calibration(p, y[1000:])
    explain.plots.reliability(found, ax=ax)
figure.savefig("reliability.png")
