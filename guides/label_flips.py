"""
Title: Learn which labels are swapped
Author: The keras_het authors
Date created: 2026/11/21
Last modified: 2026/11/29
Description: Learn and choose a transition matrix from noisy labels alone, and recognise when it has failed.
Accelerator: None
Seeds: 0
"""

"""
## Introduction

If label errors depend on the class alone, the noise is a matrix: T[i, j] = p(label j | true class i). Put
`keras_het.layers.NoiseTransition` after your model's log-probabilities. In training, the layer turns the prediction of
the true class into a prediction of the noisy label, which the loss compares with the label. At inference it does
nothing, so your model predicts true classes (Sukhbaatar et al. 2014).

Set the backend before you import Keras: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide needs
`pip install ".[jax,demo]"` in a clone, and takes about ten minutes on two cores.
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

35% of the digits are labelled as the next digit, in training and validation alike. The test labels are clean.
"""

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
x, clean = (digits.data[order] / 16).astype("float32"), digits.target[order]
true_t = pair_flip(10, 0.35)
noisy = corrupt(clean, true_t, seed=0)
train, validation, test = slice(1024), slice(1024, 1280), slice(1280, None)

"""
## The model

The network has weight decay and returns log-probabilities, followed by the layer. T starts near the identity. A ridge
penalty, Keras' `L2`, spreads its rows. With the strength `None`, T stays at the identity, which is the plain model.
"""


def make_model(strength, decay=2e-3):
    """Returns a compiled model with equal weights for every strength."""
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


def learn(x, labels, part=train, strengths=(None, 0.07), folds=5):
    """Returns the result of the best strength, and the loss of each.

    T is released after ten epochs. Held-out noisy labels choose the
    strength and the epoch. The list begins with the safest strength.
    """
    release = keras_het.callbacks.ReleaseTransition(after=10)
    arguments = {
        "batch_size": 128,
        "epochs": 80,
        "folds": folds,
        "verbose": 0,
        "callbacks": [release],
    }
    functions = [
        functools.partial(make_model, strength) for strength in strengths
    ]
    result = keras_het.labels.choose(
        functions, x[part], labels[part], criterion="loss", **arguments
    )
    losses = [
        round(float(-trial.score.mean()), 2) for trial in result.trials
    ]
    return result, dict(zip(strengths, losses, strict=True))


def error(model):
    """Returns the error on clean test data."""
    return np.mean(
        model.predict(x[test], verbose=0).argmax(-1) != clean[test]
    )


def distance_moved(model):
    """Returns the total variation of T and the identity.

    It is the fraction of labels that T treats as label errors.
    """
    return total_variation(
        keras.ops.convert_to_numpy(model.get_layer("flips").transition),
        np.eye(10),
    )


"""
## Learning T

If the penalty is weak, T stays at the identity and the network memorises the label errors. If it is strong, T reports
noise that does not exist. Choose the strength by the likelihood of held-out noisy labels under p(true | x) T. You need
no clean label. With five folds, each training has four fifths of the examples.
"""

(result, losses), (plain, _) = (
    learn(x, noisy, strengths=(None, 0.14, 0.07)),
    learn(x, noisy, strengths=[None]),
)
learned_t = keras.ops.convert_to_numpy(
    result.model.get_layer("flips").transition
)
print(
    "negative log-likelihood of held-out noisy labels, by strength:",
    losses,
)
print(
    f"error on clean labels: {error(plain.model):.3f} without T, ", end=""
)
print(f"{error(result.model):.3f} with the chosen T")
distance = total_variation(learned_t, true_t)
print(f"total variation to the true T: {distance:.2f}; ", end="")
print("the identity has 0.35")
result.plot()

"""
If you have a few clean labels, look at C, the mean prediction for each true class. If C is near the identity, T has
learned the noise and the network has not. C~ is the mean noisy prediction. It equals C T, whatever the model has learned.
"""

matrices = confusion_matrices(result.model, x[test], clean[test])
print(
    f"mean diagonal of C {matrices.clean.diagonal().mean():.2f}, ", end=""
)
print(f"of C~ {matrices.noisy.diagonal().mean():.2f}")

"""
## When it fails

**Instance-dependent noise.** Then no matrix describes the errors. Here 40% of the labels, mostly of ugly digits, are
flipped to the other class that the image resembles most. *The sign:* no strength explains the held-out labels better
than `None`. Use `keras_het.layers.HeteroscedasticDense` for this noise.
"""

look_alike = corrupt(
    clean, rows=look_alike_transitions(x, clean, 0.4), seed=0
)
print("negative log-likelihood by strength:", learn(x, look_alike)[1])

"""
**A network that memorises.** T can explain only the errors that the network has not memorised. So the L2 on the
network's kernels is part of the method. Without it, the network memorises the label errors one by one, before and after
T is released. Neither the penalty of T nor an early stop makes up for that. *The sign:* the monitor's `val_noisy_nll`
rises while the training loss still falls.
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
**Little data.** The network memorises the labels before T can explain them, here with a quarter of the examples. *The
sign:* training labels are far more likely than held-out labels. With all examples, both are about equally likely.
"""

few, _ = learn(x, noisy, slice(256), strengths=[0.07])
for name, selection, part in (
    ("1024 examples", result, train),
    ("256 examples", few, slice(256)),
):
    ours, theirs = (
        noisy_nll(selection.model, x[which], noisy[which])
        for which in (part, validation)
    )
    print(f"{name}: training {ours:.2f}, held out {theirs:.2f}; ", end="")
    print(f"error on clean labels {error(selection.model):.3f}")

"""
**Few folds.** With two folds, each training has half of the examples. Here 45% of the labels are flipped, and 512
examples are too few to learn T. So two folds select the plain model. With five folds, each training has 820 examples,
and T is selected. It is close: on PyTorch, whose numbers differ, five folds select the plain model as well. *The
remedy:* use five folds or more if the noise is strong, and collect more examples.
"""

half = corrupt(clean, pair_flip(10, 0.45), seed=0)
for folds in (2, 5):
    selection, losses = learn(x, half, folds=folds)
    print(f"{folds} folds: negative log-likelihood {losses}; ", end="")
    print(f"error on clean labels {error(selection.model):.3f}")

"""
**No anchors.** If every example is ambiguous, an ambiguous image and a flipped label look the same. Here every image is
the mean of two digits of neighbouring classes, and the label is one of the two classes, so no label is wrong. *The
sign:* strengths that are about equally likely give very different T. Then pass a known T
(`transition=..., trainable=False`), or count it on examples with clean labels.
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
    selection, losses = learn(mixed, either, strengths=[strength], folds=2)
    print(f"strength {strength}: ", end="")
    print(f"negative log-likelihood {losses[strength]:.2f}, ", end="")
    print(f"T moved by {distance_moved(selection.model):.2f}")

"""
**Swapped classes.** If a flip is nearly as likely as the true label, T and the network can agree on the wrong class
names. *The sign:* a start with another seed has a higher likelihood of held-out noisy labels. With a few clean labels
you also see that C is far from the identity.

**Log-probabilities.** The layer needs log-probabilities. After a `Dense(K)` or a `Dense(K, "softmax")` it raises an
error. If Keras does not know the layer before it, the loss is nan from the first step.

**Early stopping.** `val_loss` on noisy labels rises while T learns the noise, because the layer does nothing at
inference. Stop by the likelihood under T instead:
`callbacks=[TransitionMonitor(validation_data=(x, y)), EarlyStopping("val_noisy_nll", mode="min")]`.
"""
