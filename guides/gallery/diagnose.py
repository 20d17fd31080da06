"""
Title: Which kind of wrong labels there are
Description: The kind of noise, how much of it, which labels are swapped, and where to begin, by the labels alone.
Seeds: 0
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

from keras_het import training
from keras_het.labels.diagnosis import diagnose

x, y = load_digits(return_X_y=True)
swapped = np.random.default_rng(0).random(len(y)) < 0.3
y[swapped & (y == 3)] = 8  # 30% of the threes are called eights
y[swapped & (y == 4)] = 9


def make_model():
    dense = keras.layers.Dense
    layers = [keras.Input((64,)), dense(64, "relu"), dense(10, "softmax")]
    model = keras.Sequential(layers)
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy")
    return model


settings = {"folds": 3, "epochs": 15, "verbose": 0}
p = training.cross_val_probabilities(make_model, x / 16, y, **settings)
print(diagnose(p, y))
