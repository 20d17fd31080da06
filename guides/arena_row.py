"""
Title: A row of the arena by hand
Author: The keras_het authors
Date created: 2026/11/22
Last modified: 2026/11/22
Description: Early-learning regularisation beside crossentropy on digits, 45% wrong labels, no clean one to choose by.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

`benchmarks/arena` compares many methods on many kinds of wrong labels. This guide is one row and one column of it, for
its first seed, in a user's own code: early-learning regularisation (Liu et al. 2020) and plain crossentropy, on digits
of which 45% have the label of another class.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,demo]"` in a clone, and takes less than a minute on two cores.
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

from keras_het import tune
from keras_het.labels import corrupt, symmetric
from keras_het.losses import (
    EarlyLearningRegularizedCrossentropy,
    with_index,
)

"""
## The data

The labels of training and validation are noisy; the test labels are clean, and only measured.
"""

x, true = load_digits(return_X_y=True)
order = np.random.default_rng([0, 1]).permutation(len(true))
x, true = (x[order] / 16).astype("float32"), true[order]
train, validation, test = slice(1024), slice(1024, 1280), slice(1280, None)
labels = corrupt(true[:1280], symmetric(10, 0.45), seed=[0, 2])

"""
## The method

`keras_het.losses.EarlyLearningRegularizedCrossentropy` remembers the model's predictions for each example, so it has to
know which example is which: `with_index` puts the index beside the weight, and `attach` makes the memory a part of the
model's training. Validation data have no index, and need none. `keras_het.tune` takes the strength, of three, and the
epoch with the best accuracy on the noisy validation labels.
"""


def make_model(strength):
    """Compiled; a strength of 0 is plain crossentropy."""
    keras.utils.set_random_seed(0)
    layers = [(128, "relu"), (128, "relu"), (10, "log_softmax")]
    model = keras.Sequential(
        [
            keras.Input((64,)),
            *(keras.layers.Dense(*layer) for layer in layers),
        ]
    )
    loss = EarlyLearningRegularizedCrossentropy(
        num_examples=1024,
        num_classes=10,
        strength=strength,
        from_logits=True,
    )
    # Not a regularizer, which would count for more beside a smaller loss.
    optimizer = keras.optimizers.AdamW(4e-3, weight_decay=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, loss.attach(model))
    return model


def fitted(strengths, **arguments):
    """A `Result`, with the arguments of every row of the arena."""
    arguments |= {
        "criterion": "accuracy",
        "extend": False,
        "batch_size": 128,
        "epochs": 50,
        "sample_weight": with_index(1024),
    }
    return tune(
        make_model,
        strengths,
        x[train],
        labels[train],
        validation_data=(x[validation], labels[validation]),
        verbose=0,
        **arguments,
    )


def accuracy(model):
    """On clean test labels."""
    return np.mean(
        model.predict(x[test], verbose=0).argmax(-1) == true[test]
    )


"""
## What it gives
"""

regularised, plain = fitted((1.0, 3.0, 7.0)), fitted([0.0])
print("early-learning regularisation, by strength:")
print(regularised)
print(f"accuracy on clean labels: {accuracy(regularised.model):.3f}")
print(
    f"plain crossentropy, the best epoch: {accuracy(plain.model):.3f}, "
    f"the last: {accuracy(fitted([0.0], epoch='last').model):.3f}"
)
regularised.plot()

"""
Results for other noises and other methods are in `benchmarks/README.md`; `python -m nox -f benchmarks/noxfile.py -s bench -- arena` makes them.
"""
