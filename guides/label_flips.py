"""
Title: Learn which labels are swapped
Author: The keras_het authors
Date created: 2026/11/21
Last modified: 2026/11/21
Description: A transition matrix learned and chosen from noisy labels alone, and how to see that it has failed.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

When whole classes are swapped, whatever the example looks like, the noise is a matrix:
T[i, j] = p(label j | true class i). `keras_het.layers.NoiseTransition` stands behind a model's log-probabilities. In
training it turns the prediction of the true class into a prediction of the noisy label, which the loss compares with
the label. At inference it does nothing, so that the model predicts true classes (Sukhbaatar et al. 2014).

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,demo]"` in a clone, and takes one to five minutes on two cores.
"""

import functools

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_het
from keras_het.explain import confusion_matrices, noisy_nll
from keras_het.labels import corrupt, pair_flip
from keras_het.labels.synthetic import look_alike_transitions
from keras_het.ops.transition import total_variation

"""
## The data

Digits. 35% of the labels, in training and validation alike, name the next digit; the test labels are clean.
"""

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
x, clean = (digits.data[order] / 16).astype("float32"), digits.target[order]
true_t = pair_flip(10, 0.35)
noisy = corrupt(clean, true_t, seed=0)
train, validation, test = slice(1024), slice(1024, 1280), slice(1280, None)

"""
## The model

A network with weight decay, log-probabilities, and behind them the layer. T starts near the identity and gets a ridge
penalty, Keras' own `L2`, which spreads its rows; the strength `None` stands for a T that stays at the identity, which
is the plain model.
"""


def make_model(strength, decay=2e-3):
    """Compiled, and the same at the start for every strength."""
    keras.utils.set_random_seed(0)
    l2 = keras.regularizers.L2(decay)
    hidden = [
        keras.layers.Dense(128, "relu", kernel_regularizer=l2)
        for _ in range(2)
    ]
    head = keras.layers.Dense(10, "log_softmax", kernel_regularizer=l2)
    learns = (
        {"trainable": False}
        if strength is None
        else {"regularizer": keras.regularizers.L2(strength)}
    )
    model = keras.Sequential(
        [
            keras.Input((64,)),
            *hidden,
            head,
            keras_het.layers.NoiseTransition(10, name="flips", **learns),
        ]
    )
    model.compile(
        keras.optimizers.Adam(4e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def learn(x, labels, part=train, strengths=(None, 0.14, 0.07, 0.03)):
    """T, released after ten epochs, of the best strength and epoch.

    These are the ones that explain held-out noisy labels best; the list
    begins with the most cautious strength.
    """
    release = keras_het.callbacks.ReleaseTransition(after=10)
    arguments = {
        "batch_size": 128,
        "epochs": 80,
        "folds": 2,
        "verbose": 0,
        "callbacks": [release],
    }
    functions = [
        functools.partial(make_model, strength) for strength in strengths
    ]
    found = keras_het.labels.choose(
        functions, x[part], labels[part], criterion="loss", **arguments
    )
    losses = [
        round(float(-trial.score.mean()), 2) for trial in found.trials
    ]
    return found, dict(zip(strengths, losses, strict=True))


def error(model):
    """On clean test data."""
    return np.mean(
        model.predict(x[test], verbose=0).argmax(-1) != clean[test]
    )


def moved(model):
    """Total variation of T and the identity.

    It is the share of labels that T holds for wrong.
    """
    return total_variation(
        keras.ops.convert_to_numpy(model.get_layer("flips").transition),
        np.eye(10),
    )


"""
## Learning T

With too weak a penalty T stays at the identity, and the network learns the wrong labels by heart. With too strong a penalty T
claims noise that is not there. The likelihood of held-out noisy labels under p(true | x) T shows the right strength.
None of this uses a clean label.
"""

(found, losses), (plain, _) = (
    learn(x, noisy),
    learn(x, noisy, strengths=[None]),
)
learned_t = keras.ops.convert_to_numpy(
    found.model.get_layer("flips").transition
)
print(
    "negative log-likelihood of held-out noisy labels, by strength:",
    losses,
)
print(
    f"error on clean labels: {error(plain.model):.3f} without T, ", end=""
)
print(f"{error(found.model):.3f} with the T that was chosen")
distance = total_variation(learned_t, true_t)
print(f"total variation to the true T: {distance:.2f}; ", end="")
print("the identity has 0.35")
found.plot()

"""
If there are a few clean labels, look at C, the mean prediction of each true class. Near the identity, T and not the
network has taken the noise. C~ is the mean of the noisy prediction, and equal to C T, whatever the model has learned.
"""

matrices = confusion_matrices(found.model, x[test], clean[test])
print(
    f"mean diagonal of C {matrices.clean.diagonal().mean():.2f}, ", end=""
)
print(f"of C~ {matrices.noisy.diagonal().mean():.2f}")

"""
## When it fails

**Noise that depends on the example.** Then no matrix is right. Here 40% of the labels, mostly of ugly digits, name the
class that the image resembles most. *What shows it:* no strength explains the held-out labels better than `None`.
`keras_het.layers.HeteroscedasticDense` is the layer for such noise.
"""

look_alike = corrupt(clean, look_alike_transitions(x, clean, 0.4), seed=0)
print("negative log-likelihood by strength:", learn(x, look_alike)[1])

"""
**A network that learns by heart.** T can explain only what the network leaves to it. The L2 on the network's kernels is
part of the method: without it the network learns the wrong labels one by one, before and after T is released, and
neither the penalty of T nor the choice of the epoch makes up for it. *What shows it:* the monitor's `val_noisy_nll`
rises while the training loss goes on falling.
"""

for decay in (2e-3, 0.0):
    model = make_model(0.07, decay)
    release = keras_het.callbacks.ReleaseTransition(after=10)
    monitor = keras_het.callbacks.TransitionMonitor(
        true_t, validation_data=(x[validation], noisy[validation])
    )
    fitted = model.fit(
        x[train],
        noisy[train],
        batch_size=128,
        epochs=80,
        verbose=0,
        callbacks=[release, monitor],
    )
    print(f"L2 of {decay:g}: error on clean labels {error(model):.3f}")
    for name in ("loss", "val_noisy_nll", "flips_distance"):
        print(
            f"  {name:<15} after 5, 10, 20, 40, 80 epochs:",
            *(
                f"{fitted.history[name][n - 1]:.2f}"
                for n in (5, 10, 20, 40, 80)
            ),
        )

"""
**Too little data.** The network learns the labels by heart before T can explain them, here with a quarter of the
examples. *What shows it:* training labels are far likelier than held-out labels. With all the examples the two
likelihoods are near each other.
"""

few, _ = learn(x, noisy, slice(256))
for name, selection, part in (
    ("1024 examples", found, train),
    ("256 examples", few, slice(256)),
):
    ours, theirs = (
        noisy_nll(selection.model, x[which], noisy[which])
        for which in (part, validation)
    )
    print(f"{name}: training {ours:.2f}, held out {theirs:.2f}; ", end="")
    print(f"error on clean labels {error(selection.model):.3f}")

"""
**No anchors.** If no example is surely of one class, a doubtful image and a flipped label look the same. Here every
image is the mean of a digit and of a digit of the next class, and the label is one of the two: no label is wrong. *What
shows it:* strengths that are about as likely have very different T. Then a T has to be given
(`transition=..., trainable=False`), or counted on examples with clean labels.
"""

rng = np.random.default_rng(0)
others = np.array(
    [
        rng.choice(np.flatnonzero(clean == (label + 1) % 10))
        for label in clean
    ]
)
mixed, either = (
    (x + x[others]) / 2,
    np.where(rng.random(len(clean)) < 0.5, clean, clean[others]),
)
for strength in (None, 0.07):
    selection, losses = learn(mixed, either, strengths=[strength])
    print(f"strength {strength}: ", end="")
    print(f"negative log-likelihood {losses[strength]:.2f}, ", end="")
    print(f"T moved by {moved(selection.model):.2f}")

"""
**Classes that changed places.** Where a flip is nearly as likely as the true label, T and the network may agree on the
wrong names. *What shows it:* another start, by another seed, has a higher likelihood of held-out noisy labels. Without
clean labels this is the only sign; with a few clean labels, C is far from the identity.

**Log-probabilities.** The layer takes log-probabilities: behind a `Dense(K)` or a `Dense(K, "softmax")` it refuses to
be built, and where Keras does not know the layer before it, the loss is nan from the first step.

**Stopping early.** `val_loss` on noisy labels grows while T takes the noise on, for the layer does nothing at
inference. Stop by the likelihood under T instead:
`callbacks=[TransitionMonitor(validation_data=(x, y)), EarlyStopping("val_noisy_nll", mode="min")]`.
"""
