"""Accuracy and likelihood of each head on frozen features, beside `Dense` with tuned temperatures.

python -m benchmarks.real.heads [--sets NAME ...] [--sizes 2000 18000] [--rows NAME ...] [--seeds 3]
                                [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Each head is trained for 20 epochs on nine tenths of the noisy labels. The other tenth, which is as noisy, chooses
temperature, L2 and the epoch, by its likelihood or by its accuracy. Clean test labels, and the votes of many people if
the set has any, are only measured. Every training is a line of JSON and runs once.

"pairs by p" and "pairs by covariance" are rank correlations, over all pairs of classes, of how often people confuse the
two with what the model says after its last epoch: the mean of p_i p_j, and minus the correlation of the two logits in
the mean covariance. People are those who voted on the test examples or, if the set has no votes, who labelled the
training examples.
"""

import time

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import features, plain

EPOCHS, BATCH, RATE = 20, 256, 1e-3
TEMPERATURES, PENALTIES = (1.0, 5.0, 10.0, 20.0), (0.0, 1e-4)
NOISY = (1.5, 5.0, 10.0)  # temperatures of heads with noise
UNTUNED = "Dense, temperature 1"  # row of the trainings of Dense without a temperature and L2
LOGISTIC = "logistic regression"  # of scikit-learn, with C by noisy accuracy
CLEAN = "clean"  # the classifier of `labels.clean`, which trains on the held-out labels as well
ROWS = ("Dense", LOGISTIC, CLEAN, "full", "parameter-efficient", "narrow", "diagonal")
SETS = ("CIFAR-10N worst", "CIFAR-10N aggregate", "CIFAR-10N random1", "CIFAR-100N", "Fashion-MNIST-H")


def head_of(row, units, temperature, penalty, seed):
    """Returns the layers of a row."""
    from keras_het import HeteroscedasticDense, covariances

    regularizer = keras.regularizers.L2(penalty) if penalty else None
    if row == "Dense":
        return [keras.layers.Dense(units, kernel_regularizer=regularizer), keras.layers.Rescaling(1.0 / temperature)]
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

    def __init__(self, parts, batch_size=2048):
        super().__init__()
        self.parts, self.batch_size, self.epochs = parts, batch_size, []

    def on_epoch_end(self, epoch, logs=None):
        parts = self.parts
        held, test = (self.model.predict(x, self.batch_size, verbose=0) for x in (parts.x_held, parts.x_test))
        self.epochs.append(measured(parts, held, test))


def measured(parts, held, test):
    """Returns the measures of log-probabilities or logits of the held-out and of the test examples."""
    noisy = plain.measures(held, parts.y_held)
    clean = plain.measures(test, parts.truth, parts.votes)
    return {f"noisy {name}": value for name, value in noisy.items()} | clean


def logistic_regression(parts, seed):
    """Returns log-probabilities of the held-out and of the test examples."""
    others = (parts.x_held, parts.y_held, parts.x_held, parts.x_test)
    return plain.logistic_regression(parts.x, parts.y, *others)[0]


def cleaned(parts, seed):
    """Returns log-probabilities of the held-out and of the test examples by the model that `labels.clean` trains."""
    from keras_het.labels import clean

    x, y = np.concatenate([parts.x, parts.x_held]), np.concatenate([parts.y, parts.y_held])
    model = clean(None, x, y, seed=seed, verbose=0).model
    return [model.predict(part, batch_size=2048, verbose=0) for part in (parts.x_held, parts.x_test)]


WITHOUT_EPOCHS = {LOGISTIC: logistic_regression, CLEAN: cleaned}


def train(parts, row, temperature, penalty, seed, epochs):
    """Returns the measures of every epoch of one training, and its processor seconds."""
    start = time.process_time()
    if row in WITHOUT_EPOCHS:
        epochs = [measured(parts, *WITHOUT_EPOCHS[row](parts, seed))]
        return {"epochs": epochs, "processor": time.process_time() - start}
    keras.utils.set_random_seed(1000 + seed)
    model = keras.Sequential([keras.Input(parts.x.shape[1:]), *head_of(row, parts.units, temperature, penalty, seed)])
    model.compile(keras.optimizers.Adam(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    record = Record(parts)
    model.fit(parts.x, parts.y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[record])
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
    """Returns rank correlations of people's confusions with p_i p_j, and with the correlations of the logits.

    A pair of which one or the other is true has a negative correlation. Any head can tell the product.
    """
    from scipy.special import softmax
    from scipy.stats import spearmanr

    from keras_het import HeteroscedasticDense
    from keras_het.explain import covariance

    above = np.triu_indices(parts.units, 1)
    p = softmax(model.predict(parts.x_test, batch_size=2048, verbose=0).astype("float64"), axis=1)
    told = {"pairs by p": p.T @ p}
    if isinstance(model.layers[-1], HeteroscedasticDense):
        sigma = covariance(model, parts.x_test, batch_size=2048)
        deviation = np.sqrt(np.diag(sigma))
        told["pairs by covariance"] = -sigma / np.outer(deviation, deviation)
    return {name: float(spearmanr(parts.confusions[above], each[above]).statistic) for name, each in told.items()}


def choices(row):
    """Returns the temperatures and L2 of a row. The rows without epochs choose their own."""
    if row == "Dense":
        return [{"temperature": temperature, "l2": l2} for temperature in TEMPERATURES for l2 in PENALTIES]
    return [{"temperature": temperature, "l2": 0.0} for temperature in ((1.0,) if row in WITHOUT_EPOCHS else NOISY)]


def run(options):
    """Trains the missing runs."""
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

                def make(_, __, seed, row, temperature, l2, parts=parts):
                    yield train(parts, row, temperature, l2, seed, options.epochs)

                lines.completed(file, keys, make)


def chosen(records, criterion):
    """Returns the best epoch of all trainings by a noisy measure, with its training. The first wins a tie."""
    sign = -1.0 if criterion == "noisy nll" else 1.0
    return max(
        (epoch | line for line in records for epoch in line["epochs"]), key=lambda epoch: sign * epoch[criterion]
    )


def last(records):
    """Returns the last epoch of the temperature and L2 with the best noisy accuracy at that epoch."""
    return max((line["epochs"][-1] | line for line in records), key=lambda epoch: epoch["noisy accuracy"])


RULES = {
    "by noisy likelihood": lambda records: chosen(records, "noisy nll"),
    "by noisy accuracy": lambda records: chosen(records, "noisy accuracy"),
    "last epoch": last,
}
MEASURES = ("accuracy", "nll", "ece", "people", "kl", "entropies", "pairs by p", "pairs by covariance")


def table(records, rule):
    """Returns a row for each head: the measures, and its differences to tuned Dense, seed by seed.

    The seconds are processor seconds of one training, the median.
    """
    names = [name for name in MEASURES if any(name in line or name in line["epochs"][0] for line in records)]
    rows = [["head", *names, "accuracy - Dense's", "nll - Dense's", "seconds", "seeds"]]
    dense = _by_seed(lines.select(records, row="Dense"), rule, len(choices("Dense")))
    for row in (UNTUNED, *ROWS):
        untuned = {"row": "Dense", "temperature": 1.0, "l2": 0.0}
        own = lines.select(records, **(untuned if row == UNTUNED else {"row": row}))
        count = 1 if row == UNTUNED else len(choices(row))
        best = {seed: epoch for seed, epoch in _by_seed(own, rule, count).items() if seed in dense}
        gains = [
            lines.with_error([best[seed][name] - dense[seed][name] for seed in best]) for name in ("accuracy", "nll")
        ]
        if best:
            values = [lines.with_error([each.get(name, np.nan) for each in best.values()]) for name in names]
            seconds = f"{np.median([line['processor'] for line in own]):.1f}"
            rows.append([row, *values, *(gains if row != "Dense" else ["", ""]), seconds, str(len(best))])
    return rows


def _by_seed(records, rule, count=1):
    """Returns the epoch of each seed that has all its trainings."""
    own = {seed: lines.select(records, seed=seed) for seed in lines.distinct(records, "seed")}
    return {seed: RULES[rule](each) for seed, each in own.items() if len(each) == count}


def temperatures(records):
    """Returns the accuracy at each temperature without L2, at the epoch of the best noisy accuracy."""
    columns = sorted({*TEMPERATURES, *NOISY})
    rows = [["head", *map("{:g}".format, columns)]]
    for row in ("Dense", "full"):
        own = [lines.select(records, row=row, temperature=each, l2=0.0) for each in columns]
        best = ([epoch["accuracy"] for epoch in _by_seed(part, "by noisy accuracy").values()] for part in own)
        rows.append([row, *(lines.with_error(values) if values else "" for values in best)])
    return rows


def render(options):
    """Publishes the tables of the existing lines."""
    records = lines.read(options.output, "real_heads.jsonl")
    tables = {}
    for name in lines.distinct(records, "set"):
        for size in sorted({line["size"] for line in lines.select(records, set=name)}):
            own = lines.select(records, set=name, size=size)
            tables |= {f"{name}, {size} labels, {rule}": table(own, rule) for rule in RULES}
            tables[f"{name}, {size} labels, accuracy by temperature"] = temperatures(own)
    publish(options.output, "real_heads", tables, sorted(lines.distinct(records, "seed")))


def main():
    """Runs the missing trainings, and makes the tables."""
    parser = features.experiment(__doc__, SETS, {"sizes": [2000], "epochs": 2, "seeds": 1}, seeds=3)
    parser.add_argument("--sizes", nargs="+", type=int, default=[18_000])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.set_defaults(epochs=EPOCHS)
    options = parser.parse_args()
    if not options.render:
        run(options)
    render(options)


if __name__ == "__main__":
    main()
