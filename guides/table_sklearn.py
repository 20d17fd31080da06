"""
Title: A table with scikit-learn
Author: The keras_het authors
Date created: 2026/11/24
Last modified: 2026/11/29
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
`pip install ".[jax,demo]"` in a clone.
"""

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
## In one call

`keras_het.labels.clean` accepts every classifier of scikit-learn. It does the cross-validation for you. The final model
is trained without the issues if held-out labels are predicted better so, by more than a standard error. The frame of all
labels has your index and your class names, with the most suspicious labels first.
"""

pipeline = make_pipeline(
    StandardScaler(), LogisticRegression(max_iter=1000)
)
cleaned = keras_het.labels.clean(pipeline, x, labels, verbose=0)
print(cleaned)
print(cleaned.issues.to_frame().head(5))
for name, model in [
    ("with all labels", pipeline.fit(x.to_numpy(), labels)),
    ("final model of clean", cleaned.model),
    ("without the issues", cleaned.retrain("drop")),
]:
    print(f"accuracy, {name}: {model.score(x_test.to_numpy(), y_test):.3f}")

"""
**What to expect.** This is one draw of label errors on a small table. You get other numbers from another draw, and from
another backend, because it shuffles the rows differently. If only few labels are wrong, a logistic regression can do as
well in a second. Compare them on your table as above.
"""
