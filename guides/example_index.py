"""
Title: A model that knows which example it sees
Author: The keras_het authors
Date created: 2026/11/22
Last modified: 2026/11/22
Description: How the index of an example reaches a model, with arrays and data sets, and what goes wrong.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

Early-learning regularisation, `keras_het.models.EarlyLearning`, stores a running mean of the predictions for each
example, and keeps the model to it. So the model needs the index of the example, in whatever order the examples come.
The index travels beside the sample weight. Labels, metrics and validation data stay as they are.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
takes less than a minute.
"""

import importlib.util
import pathlib
import tempfile

import keras
import matplotlib.pyplot as plt
import numpy as np

from keras_het.models import EarlyLearning, with_index

"""
## The data

Points around four centers; 30% of the labels are wrong.
"""

rng = np.random.default_rng(0)
true = rng.integers(4, size=1000)
x = (2.5 * np.eye(4)[true] + rng.normal(size=(1000, 4))).astype("float32")
wrong = rng.random(1000) < 0.3
y = np.where(wrong, (true + rng.integers(1, 4, size=1000)) % 4, true)
x, y, wrong, validation = (
    x[:800],
    y[:800],
    wrong[:800],
    (x[800:], true[800:]),
)


def make_model(num_examples=800):
    """Compiled, with a memory of so many examples."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(32, "relu")(inputs)
    model = EarlyLearning(
        inputs, keras.layers.Dense(4)(hidden), num_examples
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    return model


def remembered(model):
    """The stored probabilities of the observed labels."""
    memory = keras.ops.convert_to_numpy(model.memory)
    return memory[np.arange(len(y)), y]


def found(model):
    """How often a wrong label is less probable than a right one.

    By chance it would be .5.
    """
    p = remembered(model)
    return f"{np.mean(p[wrong][:, None] < p[~wrong]):.2f}"


"""
## Arrays

`with_index` goes where sample weights go; your own weights go into it. Keras shuffles it with the examples.
"""

model = make_model()
model.fit(
    x,
    y,
    sample_weight=with_index(len(y)),
    validation_data=validation,
    epochs=10,
    batch_size=64,
    verbose=0,
)
print("arrays:", found(model))

"""
The term keeps the model to its stored predictions: most of the label errors stay improbable.
"""

p = remembered(model)
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
bins = np.linspace(0.0, 1.0, 30)
axes.hist(p[~wrong], bins, alpha=0.6, label="right labels")
axes.hist(p[wrong], bins, alpha=0.6, label="wrong labels")
axes.set(xlabel="remembered probability of the label", ylabel="examples")
axes.legend(frameon=False)
plt.show()

"""
Validation data need no index: their loss is the plain crossentropy, and nothing is stored for them. `predict` uses
neither index nor memory.

## Data sets

A data set gives batches `(x, y, weights)`. Make the weights once, for all examples, and take their rows as you take the
rows of x: then the index counts in the whole data, not in the batch.
"""

weights = with_index(len(y))


class Batches(keras.utils.PyDataset):
    """In a new order every epoch."""

    def __init__(self):
        super().__init__()
        self.on_epoch_end()

    def __len__(self):
        return len(y) // 64

    def __getitem__(self, place):
        rows = self.order[64 * place : 64 * (place + 1)]
        return x[rows], y[rows], weights[rows]

    def on_epoch_end(self):
        self.order = rng.permutation(len(y))


model = make_model()
model.fit(Batches(), epochs=10, verbose=0)
print("PyDataset:", found(model))

"""
A `tf.data.Dataset` works on every backend, where TensorFlow is installed. Join the weights before you shuffle.
"""

if importlib.util.find_spec("tensorflow"):
    import tensorflow as tf

    model = make_model()
    model.fit(
        tf.data.Dataset.from_tensor_slices((x, y, weights))
        .shuffle(800, seed=0)
        .batch(64),
        epochs=10,
        verbose=0,
    )
    print("tf.data:", found(model))

"""
## Stopping and going on

The memory is a weight of the model: it is saved and loaded with the other weights.
"""

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "model.keras"
    model = make_model()
    model.fit(
        x, y, sample_weight=weights, epochs=5, batch_size=64, verbose=0
    )
    model.save(path)
    resumed = keras.models.load_model(path)
    resumed.fit(
        x, y, sample_weight=weights, epochs=5, batch_size=64, verbose=0
    )
    print("resumed:", found(resumed))

"""
## What goes wrong

Without an index the model cannot tell the examples apart: that is refused. An index that is too large makes the loss
nan, as a label that is no class does. Here the model was made for fewer examples than there are.
"""


def message(function):
    """Of the error that a function raises."""
    try:
        function()
    except ValueError as error:
        return str(error)
    return "no error"


print("no index:", message(lambda: make_model().fit(x, y, verbose=0)))
print(
    "too few examples:",
    make_model(700)
    .fit(x, y, sample_weight=weights, verbose=0)
    .history["loss"],
)

"""
Two mistakes cannot be seen, and are not refused: indices made anew for each batch (`with_index(64)` inside a data set),
so that all batches share the first 64 rows; and indices made after shuffling, so that in every epoch they mean other
examples. The sign is a method that finds nothing:
"""

model = make_model()
for _ in range(10):
    order = rng.permutation(len(y))
    model.fit(
        x[order],
        y[order],
        sample_weight=with_index(len(y)),
        batch_size=64,
        verbose=0,
    )
print("index made after shuffling:", found(model))
