"""Accuracy of the method that `labels.choose` picks, beside early stopping with as many trainings.

python -m benchmarks.labels.choice [--data NAME ...] [--noises NAME ...] [--rows NAME ...] [--seeds 5]
                                   [--output FOLDER] [--render] [--quick]                   (on KERAS_BACKEND)

The rule of `choose` was chosen on digits with seven kinds of noise, on other seeds (10 to 19). It is tested there, and
on data that did not decide it: MNIST, drawn images, words, a table. Training and validation labels are noisy; the test
labels are clean and choose nothing. Early stopping picks the start and the epoch with the best accuracy on the noisy
validation labels. `choose` gets training and validation data together. The control runs early stopping for each of 30
trainings. Network, optimizer, batches and epochs are the same for all.

Every result is a line of JSON and is computed once. `--render` makes the tables. The row of a plain choice, with early
stopping as its only candidate, shows what the additional data alone gain.

The published tables have five seeds of `--data digits` with all but the last row, and three of `--data 'table, 30% of
one class' 'words, 45% of every second' 'MNIST, 40%' 'images, 20%'` with the first row and `choose`.
"""

import time

import keras
import numpy as np

from benchmarks.lib import experiments, lines, noises, tasks
from benchmarks.lib.trials import BATCH, accuracy, early_stopping, make_model
from keras_het.labels import choose

OTHERS = {
    "images, 20%": lambda seed: tasks.images(0.2, seed),
    "MNIST, 40%": lambda seed: tasks.mnist(0.4, seed),
    "words, 45% of every second": lambda seed: tasks.words(0.45, seed),
    "table, 30% of one class": lambda seed: tasks.table(0.3, seed),
}
DIGITS = "digits"  # with seven kinds of noise
STARTS = 3  # early stopping only
ROWS = {
    "early stopping, 3 starts": lambda task, seed: stopped(task, seed, STARTS),
    "early stopping, 30 starts": lambda task, seed: stopped(task, seed, 30),
    "choose": lambda task, seed: chosen(task, seed),
    "choose, early stopping alone": lambda task, seed: chosen(task, seed, methods=()),
}
REFERENCE, CHOICE = next(iter(ROWS)), "choose"
FOLDS = 5


def task_of(data, noise, seed):
    """Returns a task with one of seven noises, or one of the tasks that include their noise."""
    return OTHERS[data](seed) if data in OTHERS else noises.make(noise, seed)


def stopped(task, seed, starts):
    """Returns the clean accuracy of early stopping."""
    clean = early_stopping(task, seed, starts)
    return {"clean accuracy": clean, "trainings": starts, "name": "crossentropy, stopped early"}


def chosen(task, seed, **arguments):
    """Returns the clean accuracy of the chosen model."""
    x, y = (np.concatenate(parts) for parts in zip(task.train, task.validation, strict=True))
    result = choose(
        lambda: make_model(task),
        x,
        y,
        epochs=task.epochs,
        batch_size=BATCH,
        folds=FOLDS,
        seed=1000 * seed,
        verbose=0,
        **arguments,
    )
    return {
        "clean accuracy": accuracy(result.model.predict(task.test.x, batch_size=2048, verbose=0), task.test.y),
        "trainings": 1 + FOLDS * len(result.trials),
        "name": result.name,
    }


def keys(options):
    """Yields the keys of all runs."""
    for data in options.data:
        for noise in ["its own"] if data in OTHERS else options.noises:
            for key in experiments.product(options, "seed", "row"):
                yield {"data": data, "noise": noise, **key}


def measured(options, data, noise, seed, row):
    """Yields the line of a row."""
    task = task_of(data, noise, seed)
    task = task._replace(epochs=options.epochs or task.epochs)
    start, used = time.perf_counter(), time.process_time()
    result = ROWS[row](task, seed)
    yield {**result, "seconds": time.perf_counter() - start, "processor": time.process_time() - used}
    keras.utils.clear_session(free_memory=False)


def points(records, row, reference=REFERENCE):
    """Returns points of clean accuracy of a row over another, for each seed that both have."""
    one, other = (lines.select(records, row=name) for name in (row, reference))
    return 100 * lines.paired(one, other, "clean accuracy")


def gains(records, data):
    """Returns a row for each noise: the reference's accuracy, and the points of all other rows over it."""
    own = lines.select(records, data=data)
    rows = [row for row in ROWS if row != REFERENCE and lines.select(own, row=row)]
    table = [["noise", REFERENCE, *rows, "chosen"]]
    columns = {row: [] for row in rows}
    for noise in lines.distinct(own, "noise"):
        part = lines.select(own, noise=noise)
        gained = {row: points(part, row) for row in rows}
        for row in rows:
            columns[row].append(gained[row].mean() if len(gained[row]) else np.nan)
        base = np.mean([line["clean accuracy"] for line in lines.select(part, row=REFERENCE)])
        names = [line["name"].partition(" (")[0] for line in lines.select(part, row=CHOICE)]  # without its strength
        counts = "; ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
        table.append([noise, f"{base:.3f}", *(lines.with_error(gained[row], 1, "+") for row in rows), counts])
    if len(table) > 2:
        table.append(["mean", "", *(mean_of(columns[row]) for row in rows), ""])
    return table


def mean_of(values):
    """Returns the mean over the noises, if all exist."""
    return "" if np.isnan(values).any() else f"{np.mean(values):+.1f}"


def costs(records):
    """Returns for each row and data the trainings, and the seconds relative to early stopping."""
    table = [["data", "row", "trainings", "processor seconds", "times one training"]]
    for data in lines.distinct(records, "data"):
        part = lines.select(records, data=data)
        single = np.median([line["processor"] / line["trainings"] for line in lines.select(part, row=REFERENCE)])
        for row in lines.distinct(part, "row"):
            own = lines.select(part, row=row)
            seconds = np.median([line["processor"] for line in own])
            trainings = np.mean([line["trainings"] for line in own])
            table.append([data, row, f"{trainings:.1f}", f"{seconds:.1f}", f"{seconds / single:.1f}"])
    return table


def tables(records):
    """Returns a table for each set of data, and the costs."""
    title = f"clean accuracy of {REFERENCE}, and points over it"
    accuracies = {f"{data}: {title}": gains(records, data) for data in lines.distinct(records, "data")}
    return accuracies | {"trainings and time": costs(records)}


def main():
    options = {"data": (DIGITS, *OTHERS), "noises": tuple(noises.NOISES), "rows": tuple(ROWS), "seeds": 5}
    quick, fixed = {"seeds": 1, "noises": ["pair"], "epochs": 2}, {"data": [DIGITS], "epochs": None}
    experiments.run(__doc__, "choice", measured, tables, options, quick, fixed, keys=keys)


if __name__ == "__main__":
    main()
