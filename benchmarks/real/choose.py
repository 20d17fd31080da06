"""Accuracy of `labels.choose` and `labels.clean` on features, beside careful baselines.

python -m benchmarks.real.choose [--sets NAME ...] [--rows NAME ...] [--seeds 3] [--size 8000] [--data FOLDER]
                                 [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Accuracy is on true test labels; clean labels choose nothing. Every row gets the same noisy labels. Methods that need
validation labels use a tenth of them.
"""

import functools
import time

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import data, features, plain
from keras_het.labels import choose, clean

EPOCHS, FOLDS = 50, 3
REFERENCE = "Dense, early stopping"
DECIDED = ("CIFAR-10N aggregate", "CIFAR-10N worst", "LabelMe", "TREC", "Hausa")  # sets that decided the rule


def chosen(x, y, seed, epochs, **arguments):
    """Returns the model that `choose` picks, and its name."""
    result = choose(None, x, y, epochs=epochs, folds=FOLDS, seed=seed, verbose=0, **arguments)
    return result.model, result.name


def cleaned(x, y, seed, epochs, action=None):
    """Returns the model that `labels.clean` trains."""
    return clean(None, x, y, action=action, seed=seed, verbose=0).model, ""


def regression_classes(x, y, queries, seed):
    """Returns classes by logistic regression. A tenth of the labels chooses C."""
    train, held = plain.split(y, seed)
    (log_p,), c = plain.logistic_regression(x[train], y[train], x[held], y[held], queries)
    return np.unique(y[train])[log_p.argmax(axis=1)], f"C = {c}"


def discriminant_classes(x, y, queries, seed):
    """Returns classes by linear discriminant analysis. A tenth of the labels chooses the shrinkage."""
    train, held = plain.split(y, seed)
    (labels,), shrinkage = plain.linear_discriminant(x[train], y[train], x[held], y[held], queries)
    return labels, f"shrinkage {shrinkage}"


def mean_classes(x, y, queries, seed):
    """Returns classes by the nearest mean of a class."""
    from sklearn.neighbors import NearestCentroid

    return NearestCentroid().fit(x, y).predict(queries), ""


def neighbour_classes(x, y, queries, seed):
    """Returns classes by the vote of ten neighbours, by cosine."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(plain.NEIGHBOURS, metric="cosine").fit(x, y).predict(queries), ""


MODELS = {
    REFERENCE: lambda *task: chosen(*task, methods=()),
    "choose": chosen,
    "clean": cleaned,
    "clean, drop": functools.partial(cleaned, action="drop"),
}
PLAIN = {
    "logistic regression": regression_classes,
    "linear discriminant": discriminant_classes,
    "nearest class mean": mean_classes,
    "ten neighbours": neighbour_classes,
}
ROWS = (*PLAIN, *MODELS)


def measured(options, name, seed, row):
    """Returns the line of a set, seed and row."""
    dataset = features.of(name, options.data, options.cache, seed)
    picked = np.random.default_rng([seed, 4]).permutation(len(dataset.labels))[: options.size]
    x, queries = plain.standardized(dataset.x[picked], dataset.x_test)
    y, start = dataset.labels[picked].astype(int), time.process_time()
    if row in PLAIN:
        labels, note = PLAIN[row](x, y, queries, seed)
    else:
        model, note = MODELS[row](x, y, seed, options.epochs)
        labels = np.unique(y)[model.predict(queries, batch_size=2048, verbose=0).argmax(axis=1)]
        keras.utils.clear_session(free_memory=False)
    accuracy = float(np.mean(labels == dataset.truth_test))
    yield {"accuracy": accuracy, "chosen": note, "processor": time.process_time() - start}


def gains(records):
    """Returns accuracies, a row for each set. The last column has the best row of each seed in hindsight."""
    rows = [row for row in ROWS if lines.select(records, row=row)]
    table = [["set", *rows, "the best by the test"]]
    for name in lines.distinct(records, "set"):
        own = lines.select(records, set=name)
        values = [[line["accuracy"] for line in lines.select(own, row=row)] for row in rows]
        best = [max(line["accuracy"] for line in lines.select(own, seed=seed)) for seed in lines.distinct(own, "seed")]
        table.append([name, *map(lines.with_error, [*values, best])])
    return table


def differences(records, reference=None):
    """Returns for each set the points of each row over another of the same seed, mean and standard error.

    Args:
        records: lines.
        reference: name of the other row; None for the plain one that is best on the test.
    """
    title, plain_rows = "the best of the plain rows" if reference is None else "over", (*PLAIN, REFERENCE)
    compared = MODELS if reference is None else ROWS
    table = [["set", title, *(row for row in compared if row != reference and lines.select(records, row=row))]]
    for name in lines.distinct(records, "set"):
        scores = {
            row: {line["seed"]: line["accuracy"] for line in lines.select(records, set=name, row=row)} for row in ROWS
        }
        mean = {row: np.mean([*scores[row].values()]) for row in plain_rows if scores[row]}
        other = max(mean, key=mean.get, default=None) if reference is None else reference
        if not scores.get(other):  # a run of some rows alone
            continue
        values = [
            [100 * (value - scores[other][seed]) for seed, value in scores[row].items() if seed in scores[other]]
            for row in table[0][2:]
        ]
        table.append([name, other, *(lines.with_error(each) if each else "" for each in values)])
    return table


def chosen_names(records):
    """Returns the choices and their processor seconds."""
    table = [["set", "row", "chosen", "processor seconds"]]
    for name in lines.distinct(records, "set"):
        for row in ROWS:
            if own := lines.select(records, set=name, row=row):
                names = [line["chosen"] for line in own]
                counts = "; ".join(f"{each} {names.count(each)}" for each in dict.fromkeys(filter(None, names)))
                table.append([name, row, counts, f"{np.median([line['processor'] for line in own]):.1f}"])
    return table


def main():
    """Runs what is missing, and makes the tables."""
    quick = {"size": 500, "epochs": 5, "seeds": 1}
    parser = features.experiment(__doc__, tuple(data.SETS), quick, seeds=3, size=8000)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.set_defaults(epochs=EPOCHS)
    options = parser.parse_args()
    keys = [
        {"set": name, "seed": seed, "row": row}
        for name in options.sets
        for seed in range(options.seeds)
        for row in options.rows
    ]
    records = features.records(options, "real_choose", keys, functools.partial(measured, options), size=options.size)
    halves = {
        "sets that decided": [line for line in records if line["set"] in DECIDED],
        "sets that had no say": [line for line in records if line["set"] not in DECIDED],
    }
    tables = {}
    for title, own in ((title, own) for title, own in halves.items() if own):
        tables[f"accuracy, {title}"] = gains(own)
        tables[f"points over the best plain row, {title}"] = differences(own)
        tables[f"points over Dense, {title}"] = differences(own, REFERENCE)
    tables["what was chosen"] = chosen_names(records)
    publish(options.output, "real_choose", tables, sorted(lines.distinct(records, "seed")))


if __name__ == "__main__":
    main()
