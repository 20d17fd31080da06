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


def make_body():
    return [keras.layers.Dense(64, "relu")]


training = {"folds": 2, "epochs": 15, "verbose": 0}
training["optimizer"] = keras.optimizers.Adam(0.01)
found = keras_het.choose(make_body, x / 16, y, **training)
print(found)
found.plot().savefig("choose.png")
