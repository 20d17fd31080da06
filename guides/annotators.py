"""
Title: Learn from several annotators
Author: The keras_het authors
Date created: 2026/11/22
Last modified: 2026/11/29
Description: Learn a transition matrix for each annotator with the classifier, and see who confuses what.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

Several people label your examples, each person a part of them, and everyone makes different mistakes.
`keras_het.layers.NoiseTransition` with `num_annotators` learns T[m, i, j] = p(m says j | true class i) for each
annotator m, together with a classifier of the true classes (Rodrigues and Pereira 2018; Tanno et al. 2019). At
inference the layer does nothing.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide needs
`pip install ".[jax,demo]"` in a clone, and takes about two minutes on two cores.
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

Five annotators label digits. Two are good, one swaps 3 and 8, one makes many errors, and one does not look at the
images. Each image has two or three labels. Store them as integers `(N, M)`, with -1 for a missing label.
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

Combine the votes by their majority, or by the method of Dawid and Skene (1979), which estimates the true classes and
each T from the labels alone.
"""

votes = aggregate(labels[train], method="majority").labels
estimate = aggregate(labels[train], num_classes=10)
print(
    f"correct labels: {np.mean(votes == clean[train]):.3f} by majority, ",
    end="",
)
classes = estimate.probabilities.argmax(-1)
print(f"{np.mean(classes == clean[train]):.3f} by Dawid-Skene")

"""
## In one call

The images tell you more than two or three votes. Pass both to `keras_het.labels.clean`. It trains on the probabilities
of Dawid and Skene.
"""

cleaned = keras_het.labels.clean(
    None, x[train], votes=labels[train], verbose=0
)
print(cleaned)
predicted = cleaned.model.predict(x[test], verbose=0).argmax(-1)
print(f"accuracy on clean labels: {np.mean(predicted == clean[test]):.3f}")

"""
## A T for each annotator

You can also build the model yourself. Put `NoiseTransition` after your network and train with
`keras_het.losses.AnnotatorsLoss`. Wrap each metric in `keras_het.metrics.AnnotatorsMetric`, because a plain metric counts
a missing label as an error. `keras_het.check` reports that, and votes that are nan or out of range.

T starts here at the estimate of Dawid-Skene. Choose the strength of its ridge penalty and the epoch by the likelihood of
held-out votes.
"""


def make_model(strength):
    """Returns a compiled model with equal weights for every strength."""
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
## How good is each annotator?

T measures each annotator against the predicted true classes. That tells you more than the agreement with other
annotators. If labels do not depend on the class, the separation is near 0.
"""

print(annotators(best, labels, names=names))
learned = keras.ops.convert_to_numpy(best.layers[-1].transition)
distances = [
    total_variation(t, true)
    for t, true in zip(learned, true_t, strict=True)
]
print(f"mean total variation to the true T: {np.mean(distances):.3f}")

"""
Each row is a true class, each column a label. Cyd swaps 3 and 8, and Eve labels at random.
"""

figure, panels = plt.subplots(1, 5, figsize=(10, 2.4), layout="constrained")
for axes, t, name in zip(panels, learned, names, strict=True):
    axes.imshow(t, cmap="Blues", vmin=0, vmax=1)
    axes.set_title(name)
    axes.set_xticks(range(0, 10, 3))
    axes.set_yticks(range(0, 10, 3))
plt.show()

"""
**When it fails.** If all annotators make the same mistake, the model learns it, because no label contradicts it. If more
than half of the labels of a class are wrong, two classes can trade places.
"""
