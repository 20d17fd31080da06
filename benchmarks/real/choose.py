"""`choose` and `clean_labels` on features with labels of people and rules, beside what a careful person would take.

python -m benchmarks.real.choose [--sets NAME ...] [--rows NAME ...] [--seeds 3] [--size 8000] [--data FOLDER]
                                 [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Accuracy on true test labels; no clean label is in any choice. Every row gets the same noisy labels; those that need
validation labels take a tenth of them.
"""

import functools
import time

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import data, features, plain
from keras_het.training import DEFAULTS, Candidate, Heteroscedastic, choose, clean_labels

EPOCHS, FOLDS = 50, 3
SETS = tuple(data.SETS)
REFERENCE = "Dense, early stopping"


class Tempered(Candidate):
    """Crossentropy of a Dense head whose logits are divided by a temperature: smaller steps, and less certainty."""

    name, strengths = "tempered Dense", (5.0, 20.0)

    def head(self, task, strength):
        """Logits over the temperature."""
        return [keras.layers.Dense(task.units, **task.head_options), keras.layers.Rescaling(1.0 / strength)]


def chosen(x, y, seed, epochs, **arguments):
    """The model that `choose` chooses, and its name."""
    found = choose(None, x, y, epochs=epochs, folds=FOLDS, seed=seed, verbose=0, **arguments)
    return found.model, found.name


def cleaned(x, y, seed, epochs):
    """The model that `clean_labels` trains."""
    return clean_labels(None, x, y, epochs=epochs, folds=FOLDS, seed=seed, verbose=0).model, ""


def by_regression(x, y, units, queries, seed):
    """Classes by logistic regression, C by a tenth of the labels."""
    train, held = plain.split(y, seed)
    (log_p,), c = plain.logistic_regression(x[train], y[train], x[held], y[held], queries)
    return np.unique(y[train])[log_p.argmax(axis=1)], f"C = {c}"


MODELS = {
    REFERENCE: lambda *task: chosen(*task, candidates=()),
    "choose": chosen,
    "choose, with tempered Dense": lambda *task: chosen(*task, candidates=[*DEFAULTS, Tempered()]),
    "choose, with tempered Dense and the head": lambda *task: chosen(
        *task, candidates=[*DEFAULTS, Tempered(), Heteroscedastic()]
    ),
    "clean_labels": cleaned,
}
PLAIN = {
    "logistic regression": by_regression,
    "nearest class mean": lambda x, y, units, queries, seed: (plain.nearest_means(x, y, units, queries).argmax(1), ""),
    "ten neighbours": lambda x, y, units, queries, seed: (plain.neighbour_votes(x, y, units, queries).argmax(1), ""),
}
ROWS = (*PLAIN, *MODELS)


def measured(options, name, seed, row):
    """The line of a set, seed and row."""
    found = features.of(name, options.data, options.cache, seed)
    picked = np.random.default_rng([seed, 4]).permutation(len(found.labels))[: options.size]
    x, queries = plain.standardized(found.x[picked], found.x_test)
    y, start = found.labels[picked].astype(int), time.process_time()
    if row in PLAIN:
        labels, note = PLAIN[row](x, y, found.units, queries, seed)
    else:
        model, note = MODELS[row](x, y, seed, options.epochs)
        labels = np.unique(y)[model.predict(queries, batch_size=2048, verbose=0).argmax(axis=1)]
        keras.utils.clear_session(free_memory=False)
    accuracy = float(np.mean(labels == found.truth_test))
    yield {"accuracy": accuracy, "chosen": note, "processor": time.process_time() - start}


def gains(found):
    """A row for each set: accuracies, and the points of the others over the reference, seed by seed."""
    table = [["set", *ROWS]]
    for name in lines.distinct(found, "set"):
        own = lines.select(found, set=name)
        table.append([name, *(lines.with_error([x["accuracy"] for x in lines.select(own, row=row)]) for row in ROWS)])
    return table


def differences(found, best):
    """A row for each set: the points of each row over the best plain one of each seed, mean and standard error."""
    table = [["set", "the best of the plain rows", *MODELS]]
    for name in lines.distinct(found, "set"):
        own = lines.select(found, set=name)
        seeds = [seed for seed in lines.distinct(own, "seed") if len(lines.select(own, seed=seed)) == len(ROWS)]
        of_seed = [{line["row"]: line["accuracy"] for line in lines.select(own, seed=seed)} for seed in seeds]
        if of_seed:
            plain_row = max(best, key=lambda row: np.mean([each[row] for each in of_seed]))
            values = [lines.with_error([100 * (each[row] - each[plain_row]) for each in of_seed]) for row in MODELS]
            table.append([name, plain_row, *values])
    return table


def chosen_names(found):
    """What was chosen, and processor seconds."""
    table = [["set", "row", "chosen", "processor seconds"]]
    for name in lines.distinct(found, "set"):
        for row in ROWS:
            if own := lines.select(found, set=name, row=row):
                names = [line["chosen"] for line in own]
                counts = "; ".join(f"{each} {names.count(each)}" for each in dict.fromkeys(filter(None, names)))
                table.append([name, row, counts, f"{np.median([line['processor'] for line in own]):.1f}"])
    return table


def main():
    """Runs what is missing, and makes the tables."""
    parser = features.experiment(__doc__, SETS, seeds=3, size=8000)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    options = parser.parse_args()
    options.epochs = EPOCHS
    if options.quick:
        options.size, options.epochs, options.seeds = 500, 5, 1
    options.output.mkdir(parents=True, exist_ok=True)
    keys = [
        {"set": name, "seed": seed, "row": row}
        for name in options.sets
        for seed in range(options.seeds)
        for row in options.rows
    ]
    found = lines.read(options.output, "real_choose.jsonl")
    if not options.render:
        make = functools.partial(measured, options)
        found = lines.completed(options.output / "real_choose.jsonl", keys, make)
    tables = {
        "accuracy on true test labels": gains(found),
        "points over the best plain row": differences(found, (*PLAIN, REFERENCE)),
        "what was chosen": chosen_names(found),
    }
    publish(options.output, "real_choose", tables, sorted(lines.distinct(found, "seed")))


if __name__ == "__main__":
    main()
