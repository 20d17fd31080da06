"""
Title: A table with scikit-learn
Author: The keras_het authors
Date created: 2026/11/24
Last modified: 2026/11/27
Description: Find label errors in a pandas frame with an estimator that works like scikit-learn's.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

You have a table with class names, and some of the names are wrong. `keras_het.labels.Classifier` is a small network
that trains with a method for noisy labels. Use it in pipelines and in `cross_val_predict`, like every estimator of
scikit-learn. This guide compares it with two estimators that trust all labels.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide needs
`pip install ".[jax,demo,pandas]"` in a clone.
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

The table has thirty measurements of 569 tumours, benign or malignant. A quarter of the 400 training labels is flipped,
so that you can count how many errors you find. The test labels stay correct. With your own data, start at the next
section.
"""

data = load_breast_cancer(as_frame=True)
target = data.target_names[data.target]
x, x_test, true, y_test = train_test_split(
    data.data, target, train_size=400, stratify=target, random_state=0
)
wrong = np.random.default_rng(0).random(len(x)) < 0.25
labels = np.where(true == "benign", "malignant", "benign")
labels = np.where(wrong, labels, true)
print(x.iloc[:3, :4].assign(label=labels[:3]))

"""
## Find the label errors

A model memorises the labels it was trained on. So let `cross_val_predict` compute out-of-sample probabilities, and
compare them with the labels by `keras_het.labels.find_issues`. Precision is the fraction of issues that are label
errors, and recall is the fraction of label errors that are issues. The accuracy is on clean test labels, after
training on all noisy labels.
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
print(f"{'':24}{'issues':>8}{'precision':>11}{'recall':>8}{'accuracy':>10}")
for name, estimator in estimators.items():
    pipeline = make_pipeline(StandardScaler(), estimator)
    p = cross_val_predict(
        pipeline, x, labels, cv=parts, method="predict_proba"
    )
    ranked = keras_het.labels.find_issues(p, y)
    issues = ranked.index[ranked.is_issue]
    accuracy = pipeline.fit(x, labels).score(x_test, y_test)
    print(
        f"{name:24}{len(issues):8}{wrong[issues].mean():11.2f}"
        f"{wrong[issues].sum() / wrong.sum():8.2f}{accuracy:10.3f}"
    )
    probabilities[name] = p

"""
## See how well they separate

Each panel shows the out-of-sample probability of the observed label. Label errors should be at the left, correct labels
at the right.
"""

figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
for axes, (name, p) in zip(panels, probabilities.items(), strict=True):
    score = p[np.arange(len(y)), y]
    axes.hist(
        [score[~wrong], score[wrong]],
        bins=np.linspace(0, 1, 13),
        stacked=True,
        color=["#0072B2", "#D55E00"],
        label=["correct labels", "label errors"],
    )
    axes.set_title(name, fontsize="medium")
    axes.set_xlabel("probability of the observed label")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("rows")
panels[2].legend(frameon=False, loc="upper center")
plt.show()

"""
## Train without the confident issues

`keras_het.labels.clean` accepts any compiled Keras model, here a logistic regression. It trains a model without the
confident issues, `cleaned.confident_issues`. The frame of all labels has your index and your class names, with the
worst first. If you leave out `probabilities`, `clean` runs the cross-validation for you.
"""


def make_model():
    """Returns a logistic regression in Keras."""
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
    """Returns the clean accuracy."""
    p_test = model.predict(x_test.to_numpy("float32"), verbose=0)
    return np.mean(classes[p_test.argmax(-1)] == y_test)


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
    f"without {len(cleaned.confident_issues):3} of {frame.is_issue.sum():3} issues: ",
    end="",
)
print(f"{accuracy(cleaned.model):.3f}")

"""
**What to expect.** This is one draw of label errors on a small table. You get other numbers from another draw, and from
another backend, because it shuffles the rows differently. If only few labels are wrong, a logistic regression can do as
well in a second. Compare them on your table as above.
"""
