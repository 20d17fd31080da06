"""Digits with swapped labels: which pairs the head has found, and the label errors that `clean` finds.

python -m benchmarks.demo [--quick] [--seed 0] [--output FOLDER]      (on the backend of KERAS_BACKEND)

30% of the labels of three pairs of digits are swapped in 1,280 digits, and only these labels are trained on. The
correct labels of 517 other digits only measure.
"""

import time

import keras
import numpy as np

from benchmarks.lib import harness
from keras_het.explain import covariance
from keras_het.labels import clean
from keras_het.layers import HeteroscedasticDense

PARTNER = np.array([0, 7, 2, 9, 4, 6, 5, 1, 8, 3])  # 1 and 7, 3 and 9, 5 and 6 are swapped
COUNT, RATE, EPOCHS, QUICK_EPOCHS = 1280, 0.3, 30, 3
ORDER = [1, 7, 3, 9, 5, 6, 0, 2, 4, 8]  # swapped pairs side by side
LAYERS = {"Dense": keras.layers.Dense, "head": HeteroscedasticDense}
GREEN, ORANGE = "#00855f", "#D55E00"
ROWS, COLUMNS = 3, 6


def digits(seed):
    """Returns images, noisy and true labels of the training digits, and images and true labels of the others."""
    from sklearn.datasets import load_digits

    x, true = load_digits(return_X_y=True)
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(true))
    x, true = (x[order] / 16).astype("float32"), true[order]
    labels = np.where(rng.random(len(true)) < RATE, PARTNER[true], true)
    return x[:COUNT], labels[:COUNT], true[:COUNT], x[COUNT:], true[COUNT:]


class Record(keras.callbacks.Callback):
    """Accuracy on correct labels after each epoch."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.accuracies = x, y, []

    def on_epoch_end(self, epoch, logs=None):
        predicted = keras.ops.convert_to_numpy(self.model.predict_on_batch(self.x)).argmax(-1)
        self.accuracies.append(float(np.mean(predicted == self.y)))


def trained(make_layer, x, labels, x_test, y_test, seed, epochs):
    """Returns a network with this last layer, and its accuracy on correct labels after each epoch."""
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(128, "relu") for _ in range(2)]
    model = keras.Sequential([keras.Input(x.shape[1:]), *hidden, make_layer(10, activation="softmax")])
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    record = Record(x_test, y_test)
    model.fit(x, labels, batch_size=64, epochs=epochs, verbose=0, callbacks=[record])
    return model, record.accuracies


def table(accuracies):
    """Returns the best and the last accuracy of each layer."""
    rows = [[name, f"{max(values):.3f}", f"{values[-1]:.3f}"] for name, values in accuracies.items()]
    return [["last layer", "accuracy, best epoch", "accuracy, last epoch"], *rows]


def precision_and_recall(issues, is_wrong):
    """Returns the fraction of the issues that are label errors, and of the label errors that are issues."""
    hits = is_wrong[issues.index[issues.is_issue]]
    return float(hits.mean()), float(hits.sum() / is_wrong.sum())


def draw(matrix, images, issues, is_wrong, path):
    """Draws the covariance of the head at the left, and the most suspicious labels at the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[4, 5])
    axes = left.subplots()
    shown = np.where(np.eye(10, dtype=bool), np.nan, matrix)[np.ix_(ORDER, ORDER)]
    limit = np.nanmax(np.abs(shown))
    axes.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set(xticks=range(10), xticklabels=ORDER, yticks=range(10), yticklabels=ORDER, xlabel="digit", ylabel="digit")
    axes.set_title("Covariance of the logits.  Blue: one or the other", fontsize=10)
    right.suptitle("Suspicious labels: label \N{RIGHTWARDS ARROW} suggested class", fontsize=10)
    suspects = [row for row in issues.rows() if row[4]][: ROWS * COLUMNS]
    for axes, (index, label, suggested, *_) in zip(right.subplots(ROWS, COLUMNS).flat, suspects, strict=False):
        color = GREEN if is_wrong[index] else ORANGE
        axes.imshow(1.0 - images[index].reshape(8, 8), cmap="gray", vmin=0.0, vmax=1.0)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=color, linewidth=2)
        axes.set_title(f"{label} \N{RIGHTWARDS ARROW} {suggested}", fontsize=10, color=color, pad=3)
    right.supxlabel("green: the label is wrong;  orange: the label is correct", fontsize=10)
    figure.savefig(path, dpi=130)


def main(arguments=None):
    """Trains, prints a table, and draws the picture."""
    parser = harness.parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the data and the trainings")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_EPOCHS} epochs")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    start, epochs = time.perf_counter(), QUICK_EPOCHS if options.quick else EPOCHS
    x, labels, true, *others = digits(options.seed)
    results = {name: trained(make, x, labels, *others, options.seed, epochs) for name, make in LAYERS.items()}
    matrix = covariance(results["head"][0], x)
    issues = clean(None, x, labels, seed=options.seed, verbose=0).issues
    draw(matrix, x, issues, labels != true, options.output / "demo.png")
    print(f"\n{harness.markdown(table({name: values for name, (_, values) in results.items()}))}\n")
    precision, recall = precision_and_recall(issues, labels != true)
    print(f"{issues.is_issue.sum()} labels are suspicious: precision {precision:.2f}, recall {recall:.2f}. One seed.")
    print(f"Picture: {options.output / 'demo.png'}. {time.perf_counter() - start:.0f} s on {keras.config.backend()}.")


if __name__ == "__main__":
    main()
