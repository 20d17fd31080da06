"""Accuracy and likelihood of each head on frozen features, beside `Dense` with tuned temperatures.

python -m benchmarks.real.heads [--sets NAME ...] [--sizes 2000 18000] [--rows NAME ...] [--seeds 3]
                                [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Each head is trained for 20 epochs on nine tenths of the noisy labels. Some heads train for 60 epochs, or average the
weights of the epochs. The other tenth, which is as noisy, chooses temperature, L2, the strength of a baseline's penalty
and the epoch, by its likelihood or by its accuracy. Clean test labels, and the votes of many people if the set has any,
are only measured. Every training is a line of JSON and runs once.
"""

import time

import keras
import numpy as np
from scipy.special import log_softmax

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import features, plain

EPOCHS, BATCH, RATE = 20, 256, 1e-3
TEMPERATURES, PENALTIES = (1.0, 5.0, 10.0, 20.0), (0.0, 1e-4)
NOISY = (1.5, 5.0, 10.0)  # temperatures of heads with noise
MOMENTUM = 0.8  # averaged weights, per epoch
LONGER, AVERAGED = ", 60 epochs", ", averaged weights"  # behind the name of a row
DRAINAGE, RRM = "drainage", "Rockafellian relaxation"
RIVALS = {DRAINAGE: (0.3, 1.0, 3.0), RRM: (1.0, 2.0, 4.0)}  # Dense heads; alpha, and gamma in nats
ROWS = ("Dense", "full", "parameter-efficient", "narrow", "diagonal", *RIVALS)
ROWS += tuple(row + more for row in ROWS[:2] for more in (LONGER, AVERAGED))
SETS = ("CIFAR-10N worst", "CIFAR-10N aggregate", "CIFAR-10N random1", "CIFAR-100N", "Fashion-MNIST-H")


def head_of(row, units, temperature, penalty, seed):
    """Returns the layers of a row. Drainage has an additional logit, the last."""
    from keras_het import HeteroscedasticDense, covariances

    regularizer = keras.regularizers.L2(penalty) if penalty else None
    if row == "Dense" or row in RIVALS:
        dense = keras.layers.Dense(units + (row == DRAINAGE), kernel_regularizer=regularizer)
        return [dense, keras.layers.Rescaling(1.0 / temperature)]
    options = {
        "full": {},
        "parameter-efficient": {"parameter_efficient": True},
        "narrow": {"covariance": covariances.Narrow(width=16)},
        "diagonal": {"num_factors": 0},
    }[row]
    common = {"temperature": temperature, "kernel_regularizer": regularizer, "seed": seed}
    return [HeteroscedasticDense(units, **options, **common)]


class Parts:
    """Standardised features, labels and truths of one training."""

    def __init__(self, dataset, size, seed):
        chosen = np.random.default_rng([seed, 2]).permutation(len(dataset.labels))[:size]
        train, held = (chosen[part] for part in plain.split(chosen, seed))
        self.units, self.truth, self.votes = dataset.units, dataset.truth_test.astype(int), dataset.test_votes
        self.confusions = confusions(dataset)
        self.x, self.x_held, self.x_test = plain.standardized(dataset.x[train], dataset.x[held], dataset.x_test)
        self.y, self.y_held = dataset.labels[train].astype("int32"), dataset.labels[held].astype("int32")


class Record(keras.callbacks.Callback):
    """Measures of every epoch, by the noisy held-out labels and by the truth."""

    def __init__(self, parts, is_averaged=False):
        super().__init__()
        self.parts, self.is_averaged, self.average, self.epochs = parts, is_averaged, None, []

    def on_epoch_end(self, epoch, logs=None):
        current = self.model.get_weights()
        if self.is_averaged:
            pairs = zip(self.average or current, current, strict=True)
            self.average = [MOMENTUM * average + (1.0 - MOMENTUM) * weight for average, weight in pairs]
            self.model.set_weights(self.average)
        self.measure()
        self.model.set_weights(current)

    def measure(self):
        """Adds the measures of the current weights."""
        parts = self.parts
        held, test = (
            self.model.predict(x, batch_size=2048, verbose=0)[:, : parts.units] for x in (parts.x_held, parts.x_test)
        )
        noisy = plain.measures(held, parts.y_held)
        self.epochs.append({f"noisy {name}": value for name, value in noisy.items()})
        self.epochs[-1] |= plain.measures(test, parts.truth, parts.votes)


def drainage(alpha):
    """Returns the loss of drainage by K + 1 logits, the last of which is of no class (arXiv 2512.03182).

    log(1 + a p_d / p_t + p_J / p_t + (1 / a) p_J / p_d),    p_J the probability of all classes but t
    """

    def loss(labels, logits):
        ops, size = keras.ops, logits.shape[-1] - 1
        is_true = ops.one_hot(ops.cast(ops.reshape(labels, (-1,)), "int32"), size, dtype="bool")
        z, drain = logits[:, :size], logits[:, size]
        true = ops.logsumexp(ops.where(is_true, z, -1e9), axis=-1)
        others = ops.logsumexp(ops.where(is_true, -1e9, z), axis=-1)
        terms = [0.0 * true, np.log(alpha) + drain - true, others - true, others - drain - np.log(alpha)]
        return ops.logsumexp(ops.stack(terms), axis=0)

    return loss


def relaxed(weights, losses, gamma, step=0.5):
    """Returns weights of the examples after an update of Rockafellian relaxation (arXiv 2405.20531).

    Examples whose loss is over the least by more than gamma have none, and the example of the least loss has theirs;
    the update goes half of the way there.
    """
    target = np.where(losses > losses.min() + gamma, 0.0, 1.0)
    target[losses.argmin()] += len(losses) - target.sum()
    return (1.0 - step) * weights + step * target


def fit(model, parts, row, strength, epochs, callbacks):
    """Trains a model. If the row asks for it, the weights of the examples change after every epoch."""
    options = {"batch_size": BATCH, "verbose": 0, "callbacks": callbacks}
    if row != RRM:
        model.fit(parts.x, parts.y, epochs=epochs, **options)
        return
    weights = np.ones(len(parts.y))
    for _ in range(epochs):
        model.fit(parts.x, parts.y, sample_weight=weights, **options)
        log_p = log_softmax(model.predict(parts.x, batch_size=2048, verbose=0), axis=1)
        weights = relaxed(weights, -np.take_along_axis(log_p, parts.y[:, None], 1)[:, 0], strength)


def train(parts, name, temperature, penalty, seed, epochs, strength=None):
    """Returns the measures of every epoch of one training, and its processor seconds."""
    keras.utils.set_random_seed(1000 + seed)
    row, is_averaged = name.removesuffix(LONGER).removesuffix(AVERAGED), name.endswith(AVERAGED)
    model = keras.Sequential([keras.Input(parts.x.shape[1:]), *head_of(row, parts.units, temperature, penalty, seed)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if row != DRAINAGE else drainage(strength)
    model.compile(keras.optimizers.Adam(RATE), loss)
    record, start = Record(parts, is_averaged), time.process_time()
    fit(model, parts, row, strength, epochs * (3 if name.endswith(LONGER) else 1), [record])
    result = {"epochs": record.epochs, "processor": time.process_time() - start, **pairs(model, parts)}
    keras.utils.clear_session(free_memory=False)
    return result


def confusions(dataset):
    """Returns how often people confuse two classes, `(K, K)`, by the votes of the test or by the labels."""
    counts = np.zeros((dataset.units, dataset.units))
    if dataset.test_votes is None:
        np.add.at(counts, (dataset.truth.astype(int), dataset.labels.astype(int)), 1.0)
    else:
        np.add.at(
            counts, dataset.truth_test.astype(int), dataset.test_votes / dataset.test_votes.sum(axis=1, keepdims=True)
        )
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return shares + shares.T


def pairs(model, parts):
    """Returns rank correlations of people's confusions with the covariance, and with p_i p_j, over pairs of classes.

    A pair of which one or the other is true has a negative covariance. The product is what any head tells without one.
    """
    from scipy.special import softmax
    from scipy.stats import spearmanr

    from keras_het import HeteroscedasticDense
    from keras_het.explain import covariance

    above = np.triu_indices(parts.units, 1)
    p = softmax(model.predict(parts.x_test, batch_size=2048, verbose=0)[:, : parts.units].astype("float64"), axis=1)
    result = {"of p": float(spearmanr(parts.confusions[above], (p.T @ p)[above]).statistic)}
    if isinstance(model.layers[-1], HeteroscedasticDense):
        sigma = covariance(model, parts.x_test, batch_size=2048)
        deviation = np.sqrt(np.diag(sigma))
        result["of correlations"] = float(
            spearmanr(parts.confusions[above], -(sigma / np.outer(deviation, deviation))[above]).statistic
        )
        result["of covariances"] = float(spearmanr(parts.confusions[above], -sigma[above]).statistic)
    return result


def choices(row):
    """Yields the temperatures, L2 and strengths of a row."""
    if row in RIVALS:
        tried = [(temperature, strength) for temperature in (1.0, *NOISY[1:]) for strength in RIVALS[row]]
        return [{"temperature": temperature, "l2": 0.0, "strength": strength} for temperature, strength in tried]
    if row.startswith("Dense"):
        return [{"temperature": temperature, "l2": l2} for temperature in TEMPERATURES for l2 in PENALTIES]
    return [{"temperature": temperature, "l2": 0.0} for temperature in NOISY]


def run(options):
    """Trains the missing runs."""
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "real_heads.jsonl"
    for name in options.sets:
        dataset = features.of(name, options.data, options.cache)
        for size in options.sizes:
            for seed in range(options.seeds):
                parts = Parts(dataset, size, seed)
                keys = [
                    {"set": name, "size": size, "seed": seed, "row": row, **choice}
                    for row in options.rows
                    for choice in choices(row)
                ]

                def make(_, __, seed, row, *choice, parts=parts):
                    yield train(parts, row, *choice[:2], seed, options.epochs, *choice[2:])

                lines.completed(file, keys, make)


def chosen(records, criterion):
    """Returns the epoch of the best temperature, L2 and epoch by a noisy measure. The first wins a tie."""
    sign = -1.0 if criterion == "noisy nll" else 1.0
    return max((epoch for line in records for epoch in line["epochs"]), key=lambda epoch: sign * epoch[criterion])


def last(records):
    """Returns the last epoch of the temperature and L2 with the best noisy accuracy at that epoch."""
    return max((line["epochs"][-1] for line in records), key=lambda epoch: epoch["noisy accuracy"])


RULES = {
    "by noisy likelihood": lambda records: chosen(records, "noisy nll"),
    "by noisy accuracy": lambda records: chosen(records, "noisy accuracy"),
    "last epoch": last,
}
MEASURES = ("accuracy", "nll", "ece", "people", "kl", "entropies")


def table(records, rule):
    """Returns a row for each head: the measures, and its differences to Dense, seed by seed."""
    names = [name for name in MEASURES if name in records[0]["epochs"][0]]
    rows = [["head", *names, "accuracy - Dense's", "nll - Dense's"]]
    seeds = lines.distinct(records, "seed")
    best = {}
    for row in ROWS:
        own = [RULES[rule](part) for seed in seeds if (part := lines.select(records, row=row, seed=seed))]
        if len(own) == len(seeds):
            best[row] = own
            values = [lines.with_error([each[name] for each in own]) for name in names]
            gains = [
                lines.with_error([a[name] - b[name] for a, b in zip(own, best.get("Dense", own), strict=True)])
                for name in ("accuracy", "nll")
            ]
            rows.append([row, *values, *(gains if row != "Dense" else ["", ""])])
    return rows


def render(options):
    """Publishes the tables of the existing lines."""
    records = lines.read(options.output, "real_heads.jsonl")
    tables = {}
    for name in lines.distinct(records, "set"):
        for size in sorted({line["size"] for line in lines.select(records, set=name)}):
            own = lines.select(records, set=name, size=size)
            tables |= {f"{name}, {size} labels, {rule}": table(own, rule) for rule in RULES}
    publish(options.output, "real_heads", tables, sorted(lines.distinct(records, "seed")))


def main():
    """Runs the missing trainings, and makes the tables."""
    parser = features.experiment(__doc__, SETS, seeds=3)
    parser.add_argument("--sizes", nargs="+", type=int, default=[18_000])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    options = parser.parse_args()
    options.epochs = EPOCHS
    if options.quick:
        options.sizes, options.epochs, options.seeds = [2000], 2, 1
    if not options.render:
        run(options)
    render(options)


if __name__ == "__main__":
    main()
