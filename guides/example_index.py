"""
Title: Pass the index of each example to a model
Author: The keras_het authors
Date created: 2026/11/22
Last modified: 2026/11/27
Description: Train with early-learning regularisation on arrays and data sets, and recognise a wrong index.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

Early-learning regularisation, `keras_het.models.EarlyLearning`, stores a running mean of the predictions for each
example, and penalises the model for leaving it. So the model needs the index of each example, in any order of the
batches. You pass the index with the sample weight. Labels, metrics and validation data stay as they are.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide takes less than
a minute.
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

The data are points around four centers, and 30% of the labels are wrong.
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
    """Returns a compiled model that stores predictions of so many examples."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(32, "relu")(inputs)
    model = EarlyLearning(
        inputs, keras.layers.Dense(4)(hidden), num_examples
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    return model


def stored_probabilities(model):
    """Returns the stored probabilities of the observed labels."""
    memory = keras.ops.convert_to_numpy(model.memory)
    return memory[np.arange(len(y)), y]


def separation(model):
    """Returns how often a label error is less probable than a correct label.

    By chance it would be 0.5.
    """
    p = stored_probabilities(model)
    return f"{np.mean(p[wrong][:, None] < p[~wrong]):.2f}"


"""
## Arrays

Pass `with_index` as the sample weight. If you have sample weights, pass them to `with_index`. Keras shuffles it with the
examples.
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
print("arrays:", separation(model))

"""
The penalty works: most of the label errors stay improbable.
"""

p = stored_probabilities(model)
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
bins = np.linspace(0.0, 1.0, 30)
axes.hist(p[~wrong], bins, alpha=0.6, label="correct labels")
axes.hist(p[wrong], bins, alpha=0.6, label="label errors")
axes.set(xlabel="stored probability of the label", ylabel="examples")
axes.legend(frameon=False)
plt.show()

"""
Validation data need no index. Their loss is the plain crossentropy, and nothing is stored for them. `predict` reads
neither index nor stored predictions.

## Data sets

Let your data set return batches `(x, y, weights)`. Make the weights once, for all examples, and select their rows like
the rows of x. Then the index counts the whole data set, not the batch.
"""

weights = with_index(len(y))


class Batches(keras.utils.PyDataset):
    """Batches in a new order every epoch."""

    def __init__(self):
        super().__init__()
        self.on_epoch_end()

    def __len__(self):
        return len(y) // 64

    def __getitem__(self, index):
        rows = self.order[64 * index : 64 * (index + 1)]
        return x[rows], y[rows], weights[rows]

    def on_epoch_end(self):
        self.order = rng.permutation(len(y))


model = make_model()
model.fit(Batches(), epochs=10, verbose=0)
print("PyDataset:", separation(model))

"""
A `tf.data.Dataset` works on every backend if TensorFlow is installed. Join the weights before you shuffle.
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
    print("tf.data:", separation(model))

"""
## Stop and resume

The stored predictions are a weight of the model, so you save and load them with the other weights.
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
    print("resumed:", separation(resumed))

"""
## When it fails

Without an index, the model raises an error. An index out of range raises an error as well. Here the model was made for
700 examples, but there are 800.
"""


def message(function):
    """Returns the message of the error that a function raises."""
    try:
        function()
    except ValueError as error:
        return str(error)
    return "no error"


print("no index:", message(lambda: make_model().fit(x, y, verbose=0)))
too_small = make_model(700)
print(
    "too few examples:",
    message(lambda: too_small.fit(x, y, sample_weight=weights, verbose=0)),
)

"""
Two mistakes raise no error. If you call `with_index(64)` inside a data set, all batches share the first 64 rows. If you
call `with_index` after shuffling, an index means another example in every epoch. *The sign:* the stored probabilities do
not separate label errors from correct labels.
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
print("index made after shuffling:", separation(model))
