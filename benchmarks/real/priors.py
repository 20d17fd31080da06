"""Class frequencies in the linear discriminant: none, all, or as held-out labels choose.

python -m benchmarks.real.priors [--sets NAME ...] [--seeds 3] [--size 4000] [--data FOLDER] [--cache FOLDER]
                                 [--output FOLDER] [--quick] [--render]

Accuracy is on true test labels, on the sets with labels by people and rules, and on two normal classes in ten
dimensions with flips, of which one is rare.
"""

import functools

import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import data, features
from keras_het.labels.discriminant import discriminant, scaling

PRIORS = {"equal": False, "frequencies": True, "chosen": None}
PLANTED = {
    f"{rate:.0%} rare, {flips:.0%} flips, distance {distance}": (rate, flips, distance)
    for distance in (1.5, 2.5, 4.0)
    for rate in (0.03, 0.1, 0.2)
    for flips in (0.0, 0.1)
}
SETS = (*data.SETS, *PLANTED)
OTHER = "scikit-learn"
SHRINKAGES = (0.9, 0.5, 0.1)


def planted(rate, flips, distance, seed, size=1000, test=20_000):
    """Returns two classes with means at a distance, in standard deviations."""
    rng = np.random.default_rng([seed, 60])
    truth = (rng.random(size + test) < rate).astype(int)
    x = rng.normal(size=(size + test, 10)).astype("float32")
    x[:, 0] += distance * truth
    labels = np.where(rng.random(size) < flips, 1 - truth[:size], truth[:size])
    return data.Set(x[:size], labels, truth[:size], x[size:], truth[size:], None, None, 2)


def scikit_learn_accuracy(x, labels, queries, truth):
    """Returns the accuracy of the best shrinkage by the test, with the frequencies as priors."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as Other

    return max(Other(solver="lsqr", shrinkage=a).fit(x, labels).score(queries, truth) for a in SHRINKAGES)


def measured(options, name, seed):
    """Returns the line of a set and seed."""
    is_planted = name in PLANTED
    dataset = planted(*PLANTED[name], seed) if is_planted else features.of(name, options.data, options.cache, seed)
    picked = np.random.default_rng([seed, 4]).permutation(len(dataset.labels))[: options.size]
    x, (classes, labels) = dataset.x[picked], np.unique(dataset.labels[picked], return_inverse=True)
    scale = scaling(x)
    queries, line = (
        scale(dataset.x_test),
        {"largest": float(np.bincount(dataset.truth_test).max() / len(dataset.truth_test))},
    )
    for row, frequencies in PRIORS.items():
        fitted = discriminant(x, labels, len(classes), None, scale, frequencies)
        line[row] = float(np.mean(classes[fitted.logits(queries).argmax(axis=1)] == dataset.truth_test))
    yield line | ({OTHER: scikit_learn_accuracy(x, labels, dataset.x_test, dataset.truth_test)} if is_planted else {})


def table(records):
    """Returns a row for each set."""
    columns = [name for name in ("largest", *PRIORS, OTHER) if any(name in line for line in records)]
    rows = [[name, *(lines.with_error([line[row] for line in lines.select(records, set=name)]) for row in columns)]
            for name in lines.distinct(records, "set")]  # fmt: skip
    return [["set", *(name.replace("largest", "largest class") for name in columns)], *rows]


def main():
    """Runs the missing rows, and makes the tables."""
    options = features.experiment(__doc__, SETS, {"size": 500, "seeds": 1}, seeds=3, size=4000).parse_args()
    keys = [{"set": name, "seed": seed} for name in options.sets for seed in range(options.seeds)]
    make = functools.partial(measured, options)
    records = features.records(options, "real_priors", keys, make, size=options.size)
    parts = {"labels of people and rules": data.SETS, "planted": PLANTED}
    tables = {title: table([line for line in records if line["set"] in names]) for title, names in parts.items()}
    publish(options.output, "real_priors", tables, sorted(lines.distinct(records, "seed")))


if __name__ == "__main__":
    main()
