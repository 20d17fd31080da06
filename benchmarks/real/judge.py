"""Intervals of the true accuracy by `labels.verify_accuracy`, beside the verified examples alone.

python -m benchmarks.real.judge [--sets NAME ...] [--splits 1] [--redraws 2000] [--size 4000] [--judged 2000]
                                [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

A logistic regression learns the labels of some examples. All other examples are the population. A redraw takes `judged`
examples of the population, with replacement, of which the first are verified: 100, or 20 for each class. The ways are

* the fraction of labels that agree with the model;
* the verified examples alone (Jeffreys' interval), and `verify_accuracy`.

Three further sets have labels made from the true classes of CIFAR-10: flips to the next class in 30% of the cases ("by
class"), flips to the model's second choice, more often if the model is less sure ("by example"), and flips to the
model's own choice in eight of ten examples on which it errs ("shared").

A further table has 200 verified examples, drawn uniformly, or more often if the prediction is less likely to be
correct, by model and label together. The probabilities are then sqrt(q (1 - q) + .05), with q by the T of
`find_issues`, and the interval uses `inclusion`.
"""

import functools
import itertools

import numpy as np

from benchmarks.lib import experiments, lines
from benchmarks.real import data, features, plain

BASE = "CIFAR-10N aggregate"
PLANTED = ("planted by class", "planted by example", "planted shared")
SETS, A_CLASS, FEW = (*data.SETS, *PLANTED), 20, 100
AGREE, ALONE, POWERED = "labels agree", "verified alone", "verify_accuracy"
WAYS = (AGREE, ALONE, POWERED)
ALIKE, UNSURE, DRAWN = "drawn alike", "drawn where unsure", 200
LABELS_RIGHT = "labels that are right"


class Population:
    """Examples that the model was not trained on: probabilities, labels, true classes, votes."""

    def __init__(self, name, split, size, *folders):
        dataset = features.of(name, *folders, split)
        there = (
            np.flatnonzero((dataset.votes >= 0).any(axis=1)) if dataset.votes is not None else np.arange(len(dataset.x))
        )
        order = np.random.default_rng([split, 7]).permutation(there)
        trained, held_out = np.split(order, [min(size, len(order) * 2 // 5)])
        x, x_held_out = plain.standardized(dataset.x[trained], dataset.x[held_out])
        self.units, self.y, self.true = dataset.units, dataset.labels[held_out].astype(int), dataset.truth[held_out]
        self.votes = dataset.votes[held_out] if dataset.votes is not None else None
        y, (train, validation) = dataset.labels[trained], plain.split(trained, split)
        (log_p,), _ = plain.logistic_regression(x[train], y[train], x[validation], y[validation], x_held_out)
        p = np.full((len(held_out), self.units), 1e-6)
        p[:, np.unique(y[train])] = np.maximum(np.exp(log_p), 1e-6)
        self.p = p / p.sum(axis=1, keepdims=True)
        self.right = self.p.argmax(axis=1) == self.true


def wilson(hits):
    """Returns the fraction of hits, and the ends of its plain 95% interval."""
    n, z, fraction = len(hits), 1.959964, hits.mean()
    centre, half = fraction + z**2 / (2 * n), z * np.sqrt(fraction * (1 - fraction) / n + z**2 / (4 * n**2))
    return fraction, (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)


def planted(of, kind, seed):
    """Returns the population with labels made from its true classes."""
    rng = np.random.default_rng([seed, 11])
    order, sampling_lines = np.argsort(-of.p, axis=1), rng.random(len(of.true))
    first, second = order[:, 0], order[:, 1]
    if kind == PLANTED[0]:
        of.y = np.where(sampling_lines < 0.3, (of.true + 1) % of.units, of.true)
    elif kind == PLANTED[1]:
        other = np.where(first == of.true, second, first)
        of.y = np.where(sampling_lines < 1.0 - of.p.max(axis=1), other, of.true)
    else:
        of.y = np.where((first != of.true) & (sampling_lines < 0.8), first, of.true)
    return of


@functools.lru_cache(1)
def population(name, split, size, *folders):
    """Returns the population of a set."""
    if name in PLANTED:
        return planted(Population(BASE, split, size, *folders), name, split)
    return Population(name, split, size, *folders)


def measured(options, name, split):
    """Yields the lines of all numbers of verified examples on a set."""
    of = population(name, split, options.size, options.data, options.cache)
    for number in sorted({FEW, A_CLASS * of.units}):
        if number < options.judged:
            yield from verified_lines(of, number, options)


def verified_lines(of, number, options):
    """Yields a line for each way, with coverage, half width and error over all redraws."""
    from keras_het.labels import verify_accuracy

    predicted, accuracy = of.p.argmax(axis=1), of.right.mean()
    label_accuracy = np.mean(of.y == of.true)
    results, others, worth = {}, [], []
    for redraw in range(options.redraws):
        rows = np.random.default_rng([redraw, 9]).integers(len(of.y), size=options.judged)
        p, y, true = of.p[rows], of.y[rows], of.true[rows]
        own = verify_accuracy(p, y, dict(enumerate(true[:number].tolist())))
        results.setdefault(AGREE, []).append(wilson(predicted[rows] == y))
        for way, each in ((ALONE, own.verified_only), (POWERED, own.accuracy)):
            results.setdefault(way, []).append((each.value, each.low, each.high))
        others.append(own.label_accuracy.low <= label_accuracy <= own.label_accuracy.high)
        worth.append(own.equivalent_labels)
    for way, values in results.items():
        value, low, high = np.array(values).T
        line = {"way": way, "true": float(accuracy), "verified": number}
        line["cover"] = float(np.mean((low <= accuracy) & (accuracy <= high)))
        line["half"], line["error"] = float(np.mean(high - low) / 2), float(value.mean() - accuracy)
        if way == POWERED:
            line |= {LABELS_RIGHT: float(np.mean(others)), "worth": float(np.median(worth))}
        yield line


def unsure(p, y, number):
    """Returns probabilities for a sample of this size, larger for predictions that are less likely correct."""
    from keras_het.labels import find_issues

    joint = p * (find_issues(p, y).transition[:, y].T + 1e-3)
    q = joint[np.arange(len(p)), p.argmax(axis=1)] / joint.sum(axis=1)
    size = np.sqrt(q * (1.0 - q) + 0.05)
    return np.minimum(number * size / size.sum(), 1.0)


def systematic(chances, rng):
    """Returns indices of a sample that contains each example with its probability (Madow 1949)."""
    order = rng.permutation(len(chances))
    steps = np.floor(np.cumsum(chances[order]) + rng.random())
    return order[np.diff(steps, prepend=0.0) > 0]


def sampling_lines(options, name, split):
    """Yields lines of coverage and half width for samples with equal and with unequal probabilities."""
    from keras_het.labels import verify_accuracy

    of = population(name, split, options.size, options.data, options.cache)
    accuracy, results = of.right.mean(), {ALIKE: [], UNSURE: []}
    for redraw in range(options.redraws // 4):
        rng = np.random.default_rng([redraw, 12])
        rows = rng.integers(len(of.y), size=options.judged)
        p, y, true = of.p[rows], of.y[rows], of.true[rows]
        for way, chances in ((ALIKE, np.full(len(p), DRAWN / len(p))), (UNSURE, unsure(p, y, DRAWN))):
            places = systematic(chances, rng).tolist()
            own = verify_accuracy(p, y, {place: int(true[place]) for place in places}, inclusion=chances).accuracy
            results[way].append((own.low <= accuracy <= own.high, own.high - own.low, (own.value - accuracy) ** 2))
    for way, values in results.items():
        cover, width, square = np.mean(values, axis=0)
        yield {"way": way, "cover": cover, "half": width / 2.0, "deviation": float(np.sqrt(square))}


def sampling_table(records):
    """Returns a row for each set and way of sampling."""
    rows = [["set", *(f"{way}: {what}" for way in (ALIKE, UNSURE) for what in ("cover", "half width", "error, rms"))]]
    for name in [name for name in SETS if lines.select(records, set=name)]:
        own = [lines.select(records, set=name, way=way) for way in (ALIKE, UNSURE)]
        cells = (
            [f"{mean_of(each, 'cover'):.3f}"] + [f"{mean_of(each, key, 100):.2f}" for key in ("half", "deviation")]
            for each in own
        )
        rows.append([name, *itertools.chain(*cells)])
    return rows


def table(records, text, ways=WAYS):
    """Returns a row for each set and number of verified examples, with a column for each way."""
    rows = [["set", "verified", "true accuracy", *ways]]
    for name in [name for name in SETS if lines.select(records, set=name)]:
        for number in lines.distinct(lines.select(records, set=name), "verified"):
            own = lines.select(records, set=name, verified=number)
            head = [name, str(number), f"{np.mean([line['true'] for line in own]):.3f}"]
            rows.append([*head, *(text(lines.select(own, way=way)) for way in ways)])
    return rows


def mean_of(own, name, scale=1.0):
    """Returns the mean of a value of lines."""
    return scale * float(np.mean([line[name] for line in own]))


def others(records):
    """Returns coverage of the other results of `verify_accuracy`, and its number of equivalent labels."""
    rows = [["set", "verified", "worth, alone", LABELS_RIGHT]]
    for line in table(records, lambda own: "|".join(map(str, own_others(own))), (POWERED,))[1:]:
        rows.append([*line[:2], *line[3].split("|")])
    return rows


def own_others(own):
    """Returns the number of equivalent labels and the coverage of the label accuracy, as text."""
    return [f"{mean_of(own, 'worth'):.0f}", f"{mean_of(own, LABELS_RIGHT):.3f}"]


def tables(records, others_drawn):
    """Returns tables of coverage and errors, of half widths, and of the other results."""
    return {
        "how often 95% intervals hold the true accuracy, and the error in points": table(
            records, lambda own: f"{mean_of(own, 'cover'):.3f} ({mean_of(own, 'error', 100):+.1f})"
        ),
        "half width in points": table(records, lambda own: f"{mean_of(own, 'half', 100):.1f}"),
        "what else verify_accuracy says": others(records),
        "examples drawn alike, and where the prediction is unsure": sampling_table(others_drawn),
    }


def main():
    """Makes the missing redraws and samples, and publishes their tables."""
    defaults = {"sets": SETS, "splits": 1, "redraws": 2000, "size": 4000, "judged": 2000} | features.FOLDERS
    quick = {"size": 500, "judged": 300, "splits": 1, "redraws": 20}
    options = experiments.parser_of(__doc__, defaults, quick).parse_args()
    keys, settings = experiments.product(options, "set", "split"), ("size", "judged", "redraws")
    records = experiments.completed(options, "real_judge", keys, measured, settings)
    samples = experiments.completed(options, "real_drawn", keys, sampling_lines, settings)
    experiments.publish(options, "real_judge", tables(records, samples), records, seed="split")


if __name__ == "__main__":
    main()
