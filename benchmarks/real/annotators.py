"""Several annotators, people or rules: a T for each of them beside majority vote and Dawid-Skene before a classifier.

python -m benchmarks.real.annotators [--sets NAME ...] [--seeds 5] [--data FOLDER] [--cache FOLDER] [--output FOLDER]
                                     [--as-given] [--quick] [--render]

Every row gets the same votes; examples without one are left out. A tenth of the examples is held out: their votes, or
what is made of them, choose C of logistic regression, the epoch of Dense, the penalty and the epoch of T. The network
is that of CrowdLayer on LabelMe, 128 hidden units and half of them dropped out (Rodrigues and Pereira 2018); its L2 and
steps are those of guides/annotators.py; two rows are without dropout. Accuracy is on true test labels, which choose
nothing; "right in training" is of what is made of the votes, for T of T, votes and network. `choose` and `clean`
get features and votes, and hold out by themselves. Where abstaining is a
label, Dawid-Skene is the EM of `benchmarks.real.votes`, since `aggregate` has as many labels as classes.
"""

import functools
import time

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import features, plain
from benchmarks.real.votes import ABSTAIN, PLAN, TARGETS, by_dawid_skene, task_of
from keras_het.callbacks import TransitionMonitor
from keras_het.labels import annotators, choose, clean
from keras_het.layers import NoiseTransition
from keras_het.losses import AnnotatorsLoss

HIDDEN, DECAY, RATE, BATCH, EPOCHS = 128, 2e-3, 2e-3, 64, 40
STRENGTHS = (1e-4, 1e-3, 1e-2)  # of the penalty of T
T, STARTED = "a T for each", "a T for each, from Dawid-Skene"
DENSE, REGRESSION = "Dense", "logistic regression"
REFERENCE = f"majority + {DENSE}"
WHO = ("spammers named", "others named")
BARE = ", without dropout"
FEW = (REFERENCE, f"Dawid-Skene + {DENSE}", T, STARTED)  # rows of the changed votes
MODELS = {f"{target} + {model}": (target, model) for target in TARGETS for model in (DENSE, REGRESSION)}
del MODELS[f"shares of the votes + {REGRESSION}"]  # argmax of the shares is the majority
for other in ("crowd-kit's GLAD", "crowd-kit's M-MSR"):
    del MODELS[f"{other} + {DENSE}"]
BOUNDS = tuple(row for row in MODELS if row.startswith("true"))
CHOSEN, CLEANED = "choose, votes", "clean_labels, votes"
ENGINE = {  # by row, the model of features and votes
    CHOSEN: lambda x, votes, seed, epochs: choose(None, x, votes, epochs=epochs, folds=3, seed=seed, verbose=0).model,
    CLEANED: lambda x, votes, seed, epochs: clean(None, x, votes, seed=seed, verbose=0).model,
}
ROWS = (*ENGINE, *(row for row in MODELS if row not in BOUNDS), T, STARTED, REFERENCE + BARE, STARTED + BARE, *BOUNDS)


class Best(keras.callbacks.Callback):
    """The weights of the epoch with the least of a log."""

    def __init__(self, name):
        super().__init__()
        self.name, self.least, self.weights = name, np.inf, None

    def on_epoch_end(self, epoch, logs=None):
        """Keeps the weights if they are the best so far."""
        if self.weights is None or logs[self.name] < self.least:
            self.least, self.weights = logs[self.name], self.model.get_weights()
        self.last = logs[self.name]


class NoSuchClass(keras.layers.Layer):
    """Log-probabilities with one more class, which no example has: annotators who abstain have a label for it."""

    def call(self, inputs):
        """The new class is the last."""
        return keras.ops.concatenate([inputs, keras.ops.full_like(inputs[..., :1], -30.0)], axis=-1)


def network(task, loss, dropout, flips=(), share=1.0):
    """A compiled network; `share` of the labels are votes, and the penalty of its kernels is as much smaller."""
    kernels = keras.regularizers.L2(DECAY * share)
    hidden = keras.layers.Dense(HIDDEN, "relu", kernel_regularizer=kernels)
    last = keras.layers.Dense(task.units, "log_softmax", kernel_regularizer=kernels)
    model = keras.Sequential([keras.Input(task.x.shape[1:]), hidden, keras.layers.Dropout(dropout), last, *flips])
    model.compile(keras.optimizers.Adam(RATE), loss)
    return model


def by_dense(task, targets, dropout, train, held, seed, epochs):
    """A network trained on probabilities of the classes, and its best epoch."""
    keras.utils.set_random_seed(seed)
    loss, best = keras.losses.CategoricalCrossentropy(from_logits=True), Best("val_loss")
    model = network(task, loss, dropout)
    parts = [(task.x[part], targets[part].astype("float32")) for part in (train, held)]
    model.fit(*parts[0], validation_data=parts[1], batch_size=BATCH, epochs=epochs, callbacks=[best], verbose=0)
    return model, best


def by_flips(task, started, dropout, train, held, seed, epochs):
    """For each strength a network with a T for each annotator, and its best epoch."""
    size, share = task.units, 1.0
    if task.votes.max() >= size:  # abstaining is a label
        size, share = size + 1, float(np.mean(task.votes < size))
    start = by_dawid_skene(task)[1] if started else None
    for strength in STRENGTHS:
        keras.utils.set_random_seed(seed)
        penalty = keras.regularizers.L2(strength * share)
        flips = NoiseTransition(size, num_annotators=task.votes.shape[1], transition=start, regularizer=penalty)
        layers = [flips] if size == task.units else [NoSuchClass(), flips]
        model, best = network(task, AnnotatorsLoss(), dropout, layers, share), Best("val_noisy_nll")
        monitor = TransitionMonitor(validation_data=(task.x[held], task.votes[held]))
        parts = task.x[train], task.votes[train]
        model.fit(*parts, batch_size=BATCH, epochs=epochs, callbacks=[monitor, best], verbose=0)
        yield strength, model, best


def with_votes(model, task):
    """Classes of the training examples by network, T and votes together."""
    log_p = model.predict(task.x, batch_size=2048, verbose=0).astype("float64")
    log_t = np.log(keras.ops.convert_to_numpy(model.layers[-1].transition))
    for annotator, own in enumerate(task.votes.T):
        given = own >= 0
        log_p[given] += log_t[annotator][:, own[given]].T
    return log_p.argmax(axis=1)


def named(model, task):
    """Shares of the planted spammers, and of the others, who are named by `is_spammer`."""
    if not task.spammers.any():
        return None
    flags = np.array([one.is_spammer for one in annotators(model, task.votes).annotators])
    return [float(flags[who].mean()) for who in (task.spammers, ~task.spammers)]


def by_regression(task, y, train, held):
    """Classes of the test examples by logistic regression; Dawid-Skene may leave only one class to choose from."""
    classes = np.unique(y[train])
    if len(classes) == 1:
        return np.repeat(classes, len(task.x_test))
    (log_p,), _ = plain.logistic_regression(task.x[train], y[train], task.x[held], y[held], task.x_test)
    return classes[log_p.argmax(axis=1)]


def by_targets(row, task, dropout, train, held, seed, epochs):
    """Yields of a row that makes one target of the votes: epoch, classes of test and of training examples, more."""
    kind, model = MODELS[row]
    targets = TARGETS[kind](task, np.random.default_rng([seed, 6]))
    if targets is None:
        return
    y = targets.argmax(axis=1)
    if model == REGRESSION:
        yield "chosen", by_regression(task, y, train, held), y, {}
        return
    model, best = by_dense(task, targets, dropout, train, held, seed, epochs)
    yield "last", classes_of(model, task), y, {}
    model.set_weights(best.weights)
    yield "chosen", classes_of(model, task), y, {}


def by_transitions(row, task, dropout, train, held, seed, epochs):
    """The same of a row with a T for each annotator; the strength by the votes held out, at each of the two epochs."""
    found = list(by_flips(task, row == STARTED, dropout, train, held, seed, epochs))
    for epoch, value in (("last", "last"), ("chosen", "least")):
        strength, model, best = min(found, key=lambda each: getattr(each[2], value))
        if epoch == "chosen":
            model.set_weights(best.weights)
        more = {"strength": strength, "named": named(model, task)}
        yield epoch, classes_of(model, task), with_votes(model, task), more


def by_engine(row, task, dropout, train, held, seed, epochs):
    """The same of a call of the package, which holds out by itself; names of the classes are their numbers."""
    model = ENGINE[row](task.x, task.votes, seed, epochs)
    yield "chosen", classes_of(model, task), classes_of_training(model, task), {}


def classes_of_training(model, task):
    """Classes of the training examples by the model alone."""
    return model.predict(task.x, batch_size=2048, verbose=0).argmax(axis=1)


def classes_of(model, task):
    """Classes of the test examples."""
    return model.predict(task.x_test, batch_size=2048, verbose=0).argmax(axis=1)


def measured(options, name, change, seed, row):
    """The lines of a row: with the chosen epoch, and with the last one."""
    task, start = task_of(options, name, change, seed), time.process_time()
    parts, base = plain.split(task.truth, seed), row.removesuffix(BARE)
    make = by_engine if row in ENGINE else by_targets if base in MODELS else by_transitions
    dropout = 0.5 if base == row else 0.0
    for epoch, classes, right, more in make(base, task, dropout, *parts, seed, options.epochs):
        accuracies = {"accuracy": np.mean(classes == task.truth_test), "right": np.mean(right == task.truth)}
        seconds = time.process_time() - start
        yield {"epoch": epoch, **{key: float(each) for key, each in accuracies.items()}, "processor": seconds, **more}
    keras.utils.clear_session(free_memory=False)


def of_set(found):
    """A row for each method on the votes as they are; differences are to the reference, seed by seed."""
    columns = ["right in training", "accuracy", "points over the first row", "accuracy, last epoch"]
    found, table = lines.select(found, change=""), [["trained on", *columns]]
    chosen = lines.select(found, epoch="chosen")
    for row in (row for row in ROWS if lines.select(chosen, row=row)):
        own = lines.select(chosen, row=row)
        last = lines.select(found, row=row, epoch="last")
        values = [[line[name] for line in own] for name in ("right", "accuracy")]
        values += [differences(chosen, row), [line["accuracy"] for line in last] or [np.nan]]
        table.append([row, *map(lines.with_error, values)])
    return table


def differences(chosen, row):
    """Points of a row over the reference, of each seed that has both; nan for the reference itself."""
    of_seed = {line["seed"]: line["accuracy"] for line in lines.select(chosen, row=REFERENCE)}
    pairs = [(line["accuracy"], of_seed.get(line["seed"])) for line in lines.select(chosen, row=row)]
    return [100 * (own - other) for own, other in pairs if other is not None and row != REFERENCE] or [np.nan]


def of_changes(found, changes):
    """A row for each change of the votes, a column for each method: accuracy with the chosen epoch."""
    found = lines.select(found, epoch="chosen")
    table = [["set", "votes", *FEW]]
    for name in lines.distinct(found, "set"):
        for change in (change for change in PLAN[name] if change in changes):
            own = [lines.select(found, set=name, change=change, row=row) for row in FEW]
            if any(own):
                cells = [lines.with_error([line["accuracy"] for line in each]) if each else "" for each in own]
                table.append([name, change or "all", *cells])
    return table


def of_names(found):
    """Which share of the planted spammers, and of the others, is named."""
    table = [["set", "votes", "trained on", *WHO]]
    found = [line for line in lines.select(found, epoch="chosen") if line.get("named")]
    for name, change, row in dict.fromkeys((line["set"], line["change"], line["row"]) for line in found):
        own = lines.select(found, set=name, change=change, row=row)
        table.append([name, change, row, *map(lines.with_error, zip(*(line["named"] for line in own), strict=True))])
    return table


def rows_of(change):
    """The rows of a change; the majority is the same whatever abstaining is."""
    return ROWS if not change else FEW[1:] if change == ABSTAIN else FEW


def main():
    """Runs what is missing, and makes the tables."""
    parser = features.experiment(__doc__, tuple(PLAN), seeds=5, size=8000)
    parser.add_argument("--as-given", action="store_true", help="only the votes as they are")
    options = parser.parse_args()
    options.epochs = EPOCHS
    if options.quick:
        options.size, options.epochs, options.seeds, options.sets = 500, 5, 1, options.sets[:2]
    options.output.mkdir(parents=True, exist_ok=True)
    keys = [
        {"set": name, "change": change, "seed": seed, "row": row}
        for name in options.sets
        for change in (PLAN[name][:1] if options.quick or options.as_given else PLAN[name])
        for seed in range(options.seeds)
        for row in rows_of(change)
    ]
    found = lines.read(options.output, "real_annotators.jsonl")
    if not options.render:
        make = functools.partial(measured, options)
        found = lines.completed(options.output / "real_annotators.jsonl", keys, make)
    tables = {name: of_set(lines.select(found, set=name)) for name in lines.distinct(found, "set")}
    people = [line for line in found if ABSTAIN not in PLAN[line["set"]]]
    tables["few votes"] = of_changes(people, ("", "one vote each", "two votes each", "nobody below 20 votes"))
    tables["spammers"] = of_changes(people, ("", *(f"{count} spammers" for count in (10, 30, 50))))
    tables["who is named"] = of_names(found)
    tables["abstaining"] = of_changes([line for line in found if line not in people], ("", ABSTAIN))
    publish(options.output, "real_annotators", tables, sorted(lines.distinct(found, "seed")))


if __name__ == "__main__":
    main()
