"""Accuracy, likelihood and calibration of each head, beside a `Dense` layer tuned alike.

python -m benchmarks.labels.recipe [--tasks NAME ...] [--methods NAME ...] [--seeds 5]
    [--variations] [--render] [--output FOLDER]  (on the backend of KERAS_BACKEND)

Every run trains one method with one setting and writes a line of JSON. For each epoch the line has the accuracy,
likelihood and calibration on noisy validation labels, which you would have, and on clean test labels, which you would
not. Runs that have a line are not repeated. The tables have the named tasks, methods and seeds.
"""

import functools
import itertools
import time
from typing import NamedTuple

import keras
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from benchmarks.labels import recipe_report
from benchmarks.lib import harness, lines, tasks
from benchmarks.lib.results import publish
from keras_het import covariances
from keras_het.explain import calibration
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

BATCH, LEARNING_RATE = 128, 2e-3
VARIATIONS = {
    "initial_scale": (0.015, 0.5, 1.5),
    "covariance_l2": (1e-4, 1e-3, 1e-2),
    "rate": (0.2, 5.0),
    "num_factors": (3, 50),
    "num_samples": (16, 256),
}


HEADS = {  # covariance of the head by the name of the method
    "diagonal": covariances.Diagonal,
    "full": covariances.LowRank,
    "parameter-efficient": covariances.ParameterEfficient,
}


class Setting(NamedTuple):
    """Method and its hyperparameters. Dense ignores the hyperparameters of the noise."""

    method: str
    temperature: float = 5.0
    l2: float = 0.0  # all kernels except in the covariance
    covariance_l2: float = 0.0
    initial_scale: float = 0.15
    rate: float = 1.0  # learning rate of the covariance, relative to the other weights
    num_factors: int = 15
    num_samples: int = 64


class Adam(keras.optimizers.Adam):
    """Adam with a separate learning rate for the covariance of a head."""

    def __init__(self, rate):
        super().__init__(LEARNING_RATE)
        self.rate, self.own = rate, set()

    def build(self, variables):
        covariance = [v for v in variables if any(part in v.path for part in ("scale_diag", "row_scale", "factor"))]
        # Both forms, for TensorFlow updates its own variable.
        self.own = {id(form) for variable in covariance for form in (variable, variable.value)}
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(
            gradient, variable, learning_rate * self.rate if id(variable) in self.own else learning_rate
        )


def make_model(task, setting, seed):
    """Returns the compiled backbone and head of the task."""
    keras.utils.set_random_seed(seed)
    l2 = functools.partial(keras.regularizers.L2, setting.l2) if setting.l2 else lambda: None
    layers = task.backbone(task.train.x.shape[1:], l2)
    if setting.method == "Dense":
        head = [
            keras.layers.Dense(task.units, kernel_regularizer=l2()),
            keras.layers.Rescaling(1 / setting.temperature),
        ]
    else:
        head = [_head(task.units, setting, l2(), seed)]
    model = keras.Sequential([*layers, *head])
    model.compile(Adam(setting.rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _head(units, setting, l2, seed):
    kind = HEADS[setting.method]
    factors = {} if kind is covariances.Diagonal else {"num_factors": min(setting.num_factors, units)}
    penalty = keras.regularizers.L2(setting.covariance_l2) if setting.covariance_l2 else None
    return HeteroscedasticDense(
        units,
        covariance=kind(**factors, regularizer=penalty, initial_scale=setting.initial_scale),
        temperature=setting.temperature,
        kernel_regularizer=l2,
        integrator=QuasiMonteCarlo(setting.num_samples),
        seed=seed,
    )


def scores(log_p, y):
    """Returns accuracy, NLL, ECE, the NLL at the best temperature, and two robust losses."""
    p, rows = np.exp(log_p), np.arange(len(y))
    return {
        "accuracy": float((log_p.argmax(-1) == y).mean()),
        "NLL": float(-log_p[rows, y].mean()),
        "ECE": calibration(p, y).error,
        "scaled NLL": scaled_nll(log_p, y),
        "absolute error": float(1 - p[rows, y].mean()),
        "GCE": float((1 - p[rows, y] ** 0.7).mean() / 0.7),
    }


def scaled_nll(log_p, y):
    """Returns the NLL at the best temperature."""

    def nll(log_power):
        return -log_softmax(log_p * np.exp(log_power), axis=-1)[np.arange(len(y)), y].mean()

    return float(minimize_scalar(nll, bounds=(-3, 3), method="bounded").fun)


class Record(keras.callbacks.Callback):
    """Scores of every epoch."""

    def __init__(self, task):
        super().__init__()
        self.task, self.epochs = task, []

    def on_epoch_end(self, epoch, logs=None):
        measures = {"training loss": float(logs["loss"])}
        for name, part in (("noisy", self.task.validation), ("clean", self.task.test)):
            log_p = log_softmax(self.model.predict(part.x, batch_size=1000, verbose=0).astype("float64"), axis=-1)
            measures |= {f"{name} {key}": value for key, value in scores(log_p, part.y).items()}
        self.epochs.append(measures)


def run(name, seed, *setting):
    """Yields the line of a training: its seconds, and the scores of every epoch."""
    start = time.perf_counter()
    task = tasks.TASKS[name](seed)
    model, record = make_model(task, Setting(*setting), seed), Record(task)
    model.fit(*task.train, batch_size=BATCH, epochs=task.epochs, verbose=0, callbacks=[record])
    yield {"seconds": time.perf_counter() - start, "epochs": record.epochs}
    keras.utils.clear_session()


def settings(task):
    """Returns every method with each of the task's choices."""
    return [
        Setting(method, temperature, l2)
        for method in ("Dense", *HEADS)
        for temperature, l2 in itertools.product(task.temperatures, task.l2)
    ]


def variations(task):
    """Returns the full head at the middle temperature of the task, with one setting changed at a time."""
    base = Setting("full", task.temperatures[len(task.temperatures) // 2])
    return [base, *(base._replace(**{name: value}) for name, values in VARIATIONS.items() for value in values)]


def keys(options):
    """Returns the keys of all runs."""
    task_settings = variations if options.variations else settings
    settings_by_task = {name: task_settings(tasks.TASKS[name](0)) for name in options.tasks}
    return [
        {"task": name, "seed": seed, **setting._asdict()}
        for seed in range(options.seeds)
        for name, own in settings_by_task.items()
        for setting in own
        if setting.method in options.methods
    ]


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(tasks.TASKS), default=list(tasks.TASKS), metavar="NAME")
    methods = ["Dense", *HEADS]
    parser.add_argument("--methods", nargs="+", choices=methods, default=methods, metavar="NAME", help="beside Dense")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--variations", action="store_true", help="one setting of the full head at a time; in a folder of their own"
    )
    parser.add_argument("--render", action="store_true", help="only make the tables of the lines that are there")
    options = parser.parse_args()
    options.methods = {"Dense", *options.methods}  # the tables compare with it
    runs = [
        line
        for line in lines.completed(options.output / "recipe.jsonl", [] if options.render else keys(options), run)
        if line["task"] in options.tasks and line["method"] in options.methods and line["seed"] < options.seeds
    ]
    changed = (
        {"one setting at a time": recipe_report.variations(runs, Setting._fields[1:])} if options.variations else {}
    )
    publish(options.output, "recipe", changed or recipe_report.describe(runs), lines.distinct(runs, "seed"))


if __name__ == "__main__":
    main()
