"""Which labels are wrong? The finders of the package on labels of people and rules, beside plain ones.

python -m benchmarks.real.issues [--sets NAME ...] [--seeds 3] [--size 8000] [--data FOLDER] [--cache FOLDER]
                                 [--output FOLDER] [--quick] [--render]

The examples are features of pretrained networks. Precision, recall and F1 are of the labels that a finder names; "F1 at
the rate" is of as many of its worst scores as labels are wrong; the average precision is of its order alone. The rows
"vote" and "argmax" name every label that is not the first choice: of ten neighbours, of logistic regression out of
sample. A label of a person is right if it is that of the original data set.
"""

import time

import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import data, features, plain

EPOCHS, FOLDS = 50, 5
SETS = tuple(data.SETS)


def folds_of(count, seed):
    """A fold for each example."""
    return np.random.default_rng([seed, 3]).permutation(count) % FOLDS


def regression(x, y, units, seed):
    """Probabilities out of sample by logistic regression, `(N, K)`; C by the accuracy on the next fold."""
    fold, p = folds_of(len(y), seed), np.full((len(y), units), 1e-6)
    for place in range(FOLDS):
        held, choice = fold == place, fold == (place + 1) % FOLDS
        rest = ~held & ~choice
        (log_p,), _ = plain.logistic_regression(x[rest], y[rest], x[choice], y[choice], x[held])
        known = np.unique(y[rest])
        p[np.ix_(held, known)] = np.maximum(np.exp(log_p), 1e-6)
    return p / p.sum(axis=1, keepdims=True)


def first_choice(y, p):
    """Whether the label is another than the most probable one, and its probability, low for a wrong one."""
    return p.argmax(axis=1) != y, p[np.arange(len(y)), y]


def sorted_back(issues):
    """What a `LabelIssues` names, and its scores, in the order of the examples."""
    order = np.argsort(issues.index)
    return issues.is_issue[order], issues.score[order]


def finders(x, y, units, seed, epochs):
    """Yields name, flags, scores and processor seconds of each finder."""
    from keras_het import clean_labels
    from keras_het.analysis import find_label_issues

    start = time.process_time()

    def taken():
        nonlocal start
        start, before = time.process_time(), start
        return start - before

    shares = plain.neighbour_votes(x, y, units, x, leave_out=True)
    yield "vote of ten neighbours", *first_choice(y, shares), taken()
    yield "find_label_issues(features=)", *sorted_back(find_label_issues(labels=y, features=x)), taken()
    p = regression(x, y, units, seed)
    yield "logistic regression, argmax", *first_choice(y, p), taken()
    yield "logistic regression, find_label_issues", *sorted_back(find_label_issues(p, y)), taken()
    if (found := of_cleanlab(y, p)) is not None:
        yield "logistic regression, cleanlab", *found, taken()
    found = clean_labels(None, x, y, folds=FOLDS, seed=seed, verbose=0)
    yield "clean_labels", *sorted_back(found.issues), taken()
    yield "clean_labels, argmax", *first_choice(y, found.probabilities), taken()


def of_cleanlab(y, p):
    """What cleanlab names, and its scores; None where it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return None
    return find_label_issues(y, p), get_label_quality_scores(y, p)


def judged(flags, scores, wrong):
    """Precision, recall, F1, F1 at the true rate and average precision."""
    from sklearn.metrics import average_precision_score

    hits, worst = float(np.sum(flags & wrong)), np.argsort(scores, kind="stable")[: wrong.sum()]
    return {
        "precision": hits / max(flags.sum(), 1),
        "recall": hits / wrong.sum(),
        "F1": 2 * hits / (flags.sum() + wrong.sum()),
        "F1 at the rate": float(wrong[worst].mean()),
        "average precision": float(average_precision_score(wrong, -scores)),
        "named": float(flags.mean()),
        "wrong": float(wrong.mean()),
    }


def measured(name, seed, options):
    """The lines of a set."""
    found = features.of(name, options.data, options.cache, seed)
    chosen = np.random.default_rng([seed, 4]).permutation(len(found.labels))[: options.size]
    (x,) = plain.standardized(found.x[chosen])
    y, wrong = found.labels[chosen].astype(int), found.labels[chosen] != found.truth[chosen]
    for row, flags, scores, seconds in finders(x, y, found.units, seed, options.epochs):
        yield {"row": row, **judged(flags, scores, wrong), "processor": seconds}


def table(found):
    """A row for each finder: the means over the seeds."""
    names = ("precision", "recall", "F1", "F1 at the rate", "average precision", "named", "wrong")
    rows = [["finder", *names, "processor seconds"]]
    for row in lines.distinct(found, "row"):
        own = lines.select(found, row=row)
        values = [lines.with_error([line[name] for line in own]) for name in names]
        rows.append([row, *values, f"{np.median([line['processor'] for line in own]):.1f}"])
    return rows


def main():
    """Runs what is missing, and makes the tables."""
    parser = features.experiment(__doc__, SETS, seeds=3, size=8000)
    options = parser.parse_args()
    options.epochs = EPOCHS
    if options.quick:
        options.size, options.epochs, options.seeds = 500, 5, 1
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "real_issues.jsonl"
    keys = [{"set": name, "seed": seed} for name in options.sets for seed in range(options.seeds)]
    found = lines.read(options.output, file.name)
    if not options.render:
        found = lines.completed(file, keys, lambda name, seed: measured(name, seed, options))
    tables = {name: table(lines.select(found, set=name)) for name in lines.distinct(found, "set")}
    publish(options.output, "real_issues", tables, sorted(lines.distinct(found, "seed")))


if __name__ == "__main__":
    main()
