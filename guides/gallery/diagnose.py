"""
Title: Which kind of label noise there is
Description: The kind of label noise, the evidence, the frequent flips and the next step, from labels and probabilities alone.
Seeds: 0
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

from keras_het import training
from keras_het.labels import diagnosis

x, y = load_digits(return_X_y=True)
swapped = np.random.default_rng(0).random(len(y)) < 0.3
y[swapped & (y % 2 == 0)] += 1  # 30% of the even digits


def make_model():
    dense = keras.layers.Dense
    layers = [keras.Input((64,)), dense(64, "relu"), dense(10, "softmax")]
    model = keras.Sequential(layers)
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy")
    return model


settings = {"folds": 3, "epochs": 15, "verbose": 0}
p = training.cross_val_probabilities(make_model, x / 16, y, **settings)
print(diagnosis.diagnose(p, y))
