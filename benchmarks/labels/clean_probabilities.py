"""Calibrated probabilities of the *true* classes, by a scaler on a few clean labels or by a T behind the head.

python -m benchmarks.labels.clean_probabilities [--tasks NAME ...] [--seeds 5] [--output FOLDER]
(on the backend of KERAS_BACKEND)

A model that is calibrated for noisy labels is less sure of the true classes than it could be. Every model here is
chosen by noisy validation labels (`keras_het.tune`: temperature, L2 and epoch, or the strength of T's penalty and the
epoch). Its probabilities are then raised to a power, the same for all examples, that is fitted to 50 or 200 clean
labels. All figures are of the other clean labels.
"""

import functools
import itertools

import keras
import numpy as np
from scipy.special import log_softmax

from benchmarks.labels import recipe
from benchmarks.lib import harness, tasks
from benchmarks.lib.lines import with_error
from benchmarks.lib.results import publish
from keras_het import tune
from keras_het.callbacks import ReleaseTransition
from keras_het.explain import calibration
from keras_het.layers import HeteroscedasticDense, NoiseTransition

TASKS = ("digits, 20%", "digits, 40%", "digits, 40% symmetric", "images, 20%", "words, 45% of every second")
METHODS = ("Dense", "full", "Dense and a learned T", "full and a learned T")
CLEAN = (0, 50, 200)  # clean labels for the scaler
STRENGTHS, DECAY, RELEASE = (0.01, 0.03, 0.07, 0.14), 2e-3, 10


def choices(method, task):
    """The choices of a method: temperatures and L2 of all kernels, or strengths of T's penalty."""
    return STRENGTHS if method.endswith("T") else tuple(itertools.product(task.temperatures, (0.0, DECAY)))


def make_model(task, method, choice, seed):
    """The backbone of the task and a head, compiled, with a T that is learned behind it if the method has one."""
    if not method.endswith("T"):
        temperature, l2 = choice
        return recipe.make_model(task, recipe.Setting(method, temperature, l2), seed)
    keras.utils.set_random_seed(seed)
    decay = functools.partial(keras.regularizers.L2, DECAY)
    if method.startswith("Dense"):
        head = keras.layers.Dense(task.units, "log_softmax", kernel_regularizer=decay())
    else:
        head = HeteroscedasticDense(task.units, min(15, task.units), kernel_regularizer=decay(), seed=seed)
    flips = NoiseTransition(task.units, regularizer=keras.regularizers.L2(choice))
    model = keras.Sequential([*task.backbone(task.train.x.shape[1:], decay), head, flips])
    model.compile(
        keras.optimizers.Adam(2 * recipe.LEARNING_RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def chosen(task, method, seed, values=None):
    """The model of the best choice and epoch, by the likelihood of noisy validation labels."""
    arguments = {"batch_size": recipe.BATCH, "epochs": task.epochs, "extend": False, "verbose": 0}
    if method.endswith("T"):
        arguments["callbacks"] = [ReleaseTransition(min(RELEASE, task.epochs // 3))]
    return tune(
        lambda choice: make_model(task, method, choice, seed),
        values or choices(method, task),
        *task.train,
        validation_data=task.validation,
        **arguments,
    ).model


def rows(name, seed):
    """Accuracy, NLL, ECE and mean confidence less accuracy, for every way and number of clean labels."""
    task = tasks.TASKS[name](seed)
    for way in METHODS:
        model = chosen(task, way, seed)
        log_p = log_softmax(model.predict(task.test.x, batch_size=1000, verbose=0).astype("float64"), axis=-1)
        for count in CLEAN:
            power = recipe.scaled_by(log_p[:count], task.test.y[:count])[0] if count else 1.0
            scaled, y = log_softmax(log_p[CLEAN[-1] :] * power, axis=-1), task.test.y[CLEAN[-1] :]
            p, right = np.exp(scaled), scaled.argmax(-1) == y
            figures = [
                right.mean(),
                -scaled[np.arange(len(y)), y].mean(),
                calibration(p, y).error,
                (p.max(-1) - right).mean(),
            ]
            yield way, count, figures
        keras.utils.clear_session()


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(tasks.TASKS), default=list(TASKS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    tables = {}
    for name in options.tasks:
        found = {}
        for seed in range(options.seeds):
            for way, count, figures in rows(name, seed):
                found.setdefault((way, count), []).append(figures)
            print(name, seed, flush=True)
        lines = [["model", "clean labels", "accuracy", "NLL", "ECE", "confidence - accuracy"]]
        for (way, count), figures in found.items():
            lines.append([way, str(count), *(with_error(column) for column in zip(*figures, strict=True))])
        tables[name] = lines
    publish(options.output, "clean_probabilities", tables, range(options.seeds))


if __name__ == "__main__":
    main()
