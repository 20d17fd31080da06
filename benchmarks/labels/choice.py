"""Accuracy of the method that `labels.choose` picks, beside early stopping with as many trainings.

python -m benchmarks.labels.choice [--data NAME ...] [--noises NAME ...] [--rows NAME ...] [--seeds 5]
                                   [--part I/N] [--output FOLDER] [--render] [--quick]      (on KERAS_BACKEND)

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

import json
import time

import keras
import numpy as np

from benchmarks.lib import harness, noises, tasks
from benchmarks.lib.lines import distinct, select, with_error
from benchmarks.lib.results import publish
from benchmarks.lib.trials import BATCH, accuracy, early_stopping, make_model
from keras_het.labels import choose

OTHERS = {
    "images, 20%": lambda seed: tasks.images(0.2, seed),
    "MNIST, 40%": lambda seed: tasks.mnist(0.4, seed),
    "words, 45% of every second": lambda seed: tasks.words(0.45, seed),
    "table, 30% of one class": lambda seed: tasks.table(0.3, seed),
}
STARTS = 3  # early stopping only
ROWS = {
    "early stopping, 3 starts": lambda task, seed: stopped(task, seed, STARTS),
    "early stopping, 30 starts": lambda task, seed: stopped(task, seed, 30),
    "choose": lambda task, seed: chosen(task, seed),
    "choose, early stopping alone": lambda task, seed: chosen(task, seed, methods=()),
}
REFERENCE, CHOICE = next(iter(ROWS)), "choose"
QUICK_EPOCHS = 2


def task_of(data, noise, seed):
    """Returns a task with one of seven noises, or one of the tasks that include their noise."""
    return OTHERS[data](seed) if data in OTHERS else noises.make(data, noise, seed)


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
        seed=1000 * seed,
        verbose=0,
        **arguments,
    )
    return {
        "clean accuracy": accuracy(result.model.predict(task.test.x, batch_size=2048, verbose=0), task.test.y),
        "trainings": 1 + sum(trial.trainings for trial in result.trials),
        "name": result.name,
    }


def wanted(options):
    """Yields the keys of all results."""
    keys = [
        {"data": data, "noise": noise, "seed": seed, "row": row}
        for data in options.data
        for noise in (["its own"] if data in OTHERS else options.noises)
        for seed in range(options.seeds)
        for row in options.rows
    ]
    index, count = map(int, options.part.split("/"))
    return keys[index::count]


def run(options):
    """Computes the missing results, a line each."""
    present = [{name: line[name] for name in ("data", "noise", "seed", "row")} for line in lines_of(options.output)]
    for key in wanted(options):
        if key not in present:
            task = task_of(key["data"], key["noise"], key["seed"])
            task = task._replace(epochs=QUICK_EPOCHS) if options.quick else task
            start, used = time.perf_counter(), time.process_time()
            result = ROWS[key["row"]](task, key["seed"])
            spent = {"seconds": time.perf_counter() - start, "processor": time.process_time() - used}
            line = {**key, **result, **spent}
            with (options.output / f"choice-{options.part.replace('/', '-')}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)
            keras.utils.clear_session(free_memory=False)


def lines_of(folder):
    """Returns all lines in a folder."""
    return [
        json.loads(line) for path in sorted(folder.glob("choice-*.jsonl")) for line in path.read_text().splitlines()
    ]


def points(lines, row, reference=REFERENCE):
    """Returns points of clean accuracy of a row over another, for each seed that both have."""
    one, other = (
        {line["seed"]: line["clean accuracy"] for line in select(lines, row=name)} for name in (row, reference)
    )
    return np.array([100 * (one[seed] - other[seed]) for seed in sorted(one.keys() & other.keys())])


def gains(lines, data):
    """Returns a row for each noise: the reference's accuracy, and the points of all other rows over it."""
    own = select(lines, data=data)
    rows = [row for row in ROWS if row != REFERENCE and select(own, row=row)]
    table = [["noise", REFERENCE, *rows, "chosen"]]
    columns = {row: [] for row in rows}
    for noise in distinct(own, "noise"):
        part = select(own, noise=noise)
        gained = {row: points(part, row) for row in rows}
        for row in rows:
            columns[row].append(gained[row].mean() if len(gained[row]) else np.nan)
        base = np.mean([line["clean accuracy"] for line in select(part, row=REFERENCE)])
        names = [line["name"].partition(" (")[0] for line in select(part, row=CHOICE)]  # without its strength
        counts = "; ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
        table.append([noise, f"{base:.3f}", *(with_error(gained[row], 1, "+") for row in rows), counts])
    if len(table) > 2:
        table.append(["mean", "", *(mean_of(columns[row]) for row in rows), ""])
    return table


def mean_of(values):
    """Returns the mean over the noises, if all exist."""
    return "" if np.isnan(values).any() else f"{np.mean(values):+.1f}"


def costs(lines):
    """Returns for each row and data the trainings, and the seconds relative to early stopping."""
    table = [["data", "row", "trainings", "processor seconds", "times one training"]]
    for data in distinct(lines, "data"):
        part = select(lines, data=data)
        single = np.median([line["processor"] / line["trainings"] for line in select(part, row=REFERENCE)])
        for row in distinct(part, "row"):
            own = select(part, row=row)
            seconds = np.median([line["processor"] for line in own])
            trainings = np.mean([line["trainings"] for line in own])
            table.append([data, row, f"{trainings:.1f}", f"{seconds:.1f}", f"{seconds / single:.1f}"])
    return table


def render(folder):
    """Publishes the tables of the lines in a folder."""
    lines = lines_of(folder)
    tables = {
        f"{data}: clean accuracy of {REFERENCE}, and points over it": gains(lines, data)
        for data in distinct(lines, "data")
    }
    tables["trainings and time"] = costs(lines)
    publish(folder, "choice", tables, sorted(distinct(lines, "seed")))


def options_of(arguments=None):
    """Returns the options of the command line."""
    parser = harness.parser_of(__doc__)
    everything = [*noises.DATA, *OTHERS]
    parser.add_argument("--data", nargs="+", choices=everything, default=["digits"], metavar="NAME")
    parser.add_argument("--noises", nargs="+", choices=list(noises.NOISES), default=list(noises.NOISES), metavar="NAME")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", default="0/1", help="I/N: every N-th result, from the I-th")
    parser.add_argument("--render", action="store_true", help="only make the tables of the lines that are there")
    parser.add_argument("--quick", action="store_true", help="two epochs, one seed and noise, to see that it runs")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(seeds=1, noises=["pair"], output=options.output / "quick")
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = options_of()
    if not options.render:
        run(options)
    render(options.output)


if __name__ == "__main__":
    main()
