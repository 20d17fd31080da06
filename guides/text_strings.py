"""
Title: From strings to wrong labels
Author: The keras_het authors
Date created: 2026/11/24
Last modified: 2026/11/24
Description: Texts and the names of their classes go in; a trained model and a list of suspects come out.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

You have texts, each with the name of its class, and some names are wrong. Three steps: features of the texts,
`keras_het.labels.choose`, which trains by the method that suits these labels, and `keras_het.labels.clean`, which lists
the suspects.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,demo,pandas]" wordfreq` in a clone; of `wordfreq` it takes the texts.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
import pandas
import wordfreq
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import keras_het

"""
## The texts

Five frequent words of a language, as somebody types them into a search box; which language is it? People who labelled
them in a hurry took one language for its neighbour: a third of the German texts are said to be Dutch, of the Italian
ones Spanish, and so on. The labels to test on are right, and only measured.
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

How often each group of one to three letters occurs. scikit-learn's vectorizers need nothing else, and suit whole
sentences, too, by `analyzer="word"`. The features of a pretrained network are as good a start: a KerasHub classifier in
the place of `None` below takes the strings as they are.
"""

vectorizer = TfidfVectorizer(
    analyzer="char_wb", ngram_range=(1, 3), min_df=10
)
x = vectorizer.fit_transform(texts[train]).toarray().astype("float32")
x_test = vectorizer.transform(texts[test]).toarray().astype("float32")
print(f"{x.shape[1]} features")

"""
## Choose a method and train by it

Names go in as they are. Beside it a logistic regression, which takes all labels for the truth.
"""

choice = keras_het.labels.choose(
    None,
    x,
    labels[train],
    optimizer=keras.optimizers.Adam(1e-2),
    epochs=15,
    folds=3,
    verbose=0,
)
print(choice)
plain = LogisticRegression(max_iter=1000).fit(x, labels[train])
found = choice.classes[choice.model.predict(x_test, verbose=0).argmax(-1)]
print("right languages, chosen method:       ", end="")
print(f"{np.mean(found == true[test]):.3f}")
print("right languages, logistic regression: ", end="")
print(f"{plain.score(x_test, true[test]):.3f}")

"""
## Which labels are wrong?

The choice has trained models that did not see a text, and keeps their probabilities. `keras_het.labels.clean` finds the
suspects by them, and trains any Keras model without these; here a plain one. The worst suspects come first.
"""


def make_model():
    """One layer; it takes integers for labels."""
    layers = [keras.Input(x.shape[1:]), keras.layers.Dense(8, "softmax")]
    model = keras.Sequential(layers)
    model.compile(
        keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy"
    )
    return model


cleaned = keras_het.labels.clean(
    make_model,
    x,
    labels[train],
    probabilities=choice.probabilities,
    epochs=15,
    verbose=0,
)
frame = cleaned.issues.to_frame()
order = frame.index
frame = frame.assign(true=true[train][order], text=texts[train][order])
suspects = frame[frame.is_issue]
print(suspects[["label", "suggested", "true", "text"]].head(8).to_string())
was_wrong = (suspects.label != suspects.true).sum()
print(f"suspects: {len(suspects)}, ", end="")
print(f"{was_wrong / len(suspects):.0%} of them wrong, ", end="")
print(f"which is {was_wrong / wrong[train].sum():.0%} of the wrong labels")
found = cleaned.model.predict(x_test, verbose=0).argmax(-1)
print("right languages, plain model without the suspects: ", end="")
print(f"{np.mean(cleaned.classes[found] == true[test]):.3f}")

"""
## Which languages were taken for which

For each language that is suggested, the labels that the suspects have. The planted flips are the four dark places.
"""

counts = pandas.crosstab(suspects.suggested, suspects.label)
counts = counts.reindex(index=languages, columns=languages, fill_value=0)
figure, axes = plt.subplots(figsize=(5.5, 4.6), layout="constrained")
axes.imshow(counts, cmap="Blues")
for row, column in np.argwhere(counts):
    count = counts.iat[row, column]
    color = "white" if count > counts.to_numpy().max() / 2 else "black"
    axes.text(column, row, count, color=color, ha="center", va="center")
axes.set_xticks(range(8), languages, rotation=45)
axes.set_yticks(range(8), languages)
axes.set(xlabel="label", ylabel="suggested", title="Suspects")
plt.show()
