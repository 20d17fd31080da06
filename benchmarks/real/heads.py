"""Last layers, each at its best learning rate, and what they lose in a training that nothing stops.

python -m benchmarks.real.heads [--tasks NAME ...] [--rows NAME ...] [--seeds 5] [--name real_heads]
                                [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Three kinds of tasks. *frozen*: one layer on features of a set of `data.SETS` and a number of its labels, 60 epochs in
batches of 256. *scratch*: three convolutions with batch normalisation and a layer of 128, from random weights, on
images of such a set, 10 epochs in batches of 64. *digits*: two layers of 128 on 900 of scikit-learn's digits, of which
40% in three pairs of classes are swapped, 24 epochs in batches of 64.

A row is `Dense` or a head with 64 nodes; "from zeros" starts the kernel of the mean with zeros. "/ 5" divides the
logits by 5, so that they start at a fifth and learn at a fifth of the speed. The rate and the epoch have the best
accuracy on a tenth of the noisy labels. Clean labels, and the votes of many people if a set has any, are only measured,
but differences are to the start of `Dense` that is better on clean labels.
`labels.clean` trains on the held-out labels as well. Logistic regression chooses C instead of the rate. With "penalty",
a head learns at 1e-3, and the kernel W of its mean has the penalty |W|^2 / (2 C n) of logistic regression on n labels.
The tables "by likelihood" choose rate and C by the likelihood of the held-out labels instead of the accuracy, and those
"at the default rate" choose only C.

"pairs by p" and "pairs by covariance" are rank correlations, over all pairs of classes, of how often people who voted
on the test examples confuse the two, with the mean of p_i p_j, and minus the correlation of the two logits in the mean
covariance, after the last epoch.
"""

import contextlib
import functools
import re
import time

import keras
import numpy as np
from scipy.special import softmax
from scipy.stats import spearmanr

from benchmarks.lib import experiments, lines
from benchmarks.lib.results import publish
from benchmarks.real import data, features, plain
from keras_het import HeteroscedasticDense, covariances
from keras_het.explain import covariance
from keras_het.integrators import QuasiMonteCarlo

NODES, TESTED = 64, 2000
TESTS = ("x_test", "truth_test", "test_votes")
EPOCHS = {"frozen": 60, "scratch": 10, "digits": 24}
BATCHES = {"frozen": 256, "scratch": 64, "digits": 64}
RATES = {
    "frozen": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "scratch": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "digits": (1e-3, 3e-3, 1e-2, 3e-2),
}
DEFAULT_RATE = 1e-3  # of Adam
MEASURED = (*range(1, 11), 12, 14, 16, 20, 24, 30, 40, 50, 60)  # epochs after which a model is measured
SETS = ("CIFAR-10N worst", "CIFAR-10N random1", "CIFAR-10N aggregate", "CIFAR-100N", "Fashion-MNIST-H")
TASKS = (
    *(f"frozen {name} 5000" for name in SETS), "frozen TREC", "frozen LabelMe", "frozen Fashion-MNIST-H",
    *(f"frozen {name} 18000" for name in SETS[:-1]),
    *(f"scratch {name} 4000" for name in ("Fashion-MNIST-H", "CIFAR-10N worst")), "digits",
)  # fmt: skip
STARTS = ("Dense", "Dense from zeros")
LOGISTIC = "logistic regression"  # of scikit-learn
PENALISED, PENALTIES = "full from zeros, penalty", (1e-4, 1e-3, 1e-2, 1e-1)
CLEAN = "clean"  # the classifier of `labels.clean`
ROWS = (
    *STARTS, "Dense / 5", "full", "full from zeros", "diagonal from zeros", "parameter-efficient from zeros",
    PENALISED, LOGISTIC, CLEAN,
)  # fmt: skip
# "people": crossentropy with the votes of many people, in nats
MEASURES = ("accuracy", "nll", "ece", "people", "pairs by p", "pairs by covariance")
COVARIANCES = {
    "full": covariances.LowRank, "diagonal": covariances.Diagonal,
    "parameter-efficient": covariances.ParameterEfficient,
}  # fmt: skip


class Parts:
    """Inputs, noisy labels and truths of one training."""

    def __init__(self, task, dataset, seed):
        x, y, self.x_test, self.truth, self.votes, self.units, size = dataset
        chosen = np.random.default_rng([seed, 2]).permutation(len(y))[:size]
        train, held = (chosen[part] for part in plain.split(chosen, seed))
        self.x, self.x_held = x[train], x[held]
        if task.startswith("frozen"):
            self.x, self.x_held, self.x_test = plain.standardized(self.x, self.x_held, self.x_test)
        self.y, self.y_held = y[train].astype("int32"), y[held].astype("int32")

    def measures(self, held, test):
        """Returns the measures of log-probabilities or logits of the held-out and of the test examples."""
        noisy = plain.measures(held, self.y_held)
        return {f"noisy {name}": value for name, value in noisy.items()} | plain.measures(test, self.truth, self.votes)


class Record(keras.callbacks.Callback):
    """Measures after each epoch, or after some, by the noisy held-out labels and by the truth."""

    def __init__(self, parts, batch_size=250, after=None):
        super().__init__()
        self.parts, self.batch_size, self.after, self.epochs = parts, batch_size, after, []

    def on_epoch_end(self, epoch, logs=None):
        if self.after is None or epoch + 1 in self.after:
            held, test = (
                self.model.predict(x, self.batch_size, verbose=0) for x in (self.parts.x_held, self.parts.x_test)
            )
            self.epochs.append({"epoch": epoch + 1} | self.parts.measures(held, test))


def read(task, seed, options):
    """Returns inputs, noisy labels, test inputs, true classes, votes of the test, K, and the number of labels."""
    if task == "digits":
        return digits(seed)
    kind, name, size = re.fullmatch(r"(\w+) (.+?)(?: (\d+))?", task).groups()
    if kind == "frozen":
        dataset = features.of(name, options.data, options.cache, seed)
    else:
        dataset = data.read(name, options.data, seed)
        tested = np.random.default_rng(0).permutation(len(dataset.truth_test))[:TESTED]
        dataset = dataset._replace(**{part: getattr(dataset, part)[tested] for part in TESTS})
    truth, size = dataset.truth_test.astype(int), int(size or len(dataset.labels))
    return dataset.x, dataset.labels, dataset.x_test, truth, dataset.test_votes, dataset.units, size


def digits(seed):
    """Returns the digits with 40% of three pairs of classes swapped; the last examples are the test."""
    from sklearn.datasets import load_digits

    x, true = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 7]).permutation(len(true))
    x, true = (x[order] / 16).astype("float32"), true[order]
    partner = np.array([0, 7, 2, 9, 4, 6, 5, 1, 8, 3])
    swapped = np.random.default_rng([seed, 8]).random(len(true)) < 0.4
    y = np.where(swapped, partner[true], true)
    return x[:900], y[:900], x[900:], true[900:], None, 10, 900


def body(task, x):
    """Returns the layers before the last one, applied to `x`."""
    if task == "scratch":
        x = keras.layers.Rescaling(1 / 64, -2.0)(keras.layers.Reshape((*x.shape[1:3], -1))(x))
        for width in (16, 32, 64):
            x = keras.layers.Conv2D(width, 3, 2, padding="same", use_bias=False)(x)
            x = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9)(x))
        x = keras.layers.GlobalAveragePooling2D()(x)
        return keras.layers.Dense(128, activation="relu")(x)
    for _ in range(2 if task == "digits" else 0):
        x = keras.layers.Dense(128, activation="relu")(x)
    return x


def choices(row, rates):
    """Returns the learning rates of a row, or the values of C that it has instead."""
    return {LOGISTIC: plain.STRENGTHS, PENALISED: PENALTIES, CLEAN: [None]}.get(row, rates)


def last_layers(row, units, seed, penalty=None):
    """Returns the layers of a row."""
    kernel = {"kernel_initializer": "zeros"} if "zeros" in row else {}
    kernel |= {"kernel_regularizer": keras.regularizers.L2(penalty)} if penalty else {}
    if row.startswith("Dense"):
        return [keras.layers.Dense(units, **kernel), keras.layers.Rescaling(0.2 if row.endswith("/ 5") else 1.0)]
    noise = COVARIANCES[row.split()[0]]()
    return [HeteroscedasticDense(units, covariance=noise, integrator=QuasiMonteCarlo(NODES), seed=seed, **kernel)]


def logistic_regression(parts, seed, strength):
    """Returns log-probabilities of the held-out and of the test examples."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, max_iter=300).fit(parts.x, parts.y)
    return [model.predict_log_proba(part) for part in (parts.x_held, parts.x_test)]


def cleaned(parts, seed, _):
    """Returns log-probabilities of the held-out and of the test examples by the model that `labels.clean` trains."""
    from keras_het.labels import clean

    x, y = np.concatenate([parts.x, parts.x_held]), np.concatenate([parts.y, parts.y_held])
    model = clean(None, x, y, seed=seed, verbose=0).model
    return [model.predict(part, batch_size=2048, verbose=0) for part in (parts.x_held, parts.x_test)]


OTHERS = {LOGISTIC: logistic_regression, CLEAN: cleaned}  # models that are no network


def train(parts, task, row, rate, seed):
    """Returns the measures of one training by epoch, its noise, rank correlations, and its seconds."""
    start, kind = time.process_time(), task.split()[0]
    if row in OTHERS:
        measures = parts.measures(*OTHERS[row](parts, seed, rate))
        return {"epochs": [measures], "noise": 0.0, "processor": time.process_time() - start}
    keras.utils.set_random_seed(1000 + seed)
    inputs = keras.Input(parts.x.shape[1:])
    hidden = outputs = body(kind, inputs)
    rate, penalty = (DEFAULT_RATE, 1 / (2 * rate * len(parts.y))) if row == PENALISED else (rate, None)
    for layer in last_layers(row, parts.units, seed, penalty):
        outputs = layer(outputs)
    model, epochs, batch = keras.Model(inputs, outputs), EPOCHS[kind], BATCHES[kind]
    model.compile(keras.optimizers.Adam(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    record = Record(parts, after=MEASURED)
    with contextlib.suppress(FloatingPointError):  # the training diverged: its epochs end here
        model.fit(parts.x, parts.y, batch_size=batch, epochs=epochs, verbose=0, callbacks=[record])
    extract = keras.Model(inputs, hidden)
    told = {"noise": 0.0} if row.startswith("Dense") else {"noise": deviation(model.layers[-1], extract, parts.x_test)}
    result = {"epochs": record.epochs, "processor": time.process_time() - start, **told, **pairs(model, parts)}
    keras.utils.clear_session(free_memory=False)
    return result


def pairs(model, parts):
    """Returns rank correlations of people's confusions with p_i p_j, and with the correlations of the logits.

    A pair of which one or the other is true has a negative correlation. Any head can tell the product.
    """
    if parts.votes is None:
        return {}
    shares = np.zeros((parts.units, parts.units))
    np.add.at(shares, parts.truth, parts.votes / parts.votes.sum(axis=1, keepdims=True))
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    above = np.triu_indices(parts.units, 1)
    p = softmax(model.predict(parts.x_test, batch_size=2048, verbose=0).astype("float64"), axis=1)
    told = {"pairs by p": p.T @ p}
    if isinstance(model.layers[-1], HeteroscedasticDense):
        sigma = covariance(model, parts.x_test, batch_size=2048)
        deviation = np.sqrt(np.diag(sigma))
        told["pairs by covariance"] = -sigma / np.outer(deviation, deviation)
    confused = (shares + shares.T)[above]
    return {name: float(spearmanr(confused, each[above]).statistic) for name, each in told.items()}


def deviation(head, features, x):
    """Returns the root mean square of the standard deviations of a head's noise on some examples."""
    normal = head.logit_distribution(features.predict(x, verbose=0)[:500])
    return float(np.sqrt(np.mean(keras.ops.convert_to_numpy(normal.variance()))))


def run(options):
    """Trains the missing runs."""
    file = options.output / f"{options.name}.jsonl"
    for task in options.tasks:
        for seed in range(options.seeds):
            parts = Parts(task, read(task, seed, options), seed)
            keys = [
                {"task": task, "seed": seed, "row": row, "rate": rate}
                for row in options.rows
                for rate in choices(row, RATES[task.split()[0]])
            ]

            def make(task, seed, row, rate, parts=parts):
                yield train(parts, task, row, rate, seed)

            lines.completed(file, keys, make)


def noisy_accuracy(epoch):
    return epoch["noisy accuracy"]


def noisy_likelihood(epoch):
    return -epoch["noisy nll"]


def best(records, choose=noisy_accuracy):
    """Returns the epoch that is best by the noisy labels, of all rates, with its line. The first wins a tie."""
    return max((epoch | line for line in records for epoch in line["epochs"]), key=choose)


def last(records, choose=noisy_accuracy):
    """Returns the last epoch at the rate that is best by the noisy labels there."""
    count = max(len(line["epochs"]) for line in records)  # a training that diverged has fewer
    return max((line["epochs"][-1] | line for line in records if len(line["epochs"]) == count), key=choose)


def last_at_default(records):
    """Returns the last epoch of a row at Adam's default rate, or by its own choice if it has no rate."""
    own = records if records[0]["row"] in (*OTHERS, PENALISED) else lines.select(records, rate=DEFAULT_RATE)
    return last(own, noisy_likelihood)


def table(records, rule):
    """Returns a row for each last layer: clean measures, and paired differences to the better start of `Dense`.

    The better start has the better mean accuracy on clean labels, so this choice, the only one, favours `Dense`.
    """
    chosen = by_seed(records, rule)
    clean = {row: np.mean([e["accuracy"] for e in chosen[row].values()]) for row in STARTS if row in chosen}
    other = max(clean, key=clean.get)
    names = [name for name in MEASURES if any(name in e for each in chosen.values() for e in each.values())]
    rows = [
        ["last layer", *names, "points over the better Dense", "NLL over it", "noise", "rates or C", "seconds", "seeds"]
    ]
    for row, epochs in chosen.items():
        pairs = [(epoch, chosen[other][seed]) for seed, epoch in epochs.items() if seed in chosen[other]]
        points, nll = [100 * (a["accuracy"] - b["accuracy"]) for a, b in pairs], [a["nll"] - b["nll"] for a, b in pairs]
        cells = [lines.with_error([epoch.get(name, np.nan) for epoch in epochs.values()]) for name in names]
        cells += ["", ""] if row == other else [lines.gain(points, 1), lines.gain(nll)]
        noise, seconds = (np.mean([epoch[name] for epoch in epochs.values()]) for name in ("noise", "processor"))
        rates = ", ".join(f"{rate:g}" for rate in sorted({epoch["rate"] for epoch in epochs.values()} - {None}))
        rows.append([row, *cells, f"{noise:.2f}", rates, f"{seconds:.1f}", str(len(epochs))])
    return rows


RULES = {
    "": best,
    ", by likelihood": functools.partial(best, choose=noisy_likelihood),
    ", last epoch": last,
    ", last epoch by likelihood": functools.partial(last, choose=noisy_likelihood),
    ", last epoch at the default rate": last_at_default,
}


def by_epoch(records, measure):
    """Returns the mean of a clean measure after some epochs, a row for each last layer and rate."""
    trained = [line for line in records if line["row"] not in OTHERS]
    epochs = sorted({epoch["epoch"] for line in trained for epoch in line["epochs"]})
    rows = [["last layer", "rate or C", *map(str, epochs)]]
    keys = dict.fromkeys((line["row"], line["rate"]) for line in trained)
    for row, rate in keys:
        own = [{e["epoch"]: e[measure] for e in line["epochs"]} for line in lines.select(records, row=row, rate=rate)]
        means = (np.mean([each.get(epoch, np.nan) for each in own]) for epoch in epochs)
        rows.append([row, f"{rate:g}", *map("{:.3f}".format, means)])
    return rows


def by_seed(records, rule):
    """Returns the epoch that a rule chooses, by row and seed."""
    seeds, rows = lines.distinct(records, "seed"), lines.distinct(records, "row")
    own = {row: {seed: lines.select(records, row=row, seed=seed) for seed in seeds} for row in rows}
    return {row: {seed: rule(each) for seed, each in parts.items() if each} for row, parts in own.items()}


def tables(records):
    """Returns the tables of every task by title."""
    found = {}
    for task in lines.distinct(records, "task"):
        own = lines.select(records, task=task)
        found |= {f"{task}{words}": table(own, rule) for words, rule in RULES.items()}
        found |= {f"{task}, {measure} by epoch": by_epoch(own, measure) for measure in ("accuracy", "nll")}
    return found


def main():
    """Runs the missing trainings, and makes the tables."""
    quick = {"tasks": ["digits"], "seeds": 1, "rows": ["Dense", "full"]}
    name = {"default": "real_heads", "help": "name of the result"}
    options = {"tasks": TASKS, "rows": ROWS, "seeds": 5, "name": name} | features.FOLDERS
    options = experiments.parser_of(__doc__, options, quick).parse_args()
    if not options.render:
        run(options)
    records = lines.read(options.output, f"{options.name}.jsonl")
    publish(options.output, options.name, tables(records), sorted(lines.distinct(records, "seed")))


if __name__ == "__main__":
    main()
