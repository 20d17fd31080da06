"""
Title: Fine-tune a KerasHub classifier on noisy labels
Author: The keras_het authors
Date created: 2026/11/21
Last modified: 2026/11/26
Description: Convert a pretrained classifier with one call, fine-tune it, and compare it with its plain head.
Accelerator: None
Seeds: 0, 1, 2
"""

"""
## What this shows

You have a pretrained classifier, and new images whose labels are partly wrong: look-alike classes are swapped. We
fine-tune the classifier twice, with its plain head and with a heteroscedastic one, and look at both on clean labels.

Set the backend before Keras is imported, in the shell: `export KERAS_BACKEND=jax` (or `tensorflow`, `torch`). The guide
needs `pip install ".[jax,hub,demo]"` in a clone, and takes some five minutes on two cores.
"""

import pathlib
import tempfile

import keras
import keras_hub
import numpy as np
from sklearn.datasets import load_digits

import keras_het

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)

"""
## The data

Handwritten digits, in three parts: 500 with clean labels, 900 whose labels come from hasty people, and the rest, clean,
to test on. Hasty people swap digits that look alike: 40% of the time in this set.
"""

digits = load_digits()
images, labels = (
    (16 * digits.images[..., None]).clip(0, 255).astype("uint8"),
    digits.target,
)
order = rng.permutation(len(labels))
clean, noisy, test = np.split(order, [500, 1400])

looks_like = np.array(
    [6, 7, 3, 8, 9, 6, 5, 1, 3, 4]
)  # looks_like[i]: the digit that i is taken for
transition = (
    0.6 * np.eye(10) + 0.4 * np.eye(10)[looks_like]
)  # of true classes into labels
noisy_labels = keras_het.labels.corrupt(labels, transition, seed=0)

"""
## A pretrained classifier

With an internet connection this is one line, and everything below stays as it is:

    task = keras_hub.models.ImageClassifier.from_preset(
        "vit_base_patch16_224_imagenet", num_classes=10
    )

So that the guide also runs without a connection, a small vision transformer is trained on the clean part as a stand-in
for the download, and saved and loaded as a preset.
"""

converter = keras_hub.layers.ViTImageConverter(
    image_size=(8, 8), scale=1 / 255
)
stand_in = keras_hub.models.ViTImageClassifier(
    keras_hub.models.ViTBackbone(
        (8, 8, 1),
        (2, 2),
        num_layers=2,
        num_heads=4,
        hidden_dim=48,
        mlp_dim=96,
    ),
    num_classes=10,
    preprocessor=keras_hub.models.ViTImageClassifierPreprocessor(converter),
)
stand_in.compile(
    keras.optimizers.Adam(2e-3),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
stand_in.fit(
    images[clean], labels[clean], epochs=30, shuffle=False, verbose=0
)
stand_in.compile()  # a new optimizer: a preset keeps the state of this one

preset = pathlib.Path(tempfile.mkdtemp()) / "small_vit"
stand_in.save_to_preset(str(preset))
task = keras_hub.models.ImageClassifier.from_preset(str(preset))

"""
## Convert it

One call. The new model shares the backbone with the task; `clone=True` gives it a copy, so that both heads below start
from the same weights. It keeps the task's preprocessor, so it takes raw images, and returns log-probabilities: `exp`
gives probabilities. Before any training they are nearly the old model's.
"""

converted = keras_het.heteroscedastic(task, num_factors=5, clone=True)
before = keras.ops.convert_to_numpy(
    keras.ops.softmax(task.predict(images[test], verbose=0))
)
after = np.exp(converted.predict(images[test], verbose=0))
change = np.abs(after - before).max()
print(f"largest change of a probability by the conversion: {change:.4f}")

"""
## Fine-tune both heads

The same recipe for both, three times: Adam, whose learning rate and number of epochs are chosen by the likelihood of
held-out *noisy* labels, because no clean labels are at hand. `keras_het.homoscedastic` is the way back, and gives the
plain head in the same wrapping. The models come compiled as the task is, with a loss that takes their outputs; here
they get an optimizer of their own. Like every task of KerasHub they do not shuffle, so each run shuffles the data once.
"""

train, validation = noisy[:700], noisy[700:]
heads = {
    "plain": lambda: keras_het.homoscedastic(
        keras_het.heteroscedastic(task, clone=True)
    ),
    "heteroscedastic": lambda: keras_het.heteroscedastic(
        task, num_factors=5, clone=True
    ),
}


def fine_tune(name, seed):
    """The learning rate and epoch, two figures, and the model.

    On the clean test set: the accuracy and the negative log-likelihood.
    """

    def make_model(learning_rate):
        keras.utils.set_random_seed(seed)
        model = heads[name]()
        model.compile(
            keras.optimizers.Adam(learning_rate),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model

    shuffled = np.random.default_rng(seed).permutation(train)
    held_out = (images[validation], noisy_labels[validation])
    found = []
    for learning_rate in (1e-3, 3e-3, 1e-2):
        model = make_model(learning_rate)
        stop = keras.callbacks.EarlyStopping(
            "val_loss", patience=8, restore_best_weights=True
        )
        history = model.fit(
            images[shuffled],
            noisy_labels[shuffled],
            validation_data=held_out,
            epochs=8,
            shuffle=False,
            callbacks=[stop],
            verbose=0,
        ).history["val_loss"]
        epoch = int(np.argmin(history)) + 1
        found.append((min(history), f"{learning_rate:g}: {epoch}", model))
    _, chosen, model = min(found, key=lambda one: one[0])
    log_p = keras.ops.convert_to_numpy(
        keras.ops.log_softmax(model.predict(images[test], verbose=0))
    )
    return (
        chosen,
        np.mean(log_p.argmax(axis=1) == labels[test]),
        -np.mean(log_p[np.arange(len(test)), labels[test]]),
        model,
    )


seeds = 3
print(
    f"\nclean test labels, mean and standard error of {seeds} runs; "
    "the chosen learning rates and epochs"
)
print("head              accuracy          NLL")
for name in heads:
    runs = [fine_tune(name, seed) for seed in range(seeds)]
    columns = (np.array([run[i] for run in runs]) for i in (1, 2))
    figures = "   ".join(
        f"{c.mean():.3f} +- {c.std(ddof=1) / seeds**0.5:.3f}"
        for c in columns
    )
    print(
        f"{name:18}{figures}   ",
        ", ".join(chosen for chosen, *_ in runs),
    )

"""
The temperature of the heteroscedastic head is its default here, 5. Choose it in the same way.

## Which classes are confused

The covariance of the logits shows it. Pairs with a large covariance are confused: with a negative covariance the logit
of one class rises where the logit of the other falls, so that either label may come. Pairs that chance could give are
left out, at times all pairs.
"""

*_, model = runs[-1]
pairs = keras_het.explain.confused_pairs(model, images[test], count=5)
print(
    "\nlargest covariances beyond chance:",
    [
        (pair.first, pair.second, round(pair.covariance, 2))
        for pair in pairs
    ],
)

"""
The same as a picture:
"""

axes = pairs.plot()

"""
## Save it

The file loads on every backend (`import keras_het` first), and `model.export` writes SavedModel, ONNX and the other
formats.
"""

model.save(preset.parent / "model.keras")
loaded = keras.models.load_model(preset.parent / "model.keras")
print(
    "\nthe file predicts the same:",
    np.allclose(
        loaded.predict(images[test], verbose=0),
        model.predict(images[test], verbose=0),
        atol=1e-5,
    ),
)
