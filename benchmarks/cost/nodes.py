"""Accuracy, error and seconds by the number of nodes, in training and at inference.

python -m benchmarks.cost.nodes [--quick] [--output FOLDER]    (on the backend of KERAS_BACKEND)

The task is `tasks.grouped`: 1000 classes in groups of five look-alikes, with 20 examples each. 40% of the labels are
flipped within the group. A small network with the full head is trained with S nodes, twice, from equal weights and
batches with other noise. The *training noise* is the distance of log p between the two. The error of a prediction is
its distance from log p of the same weights at 2^13 nodes. Both are root mean squares weighted by p, over clean test
data. Two plain Dense layers stand beside them: one after as many epochs, and one at the temperature and epoch with the
least loss on noisy validation labels.
"""

import json
import time
from typing import NamedTuple

import keras
import numpy as np
from keras import ops
from scipy.special import log_softmax

from benchmarks.lib import harness, tasks
from benchmarks.lib.results import publish
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

FULL = {"units": 1000, "per_class": 20, "num_factors": 15, "epochs": 14, "samples": [16, 64, 256]}
QUICK = {"units": 50, "per_class": 40, "num_factors": 5, "epochs": 1, "samples": [16, 64]}
FLIPPED, BATCH, TEST, TEMPERATURE, HIDDEN = 0.4, 128, 512, 15.0, 256
INFERENCE = [16, 32, 64, 128, 256, 512, 1024]
REFERENCE, DEFAULT = 1 << 13, QuasiMonteCarlo().training_nodes(FULL["units"])


def compiled(task, *head):
    """Returns a compiled network with a head, with equal weights in every call."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input(task.train.x.shape[1:]), keras.layers.Dense(HIDDEN, activation="relu"), *head]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-3), loss, jit_compile=keras.config.backend() != "torch")
    return model


def plain(task, temperature):
    """Returns a model with a Dense layer and its logits divided by the temperature."""
    return compiled(task, keras.layers.Dense(task.units), keras.layers.Rescaling(1.0 / temperature))


def train(task, sizes, num_samples, seed):
    """Returns a model with the full head, and milliseconds of a step, without the first, which compiles."""
    integrator = QuasiMonteCarlo(num_samples)
    head = HeteroscedasticDense(
        task.units, sizes["num_factors"], temperature=TEMPERATURE, integrator=integrator, seed=seed
    )
    model = compiled(task, head)
    model.train_on_batch(task.train.x[:BATCH], task.train.y[:BATCH])
    return model, fit(model, task, sizes["epochs"])


def fit(model, task, epochs):
    """Trains a model, and returns milliseconds of a step."""
    start = time.perf_counter()
    model.fit(*task.train, batch_size=BATCH, epochs=epochs, verbose=0)
    return 1e3 * (time.perf_counter() - start) / (epochs * -(-len(task.train.y) // BATCH))


def predictor(model, integrator):
    """Returns a compiled function from a batch of inputs to log p, a NumPy array."""
    hidden, head = model.layers

    def log_p(x):
        normal = head.logit_distribution(hidden(x)).standardized(head.link.center, head.temperature)
        return integrator.integrate(head.link, normal, normal.size)

    return harness.compiled(log_p)


def predict(model, integrator, x):
    function = predictor(model, integrator)
    return np.concatenate([function(ops.convert_to_tensor(x[i : i + BATCH])) for i in range(0, len(x), BATCH)])


def distance(log_p, reference):
    return float(np.sqrt(np.mean(np.sum(np.exp(reference) * (log_p - reference) ** 2, axis=-1))))


def nll(log_p, y):
    return float(-np.mean(log_p[np.arange(len(y)), y]))


def training_table(task, sizes, x, y):
    """Returns a row for each S and two of Dense, and the first model with the default S (or the last one)."""
    rows, chosen = dense_rows(task, sizes, x, y), None
    for num_samples in sizes["samples"]:
        (first, milliseconds), (second, _) = (train(task, sizes, num_samples, seed) for seed in (1, 2))
        log_p, other = (predict(model, QuasiMonteCarlo(REFERENCE), x) for model in (first, second))
        if num_samples <= DEFAULT:
            chosen = first
        rows.append(
            {
                "trained": f"S = {num_samples}",
                "NLL": (nll(log_p, y) + nll(other, y)) / 2,
                "accuracy": float(np.mean([log_p.argmax(-1) == y, other.argmax(-1) == y])),
                "training noise": distance(other, log_p),
                "ms per step": milliseconds,
            }
        )
        print(rows[-1], flush=True)
    return rows, chosen


class Tuned(NamedTuple):
    """Temperature and epoch, from 1, with the lowest loss on validation labels, and the model at that epoch."""

    temperature: float
    epoch: int
    loss: float
    model: keras.Model


def tune(task, temperatures, epochs):
    """Trains a Dense layer at each temperature, keeps the weights of its best epoch, and returns the best `Tuned`."""
    results = []
    for temperature in temperatures:
        model = plain(task, temperature)
        stop = keras.callbacks.EarlyStopping("val_loss", patience=epochs, restore_best_weights=True)
        arguments = {"validation_data": tuple(task.validation), "callbacks": [stop], "epochs": epochs, "verbose": 0}
        losses = np.nan_to_num(model.fit(*task.train, batch_size=BATCH, **arguments).history["val_loss"], nan=np.inf)
        results.append(Tuned(temperature, int(np.argmin(losses)) + 1, float(np.min(losses)), model))
    return min(results, key=lambda tuned: tuned.loss)


def dense_rows(task, sizes, x, y):
    """Returns rows of Dense after all epochs, and at the temperature and epoch that `tune` picks."""
    last = plain(task, TEMPERATURE)
    last.train_on_batch(task.train.x[:BATCH], task.train.y[:BATCH])
    milliseconds = fit(last, task, sizes["epochs"])
    best = tune(task, (TEMPERATURE, 3 * TEMPERATURE), sizes["epochs"])
    rows = []
    for name, model in (
        (f"Dense, temperature {TEMPERATURE:g}", last),
        (f"Dense, selected: temperature {best.temperature:g}, epoch {best.epoch}", best.model),
    ):
        log_p = log_softmax(model.predict(x, batch_size=BATCH, verbose=0).astype("float64"), axis=-1)
        figures = {"NLL": nll(log_p, y), "accuracy": float(np.mean(log_p.argmax(-1) == y))}
        rows.append({"trained": name, **figures, "training noise": 0.0, "ms per step": milliseconds})
        print(rows[-1], flush=True)
    return rows


def inference_table(model, x, y, repeats):
    """Returns a row for each S at inference."""
    expected, batch = predict(model, QuasiMonteCarlo(REFERENCE), x), ops.convert_to_tensor(x[:BATCH])
    rules = {str(s): QuasiMonteCarlo(s) for s in INFERENCE}
    functions = {name: predictor(model, rule) for name, rule in rules.items()}
    timings = harness.measure({name: lambda f=function: f(batch) for name, function in functions.items()}, repeats)
    predictions = {name: predict(model, rule, x) for name, rule in rules.items()}
    return [
        {
            "S": name,
            "error": distance(log_p, expected),
            "NLL": nll(log_p, y),
            "accuracy": float(np.mean(log_p.argmax(-1) == y)),
            "ms per batch": 1e3 * timings[name].median,
        }
        for name, log_p in predictions.items()
    ]


def table(rows):
    return [list(rows[0]), *([f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows)]


def main():
    options = harness.command_line(__doc__, repeats=9).parse_args()
    sizes = QUICK if options.quick else FULL
    task = tasks.grouped(sizes["units"], sizes["per_class"], FLIPPED, seed=0)
    x, y = (part[:TEST] for part in task.test)
    trained, model = training_table(task, sizes, x, y)
    predicted = inference_table(model, x, y, options.repeats)
    tables = {
        "training with S nodes": table(trained),
        f"predicting with S nodes, after training with {DEFAULT}": table(predicted),
        "sizes": json.dumps(sizes),
    }
    publish(options.output, "nodes", tables, seeds=[0])


if __name__ == "__main__":
    main()
