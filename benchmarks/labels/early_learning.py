"""Memorised wrong labels by epoch: early-learning regularisation beside plain crossentropy.

python -m benchmarks.labels.early_learning [--quick] [--repeats SEEDS] [--output FOLDER]      (on KERAS_BACKEND)

1,024 of scikit-learn's digits, 40% of whose labels are flipped to any other class, a network of 128-128 units, Adam, no
weight decay, nothing chosen by validation. After every epoch: of the training examples with a wrong label, the share
that is predicted as the wrong label, and as the true one; and the accuracy on clean test labels. Writes
early_learning.jsonl, a row for each seed, method and epoch, early_learning.md and early_learning.png.
"""

import json

import keras
import numpy as np

from benchmarks.labels.label_flip import CLASSES, TRAIN, VALIDATION, shuffled_digits
from benchmarks.lib import harness
from benchmarks.lib.results import publish
from keras_het.labels import corrupt, symmetric
from keras_het.losses import EarlyLearningRegularizedCrossentropy, with_index

FLIPPED, EPOCHS, BATCH, LEARNING_RATE = 0.4, 200, 128, 1e-3
STRENGTHS = {"crossentropy": None, "ELR, lambda 1": 1.0, "ELR, lambda 3": 3.0, "ELR, lambda 7": 7.0}
SHARES = {
    "as wrong label": "wrongly labelled, predicted as the wrong label",
    "as true label": "wrongly labelled, predicted as the true label",
    "test": "accuracy on clean test labels",
}


class Shares(keras.callbacks.Callback):
    """Shares of wrongly labelled training examples predicted as either class, and test accuracy, after every epoch."""

    def __init__(self, x, true, noisy, test):
        super().__init__()
        wrong = true != noisy
        self.x, self.true, self.noisy = x[wrong], true[wrong], noisy[wrong]
        self.test, self.rows = test, []

    def on_epoch_end(self, epoch, logs=None):
        """Adds a row."""
        said, of_test = (self.model.predict_on_batch(x).argmax(-1) for x in (self.x, self.test[0]))
        values = (np.mean(said == self.noisy), np.mean(said == self.true), np.mean(of_test == self.test[1]))
        self.rows.append({"epoch": epoch + 1, **dict(zip(SHARES, map(float, values), strict=True))})


def train(seed, strength, epochs):
    """A row for each epoch of one run."""
    x, y = shuffled_digits(seed)
    noisy = corrupt(y, symmetric(CLASSES, FLIPPED), [seed, 5])[:TRAIN]
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(128, "relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if strength is not None:
        loss = EarlyLearningRegularizedCrossentropy(TRAIN, CLASSES, strength, from_logits=True).attach(model)
    model.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
    test = x[TRAIN + VALIDATION :], y[TRAIN + VALIDATION :]
    shares = Shares(x[:TRAIN], y[:TRAIN], noisy, test)
    weights = None if strength is None else with_index(TRAIN)
    model.fit(x[:TRAIN], noisy, sample_weight=weights, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[shares])
    return shares.rows


def curves(rows, method, share):
    """Shares of every seed, `(seeds, epochs)`."""
    rows = [row for row in rows if row["method"] == method]
    seeds = sorted({row["seed"] for row in rows})
    return np.array([[row[share] for row in rows if row["seed"] == seed] for seed in seeds])


def table(rows):
    """Means over the seeds and their standard deviation: at the end, and at the best epoch on clean labels.

    Nobody knows that epoch.
    """
    lines = [["method", "as wrong label, end", "as true label, end", "test accuracy, end", "test accuracy, best epoch"]]
    for method in STRENGTHS:
        values = [curves(rows, method, share)[:, -1] for share in SHARES]
        values.append(curves(rows, method, "test").max(axis=1))
        lines.append([method, *(f"{100 * v.mean():.1f} ± {100 * v.std(ddof=len(v) > 1):.1f}" for v in values)])
    return lines


def figure(rows):
    """A panel for each share: the mean over the seeds by epoch, and all seeds as a band."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(13, 4.2), layout="constrained")
    for axes, (share, title) in zip(drawing.subplots(1, 3, sharey=True), SHARES.items(), strict=True):
        for color, method in zip(("#333333", "#9ecae1", "#3182bd", "#08306b"), STRENGTHS, strict=True):
            shares = 100 * curves(rows, method, share)
            epochs = np.arange(shares.shape[1]) + 1
            axes.fill_between(epochs, shares.min(axis=0), shares.max(axis=0), color=color, alpha=0.2, linewidth=0)
            axes.plot(epochs, shares.mean(axis=0), color=color, label=method)
        axes.set(title=title, xlabel="epoch", ylim=(0, 100))
        axes.spines[["top", "right"]].set_visible(False)
    drawing.axes[0].set_ylabel("%")
    drawing.axes[0].legend(frameon=False, loc="upper left")
    return drawing


def main():
    arguments = harness.command_line(__doc__, repeats=5).parse_args()
    seeds, epochs = (1, 5) if arguments.quick else (arguments.repeats, EPOCHS)
    rows = []
    for seed in range(seeds):
        for method, strength in STRENGTHS.items():
            rows += [{"seed": seed, "method": method, **row} for row in train(seed, strength, epochs)]
            print(seed, method, rows[-1], flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "early_learning.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    figure(rows).savefig(arguments.output / "early_learning.png", dpi=110)
    title = f"percent, {seeds} seeds, {epochs} epochs, mean ± standard deviation"
    publish(arguments.output, "early_learning", {title: table(rows)}, range(seeds))


if __name__ == "__main__":
    main()
