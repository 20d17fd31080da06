"""
Title: From wrong labels to a model without them, in one call
Description: Wrong labels are found, left out or replaced, and a new model is trained; with names as labels, as a frame.
Seeds: 0
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_het

names = ["zero", "one", "two", "three", "four"]
names += ["five", "six", "seven", "eight", "nine"]
x, true = load_digits(return_X_y=True)
noise = keras_het.labels.symmetric(10, 0.1)
labels = keras_het.labels.corrupt(true, noise, seed=0)
y = np.array(names)[labels]


def make_model():
    dense = keras.layers.Dense
    layers = [keras.Input((64,)), dense(64, "relu"), dense(10, "softmax")]
    model = keras.Sequential(layers)
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy")
    return model


training = {"folds": 3, "epochs": 15, "verbose": 0}
found = keras_het.clean_labels(make_model, x / 16, y, **training)
print(found)
print(found.issues.to_frame().head(8))
