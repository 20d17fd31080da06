"""Label errors that one training run finds, beside cross-validation and cleanlab.

python -m benchmarks.labels.dynamics [--data digits ...] [--seeds 5] [--output FOLDER] [--quick] [--render]

Each method ranks the labels of a training set and flags some. The true classes are only measured:

* average precision of the ranking; chance has the rate of label errors;
* missed: the fraction of the label errors that is not among as many of the worst labels;
* precision and recall of the flagged labels;
* seconds, with the training.

Methods are `find_issues` by one training of all epochs; by five folds of a third of the epochs, before the models
memorise the labels; and cleanlab by the same probabilities. The ranking of one training has further cuts: below 0, two
components (the threshold with the least variance within two groups), confident learning of its mean probabilities, and
a training with an additional class for a fraction 1 / (K + 1) of the examples, whose 99th percentile is the threshold
(Pleiss et al. 2020).

Results are JSON lines, one for each cell. A later run adds what is missing.
"""

import time

import keras
import numpy as np

from benchmarks.lib import harness, lines, noises
from benchmarks.lib.results import publish
from benchmarks.lib.trials import BATCH, make_model

NOISES, FOLDS = ("symmetric", "pair", "look-alike", "none"), 5
RUN, OWN_CLASS = "one training, mean margin", "its cut: a class of its own"
MEASURES = ("average precision", "missed", "precision", "recall", "seconds")


def one_training(task, seed):
    """Returns the callback and the model of one training run on noisy labels."""
    from keras_het.callbacks import TrainingDynamics

    dynamics = TrainingDynamics(*task.train, batch_size=1024)
    model = make_model(task, seed)
    model.fit(*task.train, batch_size=BATCH, epochs=task.epochs, verbose=0, callbacks=[dynamics])
    return dynamics, model


def cross_validate(task, seed):
    """Returns out-of-sample probabilities."""
    from keras_het.labels import clean

    arguments = {"epochs": max(1, task.epochs // 3), "folds": FOLDS, "batch_size": BATCH, "verbose": 0}
    return clean(lambda: make_model(task, seed), *task.train, action="keep", seed=seed, **arguments).probabilities


def own_class(task, seed):
    """Returns indices and mean margins of examples that kept their label, and the threshold by the other examples."""
    x, y = task.train
    chosen = np.random.default_rng([seed, 4]).random(len(y)) < 1 / (task.units + 1)
    task = task._replace(train=type(task.train)(x, np.where(chosen, task.units, y)), units=task.units + 1)
    margins = one_training(task, seed)[0].mean_margin
    return margins[~chosen], ~chosen, np.percentile(margins[chosen], 99)


def two_components(values):
    """Returns the threshold with the least variance within two groups (Otsu 1979)."""
    values = np.sort(values)
    below = np.arange(1, len(values))
    sums = np.cumsum(values)
    gap = sums[:-1] / below - (sums[-1] - sums[:-1]) / (len(values) - below)
    best = np.argmax(below * (len(values) - below) * gap**2)
    return (values[best] + values[best + 1]) / 2


def figures(data, noise, seed, epochs=None):
    """Yields a dict for each method."""
    from keras_het.labels import find_issues

    keras.utils.clear_session(free_memory=False)
    task = noises.make(data, noise, seed)
    task = task._replace(epochs=epochs or task.epochs)
    _, y = task.train
    wrong = y != task.truth.labels
    (dynamics, _), seconds = timed(one_training, task, seed)
    yield row(RUN, wrong, find_issues(dynamics), seconds)
    margins = dynamics.mean_margin
    yield cut("its cut: a mean margin of 0", wrong, margins, margins < 0, seconds)
    yield cut("its cut: two components", wrong, margins, margins < two_components(margins), seconds)
    issues = find_issues(dynamics.mean_probabilities.astype("float64"), y)
    yield cut("its cut: confident learning", wrong, margins, issues.is_issue[np.argsort(issues.index)], seconds)
    (margins, kept, threshold), more = timed(own_class, task, seed)
    yield cut(OWN_CLASS, wrong[kept], margins, margins < threshold, more)
    p, seconds_of_folds = timed(cross_validate, task, seed)
    yield row("five folds, confident learning", wrong, find_issues(p, y), seconds_of_folds)
    if (flags := cleanlab_flags(y, p)) is not None:
        yield cut("five folds, cleanlab", wrong, p[np.arange(len(p)), y], flags, seconds_of_folds)


def timed(function, *arguments):
    """Returns the result of a function, and its seconds."""
    start = time.perf_counter()
    return function(*arguments), time.perf_counter() - start


def row(method, wrong, issues, seconds):
    """Returns the scores of `LabelIssues`, whose order is the ranking."""
    scores = np.empty(len(wrong))
    scores[issues.index] = np.arange(len(wrong)) if method == RUN else issues.score
    flags = np.empty(len(wrong), bool)
    flags[issues.index] = issues.is_issue
    return cut(method, wrong, scores, flags, seconds)


def cut(method, wrong, scores, flags, seconds):
    """Returns the scores of a ranking and a cut. Without label errors, only the fraction of flagged labels counts."""
    named = {"method": method, "wrong": float(wrong.mean()), "flagged": float(flags.mean()), "seconds": seconds}
    if not wrong.any():
        return named
    worst = np.argsort(scores, kind="stable")[: wrong.sum()]
    return named | quality(wrong, np.arange(len(wrong)), scores, flags) | {"missed": float(1 - wrong[worst].mean())}


def quality(wrong, index, score, is_issue):
    """Returns average precision of the ranking, precision and recall of the cut, and the rate of label errors."""
    from sklearn.metrics import average_precision_score, precision_score, recall_score

    wrong = wrong[index]
    return {
        "wrong": float(wrong.mean()),
        "average precision": float(average_precision_score(wrong, -score)),
        "precision": float(precision_score(wrong, is_issue, zero_division=0)),
        "recall": float(recall_score(wrong, is_issue)),
    }


def cleanlab_flags(labels, p):
    """Returns a mask of the labels that cleanlab flags, or None if it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return None
    return find_label_issues(labels, p, n_jobs=1)


def tables(rows):
    """Returns a table for each data: means with standard errors, and gains over one training, seed by seed."""
    result = {}
    for data in lines.distinct(rows, "data"):
        data_rows = lines.select(rows, data=data)
        table = [["noise (wrong)", "method", *MEASURES]]
        for noise in [noise for noise in lines.distinct(data_rows, "noise") if noise != "none"]:
            noise_rows = lines.select(data_rows, noise=noise)
            share = np.mean([line["wrong"] for line in noise_rows])
            for method in lines.distinct(noise_rows, "method"):
                name = f"{noise} ({share:.0%})" if method == RUN else ""
                table.append([name, method, *(cell(noise_rows, method, measure) for measure in MEASURES)])
        result[f"wrong labels that are found, {data}"] = table
        if none := lines.select(data_rows, noise="none"):
            result[f"labels that are called wrong where none is, {data}"] = [
                ["method", "share"],
                *([method, lines.with_error(of(none, method, "flagged"))] for method in lines.distinct(none, "method")),
            ]
    return result


def of(rows, method, measure):
    """Returns the values of a method over the seeds."""
    return np.array([line[measure] for line in lines.select(rows, method=method)])


def cell(rows, method, measure):
    """Returns the mean of one training, or the difference to it, bold beyond two standard errors."""
    values, base = of(rows, method, measure), of(rows, RUN, measure)
    if measure == "seconds":
        return f"{values.mean():.1f}"
    if method == RUN or len(values) != len(base):
        return lines.with_error(values)
    return lines.gain(values - base)


def main():
    parser = harness.experiment(harness.parser_of(__doc__), data=["digits"], seeds=1, epochs=3)
    parser.add_argument("--data", nargs="+", choices=list(noises.DATA), default=list(noises.DATA))
    parser.add_argument("--seeds", type=int, default=5)
    parser.set_defaults(epochs=None)
    options = parser.parse_args()
    keys = [
        {"data": data, "noise": noise, "seed": seed}
        for data in ([] if options.render else options.data)
        for seed in range(options.seeds)
        for noise in NOISES
    ]
    rows = lines.completed(options.output / "dynamics.jsonl", keys, lambda *key: figures(*key, options.epochs))
    packages = [keras.config.backend(), *(["cleanlab"] if any("cleanlab" in row["method"] for row in rows) else [])]
    publish(options.output, "dynamics", tables(rows), sorted({row["seed"] for row in rows}), packages)


if __name__ == "__main__":
    main()
