"""
Title: Labels by a model, and 200 that a person checked
Author: The keras_het authors
Date created: 2026/11/25
Last modified: 2026/11/25
Description: Which labels are wrong, how good model and labels really are, which to check next, and when to stop.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

Labels are cheap when a model gives them, a large language model for texts, say. They are wrong in a way of their own:
where the example is hard, and there your own model errs, too. So how often the two agree says little about either.

Here a weak model labels digits, from few pixels, and a person checks 200 of its labels; the true classes play that
person. The same calls are for texts, as embeddings.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,demo]"` in a clone, and takes about a minute on two cores.
"""


import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import keras_het
from keras_het.labels import errors_left, next_labels, verify_accuracy

"""
## The labels

The model that labels has seen 100 examples, and of each digit sixteen numbers, the means of blocks of pixels, and not
clearly. The other 1,697 are ours to use.
"""

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
images, true = digits.images[order] / 16, digits.target[order]
blocks = images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
blocks += 0.1 * np.random.default_rng(1).normal(size=blocks.shape)

weak = LogisticRegression(max_iter=1000).fit(blocks[:100], true[:100])
x, true = images[100:].reshape(-1, 64), true[100:]
labels = weak.predict(blocks[100:])
print("labels that are right", np.mean(labels == true).round(3))

"""
## Which are wrong?

`labels.clean` trains on folds of the data, and predicts each example by a model that did not see it.
"""

found = keras_het.labels.clean(None, x, labels, epochs=30, verbose=0)
print(found)
p = found.probabilities

"""
## How good is it really?

A person verifies 200 examples, drawn at random. Here the true classes play the person.
"""

drawn = np.random.default_rng(1).permutation(len(labels))[:200]
verified = {int(i): int(true[i]) for i in drawn}
judged = verify_accuracy(p, labels, verified)
print(judged)
accuracy = np.mean(p.argmax(axis=1) == true)
print("in truth", accuracy.round(3), np.mean(labels == true).round(3))

"""
The interval holds whatever the labels do. The agreement with the labels is another answer to the same question. It is
wrong where the model and the labels err together:
"""

answers = {
    "200 verified and all labels": judged.accuracy,
    "200 verified alone": judged.verified_only,
}
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
for place, answer in enumerate(answers.values()):
    ends = [[answer.value - answer.low], [answer.high - answer.value]]
    axes.errorbar(answer.value, place, xerr=np.maximum(ends, 0), fmt="o")
axes.plot(judged.noisy_accuracy, 2, "o")
axes.axvline(accuracy, color="black", linestyle=":")
axes.set_yticks(range(3), [*answers, "agrees with the labels"])
axes.set_xlabel("accuracy; dotted: in truth")
plt.show()

"""
## Which to check next?

Those that are most probably wrong. The person sees 300 more, the worst first.
"""

worst = next_labels(p, labels, 300, verified_labels=verified)
print(worst)
is_wrong = labels[worst.index] != true[worst.index]
rest = np.setdiff1d(np.arange(len(labels)), np.fromiter(verified, int))
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(np.cumsum(is_wrong), label="next_labels")
rate = np.mean(labels[rest] != true[rest])
axes.plot(rate * np.arange(300), ":", label="drawn at random")
axes.set(xlabel="labels looked at", ylabel="wrong ones found")
axes.legend()
plt.show()

"""
What was verified goes in with the others.
"""

known = verified | {int(i): int(true[i]) for i in worst.index}
corrected = labels.copy()
corrected[list(known)] = list(known.values())
again = keras_het.labels.clean(None, x, corrected, epochs=30, verbose=0)
unseen = np.setdiff1d(np.arange(len(labels)), np.fromiter(known, int))
for name, each in [("before", found), ("after", again)]:
    right = each.probabilities.argmax(axis=1) == true
    print(
        name,
        "right of those that nobody checked",
        right[unseen].mean().round(3),
    )

"""
## When to stop?

How many wrong labels are left, among those that nobody has checked? The worst ones say nothing about that; a sample of
what is left does. `sequential=True` allows a look after every label.
"""

rest = np.setdiff1d(np.arange(len(labels)), np.fromiter(known, int))
last = np.random.default_rng(2).permutation(rest)[:200]
seen = known | {int(i): int(true[i]) for i in last}
left = errors_left(labels, seen, last, sequential=True)
print(left)
in_truth = np.setdiff1d(np.arange(len(labels)), np.fromiter(seen, int))
print("in truth", np.sum(labels[in_truth] != true[in_truth]))
