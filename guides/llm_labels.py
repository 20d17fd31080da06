"""
Title: Judge labels by an LLM with 200 verified ones
Author: The keras_het authors
Date created: 2026/11/25
Last modified: 2026/11/29
Description: Find label errors, measure the true accuracy, pick the labels to check next, and know when to stop.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

Labels by a model are cheap, for example labels of texts by a large language model. The labelling model errs on hard
examples, and your own model errs on the same examples. So their agreement tells you little about either.

Here a weak model labels digits from a few pixels. A person checks 200 of its labels, and the true classes stand in for
that person. Use the same calls for texts, with their embeddings as `x`.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide needs
`pip install ".[jax,demo]"` in a clone, and takes about a minute on two cores.
"""


import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import keras_het
from keras_het.labels import errors_left, verify_accuracy

"""
## The labels

The labelling model was trained on 100 examples. It sees only sixteen numbers of each digit, the means of blocks of
pixels with noise. You use the other 1,697 examples.
"""

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
images, true = digits.images[order] / 16, digits.target[order]
blocks = images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
blocks += 0.1 * np.random.default_rng(1).normal(size=blocks.shape)

weak = LogisticRegression(max_iter=1000).fit(blocks[:100], true[:100])
x, true = images[100:].reshape(-1, 64), true[100:]
labels = weak.predict(blocks[100:])
print("correct labels", np.mean(labels == true).round(3))

"""
## Find the label errors

`labels.clean` trains a classifier on folds of the data and ranks the labels by its out-of-sample probabilities.
"""

cleaned = keras_het.labels.clean(None, x, labels, verbose=0)
print(cleaned)
p = cleaned.probabilities

"""
## Measure the true accuracy

Draw 200 examples at random and let a person verify them. Here the true classes stand in for the person.
"""

sample = np.random.default_rng(1).permutation(len(labels))[:200]
verified = {int(i): int(true[i]) for i in sample}
judgement = verify_accuracy(p, labels, verified)
print(judgement)
accuracy = np.mean(p.argmax(axis=1) == true)
print("truth", accuracy.round(3), np.mean(labels == true).round(3))

"""
The interval is valid whatever the label errors are. The agreement with the labels is not: it is wrong if the model and
the labels err on the same examples.
"""

answers = {
    "200 verified and all labels": judgement.accuracy,
    "200 verified alone": judgement.verified_only,
}
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
for place, answer in enumerate(answers.values()):
    ends = [[answer.value - answer.low], [answer.high - answer.value]]
    axes.errorbar(answer.value, place, xerr=np.maximum(ends, 0), fmt="o")
axes.plot(judgement.noisy_accuracy, 2, "o")
axes.axvline(accuracy, color="black", linestyle=":")
axes.set_yticks(range(3), [*answers, "agreement with the labels"])
axes.set_xlabel("accuracy; dotted: truth")
plt.show()

"""
## Pick the labels to check next

Check the most probable errors first, from the top of `cleaned.issues`. The person checks 300 more labels.
"""

ranked = cleaned.issues.index
worst = ranked[~np.isin(ranked, sample)][:300]
is_wrong = labels[worst] != true[worst]
print(f"label errors among the 300: {is_wrong.sum()}")
rest = np.setdiff1d(np.arange(len(labels)), np.fromiter(verified, int))
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(np.cumsum(is_wrong), label="lowest scores first")
rate = np.mean(labels[rest] != true[rest])
axes.plot(rate * np.arange(300), ":", label="drawn at random")
axes.set(xlabel="labels checked", ylabel="label errors")
axes.legend()
plt.show()

"""
Put the verified labels in place of the old ones, and train again.
"""

known = verified | {int(i): int(true[i]) for i in worst}
corrected = labels.copy()
corrected[list(known)] = list(known.values())
again = keras_het.labels.clean(None, x, corrected, verbose=0)
unseen = np.setdiff1d(np.arange(len(labels)), np.fromiter(known, int))
for name, each in [("before", cleaned), ("after", again)]:
    is_correct = each.probabilities.argmax(axis=1) == true
    print(
        f"{name}: accuracy on unchecked examples",
        is_correct[unseen].mean().round(3),
    )

"""
## Know when to stop

How many label errors are left among the unchecked labels? The worst labels cannot tell you, but a random sample of the
rest can. With `sequential=True` you can look at the bound after every label.
"""

rest = np.setdiff1d(np.arange(len(labels)), np.fromiter(known, int))
last = np.random.default_rng(2).permutation(rest)[:200]
seen = known | {int(i): int(true[i]) for i in last}
left = errors_left(labels, seen, last, sequential=True)
print(left)
rest = np.setdiff1d(np.arange(len(labels)), np.fromiter(seen, int))
print("truth", np.sum(labels[rest] != true[rest]))
