"""Does the one-line change pay? Heads and their settings beside a plain Dense with the same choices, epoch by epoch, on noisy labels.

python benchmarks/recipe.py [--tasks NAME ...] [--seeds 5] [--part 0/2] [--output FOLDER]        (on the backend of KERAS_BACKEND)

Every run trains one method with one setting and writes a line of JSON: for each epoch the accuracy, likelihood and calibration on
noisy validation labels, which a user has, and on clean test labels, which a user has not. A run whose line is there is not repeated.
"""

import argparse
import functools
import json
import pathlib
import time
from typing import NamedTuple

import harness
import keras
import numpy as np
import recipe_report
import tasks
from keras import ops
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

BATCH, LEARNING_RATE, BINS = 128, 2e-3, 15


class Setting(NamedTuple):
    """One choice of everything: a method and its hyperparameters; those of the noise do nothing to Dense."""

    method: str
    temperature: float = 1.5
    l2: float = 0.0  # of all kernels but those of the covariance
    covariance_l2: float = 0.0
    initial_scale: float = 0.7
    gain: float = 1.0  # of the start of V's kernel, times Glorot's
    num_factors: int = 15
    num_samples: int = 64


def make_model(task, setting, seed):
    """The backbone of the task and a head, compiled."""
    keras.utils.set_random_seed(seed)
    l2 = functools.partial(keras.regularizers.L2, setting.l2) if setting.l2 else lambda: None
    layers = task.backbone(task.train.x.shape[1:], l2)
    if setting.method == "Dense":
        head = [keras.layers.Dense(task.units, kernel_regularizer=l2()), keras.layers.Rescaling(1 / setting.temperature)]
    else:
        head = [_head(task.units, setting, l2(), seed)]
    model = keras.Sequential([*layers, *head])
    model.compile(keras.optimizers.Adam(LEARNING_RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _head(units, setting, l2, seed):
    return HeteroscedasticDense(
        units,
        0 if setting.method == "diagonal" else min(setting.num_factors, units),
        parameter_efficient=setting.method == "parameter-efficient",
        temperature=setting.temperature,
        kernel_regularizer=l2,
        covariance_regularizer=keras.regularizers.L2(setting.covariance_l2) if setting.covariance_l2 else None,
        covariance_initializer=keras.initializers.VarianceScaling(setting.gain**2, "fan_avg", "uniform"),
        initial_scale=setting.initial_scale,
        integrator=QuasiMonteCarlo(setting.num_samples),
        seed=seed,
    )


def scores(log_p, y):
    """What labels say of predictions: accuracy, NLL, ECE, the NLL at the best temperature of the outputs, and two robust losses."""
    p, rows = np.exp(log_p), np.arange(len(y))
    right, confidence = log_p.argmax(-1) == y, p.max(-1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, right - confidence, BINS)
    scaled = minimize_scalar(lambda t: -log_softmax(log_p * np.exp(t), axis=-1)[rows, y].mean(), bounds=(-3, 3), method="bounded")
    return {
        "accuracy": float(right.mean()),
        "NLL": float(-log_p[rows, y].mean()),
        "ECE": float(np.abs(gaps).sum() / len(y)),
        "scaled NLL": float(scaled.fun),
        "absolute error": float(1 - p[rows, y].mean()),
        "GCE": float((1 - p[rows, y] ** 0.7).mean() / 0.7),
    }


def noise(model, x):
    """Root mean square of the diagonal and of the factor noise of a logit, in temperatures; nothing for Dense."""
    head = model.layers[-1]
    if not isinstance(head, HeteroscedasticDense):
        return {}
    for layer in model.layers[:-1]:
        x = layer(x, training=False)
    normal = head.logit_distribution(x)
    total, diagonal = (ops.convert_to_numpy(v).mean() for v in (normal.variance(), ops.square(normal.scale_diag)))
    return {
        "diagonal noise": float(np.sqrt(diagonal) / head.temperature),
        "factor noise": float(np.sqrt(max(total - diagonal, 0.0)) / head.temperature),
    }


class Record(keras.callbacks.Callback):
    """The scores of every epoch."""

    def __init__(self, task):
        super().__init__()
        self.task, self.epochs = task, []

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        found = {"training loss": float(logs["loss"]), **noise(self.model, self.task.validation.x[:256])}
        for name, part in (("noisy", self.task.validation), ("clean", self.task.test)):
            log_p = log_softmax(self.model.predict(part.x, batch_size=1000, verbose=0).astype("float64"), axis=-1)
            found |= {f"{name} {key}": value for key, value in scores(log_p, part.y).items()}
        self.epochs.append(found)


def run(name, setting, seed):
    """One line of the results."""
    start = time.perf_counter()
    task = tasks.TASKS[name](seed)
    model, record = make_model(task, setting, seed), Record(task)
    model.fit(*task.train, batch_size=BATCH, epochs=task.epochs, verbose=0, callbacks=[record])
    key = {"task": name, "seed": seed, **setting._asdict()}
    return {**key, "seconds": time.perf_counter() - start, "epochs": record.epochs}


def settings():
    """Every method at each temperature, without and with L2."""
    return [
        Setting(method, temperature, l2) for l2 in (0.0, 1e-3) for temperature in (1.5, 5.0, 15.0, 40.0) for method in recipe_report.METHODS
    ]


def key_of(line):
    """What a run is known by."""
    return json.dumps({name: value for name, value in line.items() if name not in ("seconds", "epochs")})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(tasks.TASKS), default=list(tasks.TASKS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", default="0/1", help="I/N: every N-th run, from the I-th, for several processes side by side")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("benchmark_results"), help="folder for what it writes")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    options.output.mkdir(parents=True, exist_ok=True)
    present = {key_of(line) for line in recipe_report.read(options.output)}
    wanted = [(name, setting, seed) for seed in range(options.seeds) for name in options.tasks for setting in settings()]
    for name, setting, seed in wanted[part::parts]:
        if key_of({"task": name, "seed": seed, **setting._asdict()}) in present:
            continue
        line = run(name, setting, seed)
        with (options.output / f"recipe-{part}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        last = line["epochs"][-1]
        print(f"{name}, seed {seed}: {setting}: {last['clean accuracy']:.3f} {last['clean NLL']:.3f}, {line['seconds']:.0f} s", flush=True)
        keras.utils.clear_session()
    text = f"{recipe_report.describe(recipe_report.read(options.output))}\n{harness.describe()}\n"
    (options.output / "recipe.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
