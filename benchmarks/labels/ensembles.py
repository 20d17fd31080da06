"""Ensembles in small: one model and the mean of four, plain and heteroscedastic, with and without a fitted temperature.

python -m benchmarks.labels.ensembles [--quick] [--seeds 5] [--output FOLDER]        (on the backend of KERAS_BACKEND)

The paper's Table 7 (Collier et al. 2021), on scikit-learn's digits with 40% of the labels flipped to the class that an
example looks most like. Training and validation labels are noisy; the figures are of clean test labels. Dense, whose
logits are divided by a temperature, and the full head choose among the same temperatures and L2 by the likelihood of
noisy validation labels, with the first member; every member keeps the weights of its own best epoch by that likelihood.
"one" is the mean of the figures of the four members. The scaler is fitted to the same noisy validation labels.
"""

import itertools
import time

import keras
import numpy as np

from benchmarks.labels import recipe
from benchmarks.lib import harness, tasks
from benchmarks.lib.lines import with_error
from benchmarks.lib.results import publish
from keras_het import tune
from keras_het.explain import calibration
from keras_het.models import DeepEnsemble
from keras_het.models.temperature_scaler import TemperatureScaler, best_temperature

TASK, METHODS, MEMBERS = "digits, 40%", ("Dense", "full"), 4
FIGURES = ("accuracy", "NLL", "ECE")


def fitted(task, method, choices, seed):
    """The `Result` of `tune` among pairs of a temperature and L2, and among epochs."""
    return tune(
        lambda choice: recipe.make_model(task, recipe.Setting(method, *choice), seed),
        choices, *task.train, validation_data=task.validation,
        batch_size=recipe.BATCH, epochs=task.epochs, extend=False, verbose=0,
    )  # fmt: skip


def members(task, method, seed):
    """The choice of the first member, and the fitted models of all."""
    choices = list(itertools.product(task.temperatures, task.l2))
    first = fitted(task, method, choices, 100 * seed)
    others = [fitted(task, method, [first.value], 100 * seed + index).model for index in range(1, MEMBERS)]
    return first.value, [first.model, *others]


def measure(model, task):
    """Figures on clean labels without and with a scaler, `(2, 3)`, and its temperature."""
    held_out = model.predict(task.validation.x, batch_size=256, verbose=0)
    scaler = TemperatureScaler(temperature=best_temperature(held_out, task.validation.y, "softmax"))
    outputs = model.predict(task.test.x, batch_size=1024, verbose=0)
    log_ps = [
        np.asarray(keras.ops.convert_to_numpy(layer(outputs)), "float64") for layer in (TemperatureScaler(), scaler)
    ]
    return np.array([figures(log_p, task.test.y) for log_p in log_ps]), scaler.temperature


def figures(log_p, y):
    """`FIGURES` of log-probabilities."""
    right, nll = log_p.argmax(-1) == y, -log_p[np.arange(len(y)), y]
    return right.mean(), nll.mean(), calibration(np.exp(log_p), y).error


def run(task, seed):
    """A dict of the figures and temperature of each (method, number of members, whether scaled), and the choices."""
    found, choices = {}, {}
    for method in METHODS:
        choices[method], models = members(task, method, seed)
        single = [measure(model, task) for model in models]
        together = measure(DeepEnsemble(models, "softmax", from_logits=True), task)
        mean = np.mean([table for table, _ in single], axis=0), np.mean([temperature for _, temperature in single])
        for size, (table, temperature) in ((1, mean), (len(models), together)):
            for scaled in (False, True):
                found[method, size, scaled] = table[int(scaled)], temperature if scaled else 1.0
        keras.utils.clear_session()
    return found, choices


def describe(runs):
    """A row for each model: its figures, and their gain over Dense of the same size and scaling, seed by seed."""
    lines = [["model", "members", "scaler's T", *FIGURES, *(f"{name} - Dense" for name in FIGURES)]]
    for scaled in (False, True):
        for size in sorted({size for _, size, _ in runs[0]}):
            for method in METHODS:
                tables = np.array([found[method, size, scaled][0] for found in runs])
                plain = np.array([found["Dense", size, scaled][0] for found in runs])
                temperature = with_error([found[method, size, scaled][1] for found in runs]) if scaled else "none"
                own = [with_error(column) for column in tables.T]
                gains = [""] * len(FIGURES) if method == "Dense" else [signed(column) for column in (tables - plain).T]
                lines.append([method, str(size), temperature, *own, *gains])
    return lines


def effect(runs):
    """A row for each method and scaling: what the ensemble adds to one of its members, seed by seed."""
    lines = [["model", "scaler", *(f"{name}, {MEMBERS} members - one" for name in FIGURES)]]
    for scaled, method in itertools.product((False, True), METHODS):
        gains = np.array([found[method, MEMBERS, scaled][0] - found[method, 1, scaled][0] for found in runs])
        lines.append([method, "fitted" if scaled else "none", *(signed(column) for column in gains.T)])
    return lines


def signed(values):
    text = with_error(values)
    return text if text.startswith("-") else f"+{text}"


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds of few epochs, to see that it runs")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    start, runs = time.perf_counter(), []
    for seed in range(2 if options.quick else options.seeds):
        task = tasks.TASKS[TASK](seed)
        task = task._replace(epochs=2, temperatures=task.temperatures[:1]) if options.quick else task
        found, choices = run(task, seed)
        runs.append(found)
        print(f"seed {seed}: {choices}, {time.perf_counter() - start:.0f} s", flush=True)
    tables = {
        "beside Dense of the same size": describe(runs),
        "what an ensemble adds to one of its members": effect(runs),
    }
    publish(options.output, "ensembles", tables, range(len(runs)))


if __name__ == "__main__":
    main()
