"""Kinds of noise that `labels.diagnose` reports, beside the planted kind.

python -m benchmarks.labels.diagnosis [--data digits mnist words "12 pixels"] [--seeds 0 1 2]
                                      [--output FOLDER] [--quick] [--render]

The two tests have no constant that was fitted to these data. An earlier rule with seven kinds was chosen on digits with
seeds 10 to 19. For out-of-distribution examples, class-dependent noise is not the correct answer. All data share one
network, which trains for a few epochs; the epoch is not chosen. Clean labels are used only to score the class, the rate
of label errors, and T. "12 pixels" shows the model 12 pixels of each digit. That makes it weak, so that hard examples
look like label errors.

Results are JSON lines, one for each data, noise and seed. A later run adds what is missing.
"""

import collections

import numpy as np

from benchmarks.lib import harness, lines, noises, tasks
from benchmarks.lib.results import publish
from benchmarks.lib.trials import BATCH, make_model

CHOSEN_ON = range(10, 20)  # seeds of digits
SEEDS = {"digits": [*range(5), *CHOSEN_ON], "mnist": range(3), "words": range(3), "12 pixels": range(5)}
DATA = tuple(SEEDS)
KINDS = ("none", "class-dependent", "instance-dependent")
RIGHT = {
    "none": "none",
    "symmetric": "class-dependent",
    "pair": "class-dependent",
    "random": "class-dependent",
    "look-alike": "instance-dependent",
    "weak raters": "instance-dependent",
    "outliers": "none",
}
OF_CLASSES = ("symmetric", "pair", "random")
FOLDS, EPOCHS, PIXELS = 3, 12, 12


def clean(data, seed):
    """Returns examples, true labels, number of classes, and network."""
    if data == "words":
        task = tasks.words(0.0, seed)
        x, y = (np.concatenate(parts) for parts in zip(task.train, task.validation, strict=True))
        return x, y, task.units, task.backbone
    x, y, sizes, _, backbone = noises.DATA["mnist" if data == "mnist" else "digits"]()
    order = np.random.default_rng([seed, 1]).permutation(len(y))[: sum(sizes)]
    return x[order], y[order], 10, backbone


def noises_of(data):
    """Returns names of the noises. Words have no pixels to compare or to shuffle."""
    return [noise for noise in RIGHT if data != "words" or noise in ("none", *OF_CLASSES)]


def planted(data, noise, seed):
    """Returns examples, true labels (-1 for outliers), noisy labels, number of classes, and network."""
    from keras_het.labels import corrupt, pair_flip, symmetric

    x, y, units, backbone = clean(data, seed)
    matrices = {
        "none": lambda: np.eye(units),
        "symmetric": lambda: symmetric(units, noises.SYMMETRIC),
        "pair": lambda: pair_flip(units, noises.RATE),
        "random": lambda: noises.random_flip(units, noises.SYMMETRIC, [seed, 3]),
    }
    make = noises.matrix_noise(lambda _, __: matrices[noise]()) if noise in matrices else noises.NOISES[noise]
    made = make(x, y, [seed, 3])
    labels = corrupt(y, rows=made.rows, seed=[seed, 2])
    x = made.x
    if data == "12 pixels":
        x = x[:, np.random.default_rng(0).permutation(x.shape[1])[:PIXELS]]
    return x, made.y, labels, units, backbone


def probabilities(x, labels, units, backbone, seed, epochs):
    """Returns out-of-sample probabilities of the shared network."""
    from keras_het.labels import clean

    task = tasks.Task(tasks.Split(x, labels), None, None, units, epochs, backbone)
    arguments = {"epochs": epochs, "folds": FOLDS, "batch_size": BATCH, "verbose": 0, "seed": seed}
    return clean(lambda: make_model(task, seed), x, labels, **arguments).probabilities


def figures(data, noise, seed, epochs):
    """Returns the diagnosis, and the distances of its estimates from the truth."""
    from keras_het.labels.decoding import decode
    from keras_het.labels.diagnosis import diagnose
    from keras_het.labels.estimation import confident_counts
    from keras_het.ops.transition import total_variation

    x, true, labels, units, backbone = planted(data, noise, seed)
    p = probabilities(x, labels, units, backbone, seed, epochs).astype("float64")
    diagnosis, known = diagnose(p, labels), true >= 0
    class_labels = [labels[true == k] for k in range(units)]
    transition = np.stack([np.bincount(own, minlength=units) / len(own) for own in class_labels])
    counts = confident_counts(labels, p)
    return {
        "kind": diagnosis.kind,
        "p_value": diagnosis.class_p_value,
        "rate": diagnosis.rate,
        "flips": len(diagnosis.flips),
        "share": diagnosis.disagreement,
        "wrong": float(np.mean(labels != true)),
        "class": float(np.mean(decode(labels, p).classes[known] == true[known])),
        "most probable label": float(np.mean(p.argmax(axis=1)[known] == true[known])),
        "T": total_variation(diagnosis.transition, transition),
        "T, confident joint": total_variation(counts / counts.sum(axis=1, keepdims=True), transition),
    }


def confusion(rows):
    """Returns how often each kind is reported for each noise. The correct kind is bold."""
    table = [["planted", *KINDS, "p < .05"]]
    for noise in dict.fromkeys(row["noise"] for row in rows):
        noise_rows = [row for row in rows if row["noise"] == noise]
        said = collections.Counter(row["kind"] for row in noise_rows)
        cells = [f"**{said[kind]}**" if kind == RIGHT[noise] else str(said[kind] or "") for kind in KINDS]
        table.append([noise, *cells, f"{sum(row['p_value'] < 0.05 for row in noise_rows)} of {len(noise_rows)}"])
    return table


def estimates(rows):
    """Returns means of the estimates over the seeds, beside the truth."""
    names = ("wrong", "share", "class", "most probable label", "T", "T, confident joint")
    titles = (
        "wrong labels",
        "the model disagrees with",
        "true class found",
        "by the most probable label",
        "T: distance",
        "T by the confident joint",
    )
    table = [["data", "noise", *titles]]
    for data, noise in dict.fromkeys((row["data"], row["noise"]) for row in rows):
        own = [row for row in rows if (row["data"], row["noise"]) == (data, noise)]
        table.append([data, noise, *(f"{np.mean([row[name] for row in own]):.3f}" for name in names)])
    return table


def tables(rows):
    """Returns confusion tables for the seeds that chose an older rule and for each test data, and their estimates."""
    chosen = [row for row in rows if row["data"] == "digits" and row["seed"] in CHOSEN_ON]
    tried = [row for row in rows if row not in chosen]
    parts = {"digits, the seeds of the choice": chosen}
    parts |= {f"{data}, other seeds" if data == "digits" else data: _of(tried, data) for data in DATA}
    made = {title: confusion(own) for title, own in parts.items() if own}
    return made | ({"estimates, seeds and data that were not of the choice": estimates(tried)} if tried else {})


def _of(rows, data):
    return [row for row in rows if row["data"] == data]


def main():
    parser = harness.experiment(harness.parser_of(__doc__), seeds=[0], epochs=2)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+", help="the same for all data; by default `SEEDS`")
    parser.set_defaults(epochs=EPOCHS)
    options = parser.parse_args()
    keys = [
        {"data": data, "noise": noise, "seed": seed}
        for data in ([] if options.render else options.data)
        for seed in options.seeds or SEEDS[data]
        for noise in noises_of(data)
    ]
    rows = lines.completed(options.output / "diagnosis.jsonl", keys, lambda *key: [figures(*key, options.epochs)])
    publish(options.output, "diagnosis", tables(rows), sorted({row["seed"] for row in rows}))


if __name__ == "__main__":
    main()
