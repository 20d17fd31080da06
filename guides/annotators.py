"""
Title: Learn from several annotators
Author: The keras_het authors
Date created: 2026/11/22
Last modified: 2026/11/22
Description: A transition matrix for each annotator, learned with the classifier, and a report on who confuses what.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

Where several people each label a part of the examples, they disagree, and each in a way of their own.
`keras_het.layers.NoiseTransition` with `num_annotators` learns for each of them
T[m, i, j] = p(m says j | true class i), together with a classifier of the true classes (Rodrigues and Pereira 2018;
Tanno et al. 2019). At inference it does nothing.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,demo]"` in a clone, and takes about a minute on two cores.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import keras_het
from keras_het.labels import (
    aggregate,
    annotators,
    corrupt,
    symmetric,
)
from keras_het.ops.transition import total_variation

"""
## The labels

Digits, and five annotators: two are good, one takes 3 for 8, and 8 for 3, one errs a lot, and one does not look at the
images. Each image has two or three labels. They are integers `(N, M)`, and -1 where an annotator gave none.
"""

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
x, clean = (digits.data[order] / 16).astype("float32"), digits.target[order]
swapper = np.eye(10)
swapper[[3, 8], [3, 8]], swapper[[3, 8], [8, 3]] = 0.2, 0.8
true_t = [
    symmetric(10, 0.05),
    symmetric(10, 0.1),
    swapper,
    symmetric(10, 0.4),
    np.full((10, 10), 0.1),
]
names = ["Ada", "Ben", "Cyd", "Dan", "Eve"]

rng = np.random.default_rng(1)
labels = np.stack(
    [corrupt(clean, t, seed=10 + m) for m, t in enumerate(true_t)],
    axis=1,
)
places = rng.permuted(np.tile(np.arange(5), (len(clean), 1)), axis=1)
labels = np.where(places < rng.integers(2, 4, (len(clean), 1)), labels, -1)
train, held_out, test = slice(1100), slice(1100, 1300), slice(1300, None)

"""
## Without a model

The majority of the votes, and the method of Dawid and Skene (1979), which finds the true classes and the T by the
labels alone.
"""

votes = aggregate(labels[train], method="majority").labels
estimate = aggregate(labels[train], num_classes=10)
print(
    f"right labels: {np.mean(votes == clean[train]):.3f} of the majority, ",
    end="",
)
classes = estimate.probabilities.argmax(-1)
print(f"{np.mean(classes == clean[train]):.3f} of Dawid-Skene")

"""
## In one call

The images say more than two or three labels do. `keras_het.labels.choose` accepts the votes as they are, compares
methods by the votes that were held out, and trains by the one it chose.
"""

found = keras_het.labels.choose(
    None,
    x[train],
    labels[train],
    epochs=30,
    folds=2,
    verbose=0,
)
print(found)
predicted = found.model.predict(x[test], verbose=0).argmax(-1)
print(f"accuracy on clean labels: {np.mean(predicted == clean[test]):.3f}")

"""
## A T for each annotator

By hand, with a network of one's own. The loss is `keras_het.losses.AnnotatorsLoss`, and a metric is wrapped
in `keras_het.metrics.AnnotatorsMetric`: a plain metric takes a missing label for a wrong one, and `keras_het.check`
says so, and finds answers that are nan or no class. The T may start at the estimate. The strength of the ridge, and the
epoch, are those of the largest likelihood of held-out labels.
"""


def make_model(strength):
    """Compiled, and the same at the start for every strength."""
    keras.utils.set_random_seed(0)
    l2 = keras.regularizers.L2(2e-3)
    hidden = [
        keras.layers.Dense(128, "relu", kernel_regularizer=l2)
        for _ in range(2)
    ]
    ridge = keras.regularizers.L2(strength)
    flips = keras_het.layers.NoiseTransition(
        10,
        num_annotators=5,
        transition=estimate.transitions,
        regularizer=ridge,
    )
    model = keras.Sequential(
        [
            keras.Input((64,)),
            *hidden,
            keras.layers.Dense(10, "log_softmax", kernel_regularizer=l2),
            flips,
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(2e-3),
        loss=keras_het.losses.AnnotatorsLoss(),
        metrics=[keras_het.metrics.AnnotatorsMetric(name="accuracy")],
    )
    keras_het.check(model, x[train], labels[train])
    return model


losses = {}
for strength in (0.0001, 0.001, 0.01):
    model = make_model(strength)
    monitor = keras_het.callbacks.TransitionMonitor(
        validation_data=(x[held_out], labels[held_out])
    )
    stop = keras.callbacks.EarlyStopping(
        "val_noisy_nll", mode="min", patience=40, restore_best_weights=True
    )
    history = model.fit(
        x[train],
        labels[train],
        epochs=40,
        batch_size=64,
        callbacks=[monitor, stop],
        verbose=0,
    ).history
    losses[min(history["val_noisy_nll"])] = strength, model
    print(strength, round(min(history["val_noisy_nll"]), 4))
_, best = losses[min(losses)]
predicted = best.predict(x[test], verbose=0).argmax(-1)
print(f"accuracy on clean labels: {np.mean(predicted == clean[test]):.3f}")

"""
## Who is how good

T says how good an annotator is, by the true classes that the model predicts; the share of labels that agree with others
does not. The table names an annotator whose labels do not depend on the class.
"""

print(annotators(best, labels, names=names))
learned = keras.ops.convert_to_numpy(best.layers[-1].transition)
distances = [
    total_variation(t, true)
    for t, true in zip(learned, true_t, strict=True)
]
print(f"mean total variation to the true T: {np.mean(distances):.3f}")

"""
Each row is a true class, each column a label: Cyd takes 3 for 8 and 8 for 3, Eve says anything.
"""

figure, panels = plt.subplots(1, 5, figsize=(10, 2.4), layout="constrained")
for axes, t, name in zip(panels, learned, names, strict=True):
    axes.imshow(t, cmap="Blues", vmin=0, vmax=1)
    axes.set_title(name)
    axes.set_xticks(range(0, 10, 3))
    axes.set_yticks(range(0, 10, 3))
plt.show()

"""
**When it fails.** Annotators who all make the same mistake are believed, for nothing in their labels shows the mistake.
And where more than half of the labels of a class are wrong, classes may change places.
"""
