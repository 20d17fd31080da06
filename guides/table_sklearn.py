"""
Title: A table with scikit-learn
Author: The keras_het authors
Date created: 2026/11/24
Last modified: 2026/11/24
Description: Find wrong labels in a pandas frame by an estimator that goes where scikit-learn's own go.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

You have a table and labels that are names, some of them wrong. `keras_het.labels.Classifier` is a small network
that trains by a method for noisy labels. It works in pipelines and in `cross_val_predict`, as every estimator of
scikit-learn does. Here it is beside two that know nothing of wrong labels.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,demo,pandas]"` in a clone.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import keras_het
from keras_het.labels import Classifier

"""
## The table

Thirty measurements of each of 569 tumours, benign or malignant. A quarter of the 400 labels to train on are made wrong
here, so that we can count how many are found; with your own data you begin below. The labels of the others stay right.
"""

data = load_breast_cancer(as_frame=True)
right = data.target_names[data.target]
x, x_test, true, y_test = train_test_split(
    data.data, right, train_size=400, stratify=right, random_state=0
)
wrong = np.random.default_rng(0).random(len(x)) < 0.25
labels = np.where(true == "benign", "malignant", "benign")
labels = np.where(wrong, labels, true)
print(x.iloc[:3, :4].assign(label=labels[:3]))

"""
## Which labels are wrong?

A model that was trained on a label believes it. So `cross_val_predict` gives each row to a model that has not seen it,
and `keras_het.labels.find_issues` compares the probabilities with the labels. Precision is the share of the
suspects that are wrong, recall the share of the wrong labels that are suspects. Accuracy is that of each estimator,
trained on all the noisy labels, on the right labels of the other rows.
"""

estimators = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "network, early stopping": MLPClassifier(
        (32,), early_stopping=True, max_iter=500, random_state=0
    ),
    "early-learning network": Classifier(epochs=30, random_state=0),
}
parts = StratifiedKFold(4, shuffle=True, random_state=0)
classes, y = np.unique(labels, return_inverse=True)
probabilities = {}
print(
    f"{'':24}{'suspects':>8}{'precision':>11}{'recall':>8}{'accuracy':>10}"
)
for name, estimator in estimators.items():
    pipeline = make_pipeline(StandardScaler(), estimator)
    p = cross_val_predict(
        pipeline, x, labels, cv=parts, method="predict_proba"
    )
    issues = keras_het.labels.find_issues(p, y)
    suspects = issues.index[issues.is_issue]
    accuracy = pipeline.fit(x, labels).score(x_test, y_test)
    print(
        f"{name:24}{len(suspects):8}{wrong[suspects].mean():11.2f}"
        f"{wrong[suspects].sum() / wrong.sum():8.2f}{accuracy:10.3f}"
    )
    probabilities[name] = p

"""
## How far apart they are

The probability of the label that a row has, by models that have not seen it: wrong labels belong to the left, right
labels to the right.
"""

figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
for axes, (name, p) in zip(panels, probabilities.items(), strict=True):
    score = p[np.arange(len(y)), y]
    axes.hist(
        [score[~wrong], score[wrong]],
        bins=np.linspace(0, 1, 13),
        stacked=True,
        color=["#0072B2", "#D55E00"],
        label=["right labels", "wrong labels"],
    )
    axes.set_title(name, fontsize="medium")
    axes.set_xlabel("probability of the given label")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("rows")
panels[2].legend(frameon=False, loc="upper center")
plt.show()

"""
## A frame of suspects, and a model without the surest

`keras_het.labels.clean` takes any compiled Keras model, here a logistic regression. It trains one without the surest
suspects, `cleaned.confident_issues`. Its frame has the index of yours and the names of the classes: the worst come first, to be
looked at. Without `probabilities` it does the cross-validation by itself.
"""


def make_model():
    """A logistic regression in Keras."""
    scaled = keras.layers.Normalization(
        mean=x.mean().to_list(), variance=x.var().to_list()
    )
    model = keras.Sequential(
        [keras.Input((30,)), scaled, keras.layers.Dense(2, "softmax")]
    )
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy"
    )
    return model


def accuracy(model):
    """On right labels."""
    found = model.predict(x_test.to_numpy("float32"), verbose=0).argmax(-1)
    return np.mean(classes[found] == y_test)


keras.utils.set_random_seed(0)
plain = make_model()
plain.fit(x.to_numpy("float32"), y, epochs=60, verbose=0)
cleaned = keras_het.labels.clean(
    make_model, x, labels, probabilities=p, epochs=60, verbose=0
)
frame = cleaned.issues.to_frame()
print(frame[["label", "suggested", "kind"]].head(5))
print(f"accuracy with all labels:    {accuracy(plain):.3f}")
print(
    f"without {len(cleaned.confident_issues):3} of {frame.is_issue.sum():3} suspects: ",
    end="",
)
print(f"{accuracy(cleaned.model):.3f}")

"""
**What to expect.** This is one draw of wrong labels on a small table. Another draw gives other figures. So does another
backend, which shuffles the rows in another order. Where few labels are wrong, a logistic regression may do as well in a moment: compare, as above.
"""
