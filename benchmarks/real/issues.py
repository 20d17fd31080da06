"""Label errors that `labels.find_issues` and `labels.clean` find, beside cleanlab and simple baselines.

python -m benchmarks.real.issues [--sets NAME ...] [--seeds 3] [--size 8000] [--data FOLDER] [--cache FOLDER]
                                 [--output FOLDER] [--quick] [--render]

The examples are features of pretrained networks. Precision, recall and F1 score the flagged labels. "F1 at the rate"
flags as many of the worst scores as there are label errors, and average precision scores the order alone. The rows
"vote" and "argmax" flag every label that differs from the first choice of ten neighbours, or of logistic regression out
of sample. Self-confidence has no row, because it orders labels as "logistic regression, argmax" does. A person's label
is correct if it equals the label of the original data set.

`TrainingDynamics` watches 16 epochs of a Dense layer, or of two with 128 units between them. The rows "all epochs
alike" flag labels with a mean margin below 0, with equal weights for all epochs, as in Pleiss et al. 2020.

Rows that are in the file are not made again, so you can install cleanlab later. If rows share a training, the first of
them has its seconds.
"""

import functools
import importlib.util
import time

import numpy as np

from benchmarks.lib import experiments, lines
from benchmarks.real import data, features, plain

FOLDS, WATCHED, HIDDEN = 5, 16, 128  # WATCHED: epochs of a training with `TrainingDynamics`
SETS = tuple(data.SETS)


def folds_of(count, seed):
    """Returns a fold for each example."""
    return np.random.default_rng([seed, 3]).permutation(count) % FOLDS


def regression(x, y, units, seed):
    """Returns out-of-sample probabilities by logistic regression, `(N, K)`. The next fold chooses C."""
    fold, p = folds_of(len(y), seed), np.full((len(y), units), 1e-6)
    for place in range(FOLDS):
        held, choice = fold == place, fold == (place + 1) % FOLDS
        rest = ~held & ~choice
        (log_p,), _ = plain.logistic_regression(x[rest], y[rest], x[choice], y[choice], x[held])
        known = np.unique(y[rest])
        p[np.ix_(held, known)] = np.maximum(np.exp(log_p), 1e-6)
    return p / p.sum(axis=1, keepdims=True)


def first_choice(y, p):
    """Returns whether the label differs from the most probable class, and the probability of the label."""
    return p.argmax(axis=1) != y, p[np.arange(len(y)), y]


def sorted_back(issues):
    """Returns the flags and scores of a `LabelIssues` in the order of the examples."""
    order = np.argsort(issues.index)
    return issues.is_issue[order], issues.score[order]


class Evidence:
    """Probabilities and records that the finders read, each computed on first use.

    Args:
        x: features, standardized.
        y: labels.
        units: K.
        seed: integer for the folds and the trainings.
    """

    def __init__(self, x, y, units, seed):
        self.x, self.y, self.units, self.seed = x, y, units, seed

    @functools.cached_property
    def votes(self):
        """Fractions of the labels among ten neighbours."""
        return plain.neighbour_votes(self.x, self.y, self.units)

    @functools.cached_property
    def regression(self):
        """Probabilities by logistic regression."""
        return regression(self.x, self.y, self.units, self.seed)

    @functools.cached_property
    def cleaned(self):
        """Result of `labels.clean`."""
        from keras_het.labels import clean

        return clean(None, self.x, self.y, folds=FOLDS, seed=self.seed, verbose=0)

    @functools.cached_property
    def linear(self):
        """Record of the training of a Dense layer that starts at zero."""
        import keras

        return self.watched(3e-3, keras.layers.Dense(self.units, kernel_initializer="zeros"))

    @functools.cached_property
    def hidden(self):
        """Record of the training of two Dense layers."""
        import keras

        return self.watched(1e-3, keras.layers.Dense(HIDDEN, "relu"), keras.layers.Dense(self.units))

    def watched(self, rate, *layers):
        """Returns a `TrainingDynamics` after the training of these layers."""
        import keras

        from keras_het.callbacks import TrainingDynamics

        keras.utils.set_random_seed(self.seed)
        model = keras.Sequential([keras.Input(self.x.shape[1:]), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate), loss)
        dynamics = TrainingDynamics(self.x, self.y, batch_size=2048)
        model.fit(self.x, self.y, batch_size=128, epochs=WATCHED, verbose=0, callbacks=[dynamics])
        return dynamics


def issues(*arguments, **named):
    """Returns the flags and scores of `find_issues`."""
    from keras_het.labels import find_issues

    return sorted_back(find_issues(*arguments, **named))


def alike(dynamics):
    """Returns the flags of a mean margin below 0, with equal weights for all epochs, and this margin."""
    mean = dynamics.margins.mean(axis=0, dtype="float64")
    return mean < 0, mean


def cleanlab_issues(y, p):
    """Returns the flags and scores of cleanlab."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    return find_label_issues(y, p, n_jobs=1), get_label_quality_scores(y, p)


FINDERS = {  # flags and scores by row, of an `Evidence`
    "vote of ten neighbours": lambda evidence: first_choice(evidence.y, evidence.votes),
    "logistic regression, argmax": lambda evidence: first_choice(evidence.y, evidence.regression),
    "logistic regression, find_label_issues": lambda evidence: issues(evidence.regression, evidence.y),
    "logistic regression, cleanlab": lambda evidence: cleanlab_issues(evidence.y, evidence.regression),
    "clean": lambda evidence: sorted_back(evidence.cleaned.issues),
    "TrainingDynamics": lambda evidence: issues(evidence.linear),
    "TrainingDynamics, all epochs alike": lambda evidence: alike(evidence.linear),
    "TrainingDynamics, 128 units": lambda evidence: issues(evidence.hidden),
    "TrainingDynamics, 128 units, all epochs alike": lambda evidence: alike(evidence.hidden),
}


def rows():
    """Returns the finders whose packages are installed."""
    there = importlib.util.find_spec("cleanlab") is not None
    return [row for row in FINDERS if there or "cleanlab" not in row]


def detection_scores(flags, scores, wrong):
    """Returns precision, recall, F1, F1 at the true rate and average precision."""
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


@functools.lru_cache(1)
def evidence(name, seed, size, *folders):
    """Returns the `Evidence` of a set, and whether each label is wrong."""
    dataset = features.of(name, *folders, seed)
    chosen = np.random.default_rng([seed, 4]).permutation(len(dataset.labels))[:size]
    (x,) = plain.standardized(dataset.x[chosen])
    y, wrong = dataset.labels[chosen].astype(int), dataset.labels[chosen] != dataset.truth[chosen]
    return Evidence(x, y, dataset.units, seed), wrong


def measured(options, name, seed, row):
    """Yields the line of a finder on a set."""
    own, wrong = evidence(name, seed, options.size, options.data, options.cache)
    start = time.process_time()
    flags, scores = FINDERS[row](own)
    yield {**detection_scores(flags, scores, wrong), "processor": time.process_time() - start}


def table(records):
    """Returns a row for each finder: the means over the seeds."""
    names = ("precision", "recall", "F1", "F1 at the rate", "average precision", "named", "wrong")
    rows = [["finder", *names, "processor seconds"]]
    for row in [row for row in FINDERS if lines.select(records, row=row)]:
        own = lines.select(records, row=row)
        rows.append([row, *lines.means(own, names), f"{np.median([line['processor'] for line in own]):.1f}"])
    return rows


def set_table(records, measure):
    """Returns the means of a measure over the seeds: a row for each finder, a column for each set."""
    names = [name for name in SETS if lines.select(records, set=name)]
    rows = [["finder", *names]]
    for row in [row for row in FINDERS if lines.select(records, row=row)]:
        values = [[line[measure] for line in lines.select(records, set=name, row=row)] for name in names]
        rows.append([row, *(f"{np.mean(value):.3f}" if value else "" for value in values)])
    return rows


def tables(records):
    """Returns two measures of all sets, and a table for each set."""
    made = {measure: set_table(records, measure) for measure in ("F1", "average precision")}
    return made | {name: table(lines.select(records, set=name)) for name in SETS if lines.select(records, set=name)}


def main():
    options = {"sets": SETS, "seeds": 3, "size": 8000} | features.FOLDERS
    quick, fixed = {"size": 500, "seeds": 1}, {"rows": rows()}
    experiments.run(__doc__, "real_issues", measured, tables, options, quick, fixed, settings=("size",))


if __name__ == "__main__":
    main()
