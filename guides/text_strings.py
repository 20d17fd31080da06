"""
Title: Find label errors in texts
Author: The keras_het authors
Date created: 2026/11/24
Last modified: 2026/11/29
Description: Start from strings and class names, and get a trained model and a list of probable label errors.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

You have texts with class names, and some of the names are wrong. You need two steps: compute features of the texts,
and call `keras_het.labels.clean`, which lists the probable errors and trains a model.

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide needs
`pip install ".[jax,demo]" wordfreq` in a clone. The texts come from `wordfreq`.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas
import wordfreq
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import keras_het

"""
## The texts

Each text is five frequent words of one language, and the class is the language. Hasty annotators confused neighbouring
languages: a third of the German texts are labelled Dutch, a third of the Italian texts Spanish, and so on. The test
labels are correct, and you use them only to measure.
"""

codes = {"Dutch": "nl", "German": "de", "Spanish": "es", "Italian": "it"}
codes |= {"Danish": "da", "Swedish": "sv", "Czech": "cs", "Polish": "pl"}
languages = list(codes)
words = {
    name: [
        word for word in wordfreq.top_n_list(code, 4000) if word.isalpha()
    ]
    for name, code in codes.items()
}
rng = np.random.default_rng(0)
true = rng.choice(languages, 4000)
texts = np.array([" ".join(rng.choice(words[name], 5)) for name in true])

neighbour = dict(zip(languages[1::2], languages[::2], strict=True))
wrong = np.isin(true, languages[1::2]) & (rng.random(4000) < 0.33)
labels = np.where(wrong, [neighbour.get(name, name) for name in true], true)
train, test = slice(3000), slice(3000, None)
for text, label in list(zip(texts, labels, strict=True))[:3]:
    print(f"{label:12}{text}")
print(f"{wrong[train].mean():.1%} of the labels are wrong")

"""
## Features

Count how often each group of one to three letters occurs. For whole sentences, use a pretrained network:
`x = keras_het.explain.features(task, texts, pooling="mean")`, with a KerasHub text classifier as `task`. To train the
whole network, replace `None` below with a function that returns a compiled KerasHub classifier, and pass the strings.
"""

vectorizer = TfidfVectorizer(
    analyzer="char_wb", ngram_range=(1, 3), min_df=10
)
x = vectorizer.fit_transform(texts[train]).toarray().astype("float32")
x_test = vectorizer.transform(texts[test]).toarray().astype("float32")
print(f"{x.shape[1]} features")

"""
## Find the label errors and train

`keras_het.labels.clean` accepts class names as labels. It ranks the labels by out-of-sample predictions, the most
suspicious first, and trains a new model. The baseline is a logistic regression that trusts all labels.
"""

cleaned = keras_het.labels.clean(None, x, labels[train], verbose=0)
print(cleaned)
plain = LogisticRegression(max_iter=1000).fit(x, labels[train])
predicted = cleaned.model.predict(x_test, verbose=0).argmax(-1)
predicted = cleaned.classes[predicted]
print("clean accuracy, final model of clean: ", end="")
print(f"{np.mean(predicted == true[test]):.3f}")
print("clean accuracy, logistic regression:  ", end="")
print(f"{plain.score(x_test, true[test]):.3f}")

"""
An issue can be a correct label. Count how many are, by the planted label errors.
"""

frame = cleaned.issues.to_frame()
order = frame.index
frame = frame.assign(true=true[train][order], text=texts[train][order])
issues = frame[frame.is_issue]
print(issues[["label", "suggested", "true", "text"]].head(8).to_string())
was_wrong = (issues.label != issues.true).sum()
print(f"issues: {len(issues)}, ", end="")
print(f"{was_wrong / len(issues):.0%} of them wrong, ", end="")
print(f"which is {was_wrong / wrong[train].sum():.0%} of the label errors")

"""
## See which languages are confused

Each row is a suggested language, each column an observed label. The four dark cells are the planted confusions.
"""

counts = pandas.crosstab(issues.suggested, issues.label)
counts = counts.reindex(index=languages, columns=languages, fill_value=0)
figure, axes = plt.subplots(figsize=(5.5, 4.6), layout="constrained")
axes.imshow(counts, cmap="Blues")
for row, column in np.argwhere(counts):
    count = counts.iat[row, column]
    color = "white" if count > counts.to_numpy().max() / 2 else "black"
    axes.text(column, row, count, color=color, ha="center", va="center")
axes.set_xticks(range(8), languages, rotation=45)
axes.set_yticks(range(8), languages)
axes.set(xlabel="label", ylabel="suggested", title="Issues")
plt.show()
