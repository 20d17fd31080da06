"""
Title: The labels that are probably wrong
Description: The worst labels of all digits, by models that have not seen them, each with its label and the class found.
Seeds: 0
"""

import keras
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from keras_het import training
from keras_het.labels import corrupt, find_issues, symmetric

x, true = load_digits(return_X_y=True)
noise = symmetric(10, 0.1)
y = corrupt(true, noise, seed=0)


def make_model():
    dense = keras.layers.Dense
    layers = [keras.Input((64,)), dense(64, "relu"), dense(10, "softmax")]
    model = keras.Sequential(layers)
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy")
    return model


settings = {"folds": 3, "epochs": 15, "verbose": 0}
p = training.cross_val_probabilities(make_model, x / 16, y, **settings)
issues = find_issues(p, y)
print(issues)

figure, axes = plt.subplots(2, 6, figsize=(7.2, 2.9))
for place, ax in enumerate(axes.flat):
    ax.imshow(x[issues.index[place]].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{issues.given[place]} → {issues.suggested[place]}")
    ax.set_axis_off()
figure.savefig("find_label_issues.png")
