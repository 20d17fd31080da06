"""Start and learning speed of the last layer: `Dense` and heads, each at its best learning rate.

python -m benchmarks.real.starts [--tasks NAME ...] [--optimizers NAME ...] [--rows NAME ...] [--seeds 3]
                                 [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Four kinds of tasks. *frozen*: one layer on features of CIFAR-10N worst by EfficientNet-Lite0, of TREC or of LabelMe,
20 epochs in batches of 256. *scratch*: three convolutions with batch normalisation and a layer of 128 on 8,000 images
of CIFAR-100N, 8 epochs in batches of 128, with a rate that falls as a cosine. *digits*: two layers of 128 on 900 of
scikit-learn's digits, of which 40% in three pairs of classes are swapped, 24 epochs in batches of 64. *groups*: a
layer of 256 on 1,000 clusters in groups of five, of which 40% of the labels are another of the group, 16 epochs in
batches of 128.

A row is `Dense` or a head with 64 nodes; "zeros" starts the kernel of the mean with zeros, and "m 0.5" is
`learning_rate_multiplier=0.5`. "/ 5" divides the mean logits by 5, so that they start at a fifth and learn at a fifth
of the speed; "slow 5" starts as Keras does, and learns at a fifth of the speed. The rate and the epoch have the best
accuracy on a tenth of the noisy labels. Clean labels are only measured.
"""

import contextlib
import re
import time

import keras
import numpy as np

from benchmarks.lib import lines, tasks
from benchmarks.lib.results import publish
from benchmarks.real import data, features, plain
from benchmarks.real.heads import Record

FROZEN, NODES, DECAY, TESTED = "CIFAR-10N worst", 64, 0.05, 4000
EPOCHS = {"frozen": 20, "scratch": 8, "digits": 24, "groups": 16}
BATCHES = {"frozen": 256, "scratch": 128, "digits": 64, "groups": 128}
TASKS = ("frozen 5000", "frozen 18000", "scratch", "digits", "groups", "frozen TREC", "frozen LabelMe")
RATES = {
    "adam": {
        "frozen": (1e-4, 3e-4, 1e-3, 3e-3),
        "scratch": (1e-3, 2e-3, 4e-3, 8e-3),
        "digits": (1e-3, 3e-3, 1e-2, 3e-2),
        "groups": (1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3),
    },
    "sgd": {
        "frozen": (1e-4, 1e-3, 1e-2, 1e-1),
        "scratch": (1e-2, 3e-2, 1e-1, 3e-1),
        "digits": (1e-2, 3e-2, 1e-1, 3e-1),
        "groups": (1e-1, 3e-1, 1.0, 3.0),
    },
}
RATES["adamw"] = RATES["adam"]
STARTS = ("Dense", "Dense zeros")
ROWS = (
    *STARTS, "Dense / 5", "Dense zeros / 5",
    *(f"head{start} m {m:g}" for start in ("", " zeros") for m in (0.2, 0.5, 1.0)),
)  # fmt: skip


class Parts:
    """Inputs, noisy labels and truths of one training, for `heads.Record`."""

    votes = None

    def __init__(self, task, dataset, seed):
        x, y, self.x_test, self.truth, self.units, size = dataset
        chosen = np.random.default_rng([seed, 2]).permutation(len(y))[:size]
        train, held = (chosen[part] for part in plain.split(chosen, seed))
        self.x, self.x_held = x[train], x[held]
        if task.startswith("frozen"):
            self.x, self.x_held, self.x_test = plain.standardized(self.x, self.x_held, self.x_test)
        self.y, self.y_held = y[train].astype("int32"), y[held].astype("int32")


def read(task, seed, options):
    """Returns inputs, noisy labels, test inputs, true classes, K, and the number of labels of a task."""
    if task == "digits":
        return digits(seed)
    if task == "groups":
        (x, y), _, (x_test, truth) = tasks.grouped(1000, 20, 0.4, seed)[:3]
        return x, y, x_test, truth, 1000, len(y)
    if task == "scratch":
        dataset = data.read("CIFAR-100N", options.data)
        tested = np.random.default_rng(0).permutation(len(dataset.truth_test))[:TESTED]
        x, x_test = (np.float32(part) / 64.0 - 2.0 for part in (dataset.x, dataset.x_test[tested]))
        return x, dataset.labels, x_test, dataset.truth_test[tested].astype(int), dataset.units, 8000
    word = task.split()[1]
    dataset = features.of(FROZEN if word.isdigit() else word, options.data, options.cache, seed)
    size = int(word) if word.isdigit() else len(dataset.labels)
    return dataset.x, dataset.labels, dataset.x_test, dataset.truth_test.astype(int), dataset.units, size


def digits(seed):
    """Returns the digits with 40% of three pairs of classes swapped; the last examples are the test."""
    from sklearn.datasets import load_digits

    x, true = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 7]).permutation(len(true))
    x, true = (x[order] / 16).astype("float32"), true[order]
    partner = np.array([0, 7, 2, 9, 4, 6, 5, 1, 8, 3])
    swapped = np.random.default_rng([seed, 8]).random(len(true)) < 0.4
    y = np.where(swapped, partner[true], true)
    return x[:900], y[:900], x[900:], true[900:], 10, 900


def body(task, x):
    """Returns the layers before the last one, applied to `x`."""
    if task == "scratch":
        for width in (32, 64, 128):
            x = keras.layers.Conv2D(width, 3, 2, padding="same", use_bias=False)(x)
            x = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9)(x))
        x = keras.layers.GlobalAveragePooling2D()(x)
        return keras.layers.Dense(128, activation="relu")(x)
    for width in {"digits": (128, 128), "groups": (256,)}.get(task, ()):
        x = keras.layers.Dense(width, activation="relu")(x)
    return x


def last_layers(row, units, seed):
    """Returns the layers of a row."""
    division = float((re.search(r"(?:/|slow) (\d+)", row) or [0, 1])[1])
    kernel = {"kernel_initializer": "zeros"} if "zeros" in row else {}
    if "slow" in row:  # Glorot's uniform start, times the division
        kernel["kernel_initializer"] = keras.initializers.VarianceScaling(division**2, "fan_avg", "uniform")
    if row.startswith("Dense"):
        return [keras.layers.Dense(units, **kernel), keras.layers.Rescaling(1.0 / division)]
    from keras_het import HeteroscedasticDense, covariances
    from keras_het.integrators import QuasiMonteCarlo

    kinds = {"diagonal": covariances.Diagonal, "parameter-efficient": covariances.ParameterEfficient}
    multiplier = division * float(re.search(r"m ([\d.]+)", row)[1])  # in the units of the divided logits
    covariance = kinds.get(row.split()[0], covariances.LowRank)(learning_rate_multiplier=multiplier)
    head = {"temperature": division, "covariance": covariance, "integrator": QuasiMonteCarlo(NODES), "seed": seed}
    return [HeteroscedasticDense(units, **head, **kernel)]


def optimizer_of(name, task, rate, steps):
    """Returns a Keras optimizer; from scratch its rate falls as a cosine."""
    rate = keras.optimizers.schedules.CosineDecay(rate, steps) if task == "scratch" else rate
    if name == "sgd":
        return keras.optimizers.SGD(rate, momentum=0.9)
    return keras.optimizers.AdamW(rate, weight_decay=DECAY) if name == "adamw" else keras.optimizers.Adam(rate)


def train(parts, task, optimizer, row, rate, seed):
    """Returns the measures of every epoch of one training, the noise after it, and its processor seconds."""
    start, kind = time.process_time(), task.split()[0]
    keras.utils.set_random_seed(1000 + seed)
    inputs = keras.Input(parts.x.shape[1:])
    hidden = outputs = body(kind, inputs)
    for layer in last_layers(row, parts.units, seed):
        outputs = layer(outputs)
    model, epochs, batch = keras.Model(inputs, outputs), EPOCHS[kind], BATCHES[kind]
    steps = epochs * -(-len(parts.y) // batch)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer_of(optimizer, kind, rate, steps), loss)
    record = Record(parts)
    with contextlib.suppress(FloatingPointError):  # the training diverged: its epochs end here
        model.fit(parts.x, parts.y, batch_size=batch, epochs=epochs, verbose=0, callbacks=[record])
    noise = 0.0 if row.startswith("Dense") else deviation(model.layers[-1], keras.Model(inputs, hidden), parts.x_test)
    keras.utils.clear_session(free_memory=False)
    return {"epochs": record.epochs, "noise": noise, "processor": time.process_time() - start}


def deviation(head, features, x):
    """Returns the root mean square of the standard deviations of a head's noise on some examples."""
    normal = head.logit_distribution(features.predict(x[:500], verbose=0))
    return float(np.sqrt(np.mean(keras.ops.convert_to_numpy(normal.variance()))))


def run(options):
    """Trains the missing runs."""
    file = options.output / "real_starts.jsonl"
    for task in options.tasks:
        for seed in range(options.seeds):
            parts = Parts(task, read(task, seed, options), seed)
            for optimizer in options.optimizers:
                rates = options.rates or RATES[optimizer][task.split()[0]]
                keys = [
                    {"task": task, "optimizer": optimizer, "seed": seed, "row": row, "rate": rate}
                    for row in options.rows
                    for rate in rates
                ]

                def make(task, optimizer, seed, row, rate, parts=parts):
                    yield train(parts, task, optimizer, row, rate, seed)

                lines.completed(file, keys, make)


def best(records):
    """Returns the epoch with the best noisy accuracy of all rates, with its line."""
    return max((epoch | line for line in records for epoch in line["epochs"]), key=lambda e: e["noisy accuracy"])


def last(records):
    """Returns the last epoch at the rate with the best noisy accuracy there."""
    finished = [line for line in records if line["epochs"]]
    return max((line["epochs"][-1] | line for line in finished), key=lambda e: e["noisy accuracy"])


def table(records):
    """Returns a row for each last layer: clean measures and paired differences to the better `Dense`."""
    chosen, final = by_seed(records, best), by_seed(records, last)
    noisy = {
        row: np.mean([epoch["noisy accuracy"] for epoch in chosen[row].values()]) for row in STARTS if row in chosen
    }
    other = max(noisy, key=noisy.get)
    rows = [
        ["last layer", "accuracy", "NLL", f"points over {words(other)}", "NLL over it", "last epoch", "noise", "rates"]
    ]
    rows[0].append("seeds")
    for row, epochs in chosen.items():
        pairs = [(epoch, chosen[other][seed]) for seed, epoch in epochs.items() if seed in chosen[other]]
        points, nll = [100 * (a["accuracy"] - b["accuracy"]) for a, b in pairs], [a["nll"] - b["nll"] for a, b in pairs]
        cells = [lines.with_error([epoch[name] for epoch in epochs.values()]) for name in ("accuracy", "nll")]
        cells += ["", ""] if row == other else [lines.gain(points, 1), lines.gain(nll)]
        cells.append(lines.with_error([epoch["accuracy"] for epoch in final[row].values()]))
        cells.append(f"{np.mean([epoch['noise'] for epoch in epochs.values()]):.2f}")
        rates = sorted({epoch["rate"] for epoch in epochs.values()})
        rows.append([words(row), *cells, ", ".join(map("{:g}".format, rates)), str(len(epochs))])
    return rows


def words(row):
    """Returns the name of a row for readers, such as "full head from zeros, multiplier 1"."""
    name = row.replace(" zeros", " from zeros").replace(" / ", ", logits / ").replace(" m ", ", multiplier ")
    name = name.replace(" slow ", ", speed / ")
    return f"full {name}" if name.startswith("head") else name


def by_seed(records, rule):
    """Returns the epoch that a rule chooses, by row and seed."""
    seeds, rows = lines.distinct(records, "seed"), lines.distinct(records, "row")
    own = {row: {seed: lines.select(records, row=row, seed=seed) for seed in seeds} for row in rows}
    return {row: {seed: rule(each) for seed, each in parts.items() if each} for row, parts in own.items()}


def render(options):
    """Publishes the tables of the existing lines, a file for each kind of task."""
    records = lines.read(options.output, "real_starts.jsonl")
    for kind in dict.fromkeys(task.split()[0] for task in options.tasks):
        own = [line for line in records if line["task"].split()[0] == kind and line["task"] in options.tasks]
        keys = dict.fromkeys((line["task"], line["optimizer"]) for line in own if line["row"] in STARTS)
        tables = {", ".join(key): table(lines.select(own, task=key[0], optimizer=key[1])) for key in keys}
        if tables:
            publish(options.output, f"real_starts_{kind}", tables, sorted(lines.distinct(own, "seed")))


def main():
    """Runs the missing trainings, and makes the tables."""
    quick = {"tasks": ["digits"], "seeds": 1, "rows": ["Dense", "head m 1"], "optimizers": ["adam"]}
    parser = features.experiment(__doc__, (FROZEN,), quick, seeds=3)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME")
    parser.add_argument("--optimizers", nargs="+", choices=list(RATES), default=["adam"], metavar="NAME")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), metavar="NAME")
    parser.add_argument("--rates", nargs="+", type=float, help="learning rates instead of four for each task")
    options = parser.parse_args()
    if not options.render:
        run(options)
    render(options)


if __name__ == "__main__":
    main()
