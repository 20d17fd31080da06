"""
Title: Which method
Description: Methods compared by noisy labels alone; the points over early stopping with their standard errors, and the reason for the choice.
Seeds: 0
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_het

x, y = load_digits(return_X_y=True)
swapped = np.random.default_rng(0).random(len(y)) < 0.4
y[swapped] = (y[swapped] + 1) % 10  # 40% are called the next digit


def make_model():
    dense = keras.layers.Dense
    layers = [keras.Input((64,)), dense(64, "relu"), dense(10, "softmax")]
    model = keras.Sequential(layers)
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy")
    return model


training = {"folds": 2, "epochs": 15, "verbose": 0}
found = keras_het.choose(make_model, x / 16, y, **training)
print(found)
found.plot().savefig("choose.png")
