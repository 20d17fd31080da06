"""
Title: Which value, and how many epochs
Description: A hyperparameter and the epoch to stop at, by the likelihood of held-out labels, which may be wrong, too.
Seeds: 0
"""

import keras
from sklearn.datasets import load_digits

import keras_het
from keras_het.labels import corrupt, symmetric

x, true = load_digits(return_X_y=True)
noise = symmetric(10, 0.3)
y = corrupt(true, noise, seed=0)


def make_model(temperature):
    keras.utils.set_random_seed(0)
    head = keras_het.HeteroscedasticDense(10, temperature=temperature)
    dense = keras.layers.Dense(64, "relu")
    model = keras.Sequential([keras.Input((64,)), dense, head])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss)
    return model


held_out = x[1000:1400] / 16, y[1000:1400]
data = {"x": x[:1000] / 16, "y": y[:1000], "validation_data": held_out}
values = (0.3, 1.5, 5.0, 20.0)
found = keras_het.tune(make_model, values, **data, epochs=12, verbose=0)
print(found)
found.plot().savefig("tune.png")
