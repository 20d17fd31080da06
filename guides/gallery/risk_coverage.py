"""
Title: Fewer errors, if doubtful examples are left to a person
Description: The share of errors among the predictions that are kept, the most confident first.
Seeds: 0
"""

import keras
from sklearn.datasets import load_digits

import keras_het
from keras_het import explain
from keras_het.labels import corrupt, symmetric

x, true = load_digits(return_X_y=True)
noise = symmetric(10, 0.3)
y = corrupt(true, noise, seed=0)

keras.utils.set_random_seed(0)
head = keras_het.HeteroscedasticDense(10)
model = keras.Sequential([keras.layers.Dense(64, "relu"), head])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.02), loss)
model.fit(x[:900] / 16, y[:900], batch_size=100, epochs=12, verbose=0)

p = explain.predict_probabilities(model, x[900:] / 16)
curve = explain.risk_coverage(p, true[900:])
ax = explain.plots.risk_coverage(curve)
ax.figure.savefig("risk_coverage.png")
