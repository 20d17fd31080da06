"""Accuracy with a T for each annotator or rule, beside Dawid-Skene and majority vote.

python -m benchmarks.real.annotators [--sets NAME ...] [--rows NAME ...] [--seeds 5] [--size 8000] [--as-given]
                                     [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

Every row gets the same votes; examples without a vote are left out. A tenth of the examples is held out. Their votes,
or the labels made from them, choose C of logistic regression, the epoch of Dense, and the penalty and epoch of T. The
network is CrowdLayer's on LabelMe: 128 hidden units, half of them dropped out (Rodrigues and Pereira 2018). Its L2 and
steps come from guides/annotators.py. Two rows train without dropout. Accuracy is on true test labels, which choose
nothing. "right in training" scores the labels made from the votes; for T it uses T, votes and network together.
`clean` gets features and votes, and holds out examples by itself. If abstaining is a label, Dawid-Skene
is the EM of `benchmarks.real.votes`, because `aggregate` has as many labels as classes.
"""

import time

import keras
import numpy as np

from benchmarks.lib import experiments, lines
from benchmarks.real import features, plain
from benchmarks.real.votes import ABSTAIN, PLAN, TARGETS, dawid_skene, task_of
from keras_het.callbacks import TransitionMonitor
from keras_het.labels import aggregate, clean
from keras_het.layers import NoiseTransition
from keras_het.losses import AnnotatorsLoss

HIDDEN, DECAY, RATE, BATCH, EPOCHS = 128, 2e-3, 2e-3, 64, 40
STRENGTHS = (1e-4, 1e-3, 1e-2)  # ridge penalty of T
T, STARTED = "a T for each", "a T for each, from Dawid-Skene"
DENSE, REGRESSION = "Dense", "logistic regression"
REFERENCE = f"majority + {DENSE}"
BARE = ", without dropout"
FEW = (REFERENCE, f"Dawid-Skene + {DENSE}", T, STARTED)  # rows of the changed votes
MODELS = {f"{target} + {model}": (target, model) for target in TARGETS for model in (DENSE, REGRESSION)}
del MODELS[f"shares of the votes + {REGRESSION}"]  # argmax of the shares is the majority
for other in ("crowd-kit's GLAD", "crowd-kit's M-MSR"):
    del MODELS[f"{other} + {DENSE}"]
BOUNDS = tuple(row for row in MODELS if row.startswith("true"))
CLEANED, CLEANED_MAJORITY = "clean, votes", "clean, majority"
ENGINE = {  # by row, the model of features and votes
    CLEANED: lambda x, votes, seed: clean(None, x, votes=votes, seed=seed, verbose=0).model,
    CLEANED_MAJORITY: lambda x, votes, seed: clean(None, x, majority(votes, seed), seed=seed, verbose=0).model,
}
ROWS = (*ENGINE, *(row for row in MODELS if row not in BOUNDS), T, STARTED, REFERENCE + BARE, STARTED + BARE, *BOUNDS)


def majority(votes, seed):
    """Returns the most frequent label of each example, one of them at random if several are."""
    counts = aggregate(votes, method="majority").probabilities
    y = (counts + 1e-6 * np.random.default_rng([seed, 6]).random(counts.shape)).argmax(axis=1)
    if len(np.unique(y)) <= votes.max():  # `clean` numbers the classes that it gets
        raise ValueError(f"No majority for some of the {votes.max() + 1} classes")
    return y


class Best(keras.callbacks.Callback):
    """Weights of the epoch with the lowest value of a log."""

    def __init__(self, name):
        super().__init__()
        self.name, self.least, self.weights = name, np.inf, None

    def on_epoch_end(self, epoch, logs=None):
        """Keeps the weights if they are the best so far."""
        if self.weights is None or logs[self.name] < self.least:
            self.least, self.weights = logs[self.name], self.model.get_weights()
        self.last = logs[self.name]


class NoSuchClass(keras.layers.Layer):
    """Log-probabilities with an additional class without examples. Annotators who abstain have a label for it."""

    def call(self, inputs):
        """Appends the new class at the end."""
        return keras.ops.concatenate([inputs, keras.ops.full_like(inputs[..., :1], -30.0)], axis=-1)


def network(task, loss, dropout, flips=(), share=1.0):
    """Returns a compiled network.

    A fraction `share` of the labels are votes, which scales the penalty of its kernels.
    """
    kernels = keras.regularizers.L2(DECAY * share)
    hidden = keras.layers.Dense(HIDDEN, "relu", kernel_regularizer=kernels)
    last = keras.layers.Dense(task.units, "log_softmax", kernel_regularizer=kernels)
    model = keras.Sequential([keras.Input(task.x.shape[1:]), hidden, keras.layers.Dropout(dropout), last, *flips])
    model.compile(keras.optimizers.Adam(RATE), loss)
    return model


def dense_model(task, targets, dropout, train, held, seed, epochs):
    """Returns a network trained on class probabilities, and its best epoch."""
    keras.utils.set_random_seed(seed)
    loss, best = keras.losses.CategoricalCrossentropy(from_logits=True), Best("val_loss")
    model = network(task, loss, dropout)
    parts = [(task.x[part], targets[part].astype("float32")) for part in (train, held)]
    model.fit(*parts[0], validation_data=parts[1], batch_size=BATCH, epochs=epochs, callbacks=[best], verbose=0)
    return model, best


def transition_models(task, started, dropout, train, held, seed, epochs):
    """Yields for each strength a network with a T for each annotator, and its best epoch."""
    size, share = task.units, 1.0
    if task.votes.max() >= size:  # abstaining is a label
        size, share = size + 1, float(np.mean(task.votes < size))
    start = dawid_skene(task)[1] if started else None
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
    """Returns classes of the training examples by network, T and votes together."""
    log_p = model.predict(task.x, batch_size=2048, verbose=0).astype("float64")
    log_t = np.log(keras.ops.convert_to_numpy(model.layers[-1].transition))
    for annotator, own in enumerate(task.votes.T):
        is_vote = own >= 0
        log_p[is_vote] += log_t[annotator][:, own[is_vote]].T
    return log_p.argmax(axis=1)


def regression_classes(task, y, train, held):
    """Returns classes of the test examples by logistic regression, also if Dawid-Skene leaves only one class."""
    classes = np.unique(y[train])
    if len(classes) == 1:
        return np.repeat(classes, len(task.x_test))
    (log_p,), _ = plain.logistic_regression(task.x[train], y[train], task.x[held], y[held], task.x_test)
    return classes[log_p.argmax(axis=1)]


def target_rows(row, task, dropout, train, held, seed, epochs):
    """Yields results of a row that turns the votes into one target: epoch, test and training classes, more."""
    kind, model = MODELS[row]
    targets = TARGETS[kind](task, np.random.default_rng([seed, 6]))
    if targets is None:
        return
    y = targets.argmax(axis=1)
    if model == REGRESSION:
        yield "chosen", regression_classes(task, y, train, held), y, {}
        return
    model, best = dense_model(task, targets, dropout, train, held, seed, epochs)
    yield "last", classes_of(model, task), y, {}
    model.set_weights(best.weights)
    yield "chosen", classes_of(model, task), y, {}


def transition_rows(row, task, dropout, train, held, seed, epochs):
    """Yields the results of a row with a T for each annotator. Held-out votes choose the strength."""
    models = list(transition_models(task, row == STARTED, dropout, train, held, seed, epochs))
    for epoch, value in (("last", "last"), ("chosen", "least")):
        strength, model, best = min(models, key=lambda each: getattr(each[2], value))
        if epoch == "chosen":
            model.set_weights(best.weights)
        more = {"strength": strength}
        yield epoch, classes_of(model, task), with_votes(model, task), more


def engine_rows(row, task, dropout, train, held, seed, epochs):
    """Yields the results of a call of the package, which holds out examples itself."""
    model = ENGINE[row](task.x, task.votes, seed)
    yield "chosen", classes_of(model, task), classes_of_training(model, task), {}


def classes_of_training(model, task):
    """Returns classes of the training examples by the model alone."""
    return model.predict(task.x, batch_size=2048, verbose=0).argmax(axis=1)


def classes_of(model, task):
    """Returns classes of the test examples."""
    return model.predict(task.x_test, batch_size=2048, verbose=0).argmax(axis=1)


def measured(options, name, change, seed, row):
    """Yields the lines of a row: with the chosen epoch, and with the last one."""
    task, start = task_of(options, name, change, seed), time.process_time()
    parts, base = plain.split(task.truth, seed), row.removesuffix(BARE)
    make = engine_rows if row in ENGINE else target_rows if base in MODELS else transition_rows
    dropout = 0.5 if base == row else 0.0
    for epoch, classes, right, more in make(base, task, dropout, *parts, seed, options.epochs):
        accuracies = {"accuracy": np.mean(classes == task.truth_test), "right": np.mean(right == task.truth)}
        seconds = time.process_time() - start
        yield {"epoch": epoch, **{key: float(each) for key, each in accuracies.items()}, "processor": seconds, **more}
    keras.utils.clear_session(free_memory=False)


def set_table(records):
    """Returns a row for each method on unchanged votes, with differences to the reference, seed by seed."""
    columns = ["right in training", "accuracy", "points over the first row", "accuracy, last epoch"]
    records, table = lines.select(records, change=""), [["trained on", *columns]]
    chosen = lines.select(records, epoch="chosen")
    reference = lines.select(chosen, row=REFERENCE)
    for row in (row for row in ROWS if lines.select(chosen, row=row)):
        own = lines.select(chosen, row=row)
        last = lines.select(records, row=row, epoch="last")
        points = 100 * lines.paired(own, [] if row == REFERENCE else reference, "accuracy")
        values = (points, [line["accuracy"] for line in last])
        table.append([row, *lines.means(own, ("right", "accuracy")), *map(lines.with_error, values)])
    return table


def change_table(records, changes):
    """Returns the accuracy with the chosen epoch: a row for each change of the votes, a column for each method."""
    records = lines.select(records, epoch="chosen")
    table = [["set", "votes", *FEW]]
    for name in lines.distinct(records, "set"):
        for change in (change for change in PLAN[name] if change in changes):
            own = [lines.select(records, set=name, change=change, row=row) for row in FEW]
            if any(own):
                cells = [lines.with_error([line["accuracy"] for line in each]) if each else "" for each in own]
                table.append([name, change or "all", *cells])
    return table


def rows_of(change):
    """Returns the rows of a change. The majority is the same whatever abstaining means."""
    return ROWS if not change else FEW[1:] if change == ABSTAIN else FEW


AS_GIVEN = {"action": "store_true", "help": "only the votes as they are"}


def keys(options):
    """Yields the keys of all runs."""
    for name in options.sets:
        for change in PLAN[name][:1] if options.as_given else PLAN[name]:
            for key in experiments.product(options, "seed", "row"):
                if key["row"] in rows_of(change):
                    yield {"set": name, "change": change, **key}


def tables(records):
    """Returns the tables of the sets, and of the changes of the votes."""
    made = {name: set_table(lines.select(records, set=name)) for name in lines.distinct(records, "set")}
    people = [line for line in records if ABSTAIN not in PLAN[line["set"]]]
    made["few votes"] = change_table(people, ("", "one vote each", "two votes each", "nobody below 20 votes"))
    made["spammers"] = change_table(people, ("", *(f"{count} spammers" for count in (10, 30, 50))))
    made["abstaining"] = change_table([line for line in records if line not in people], ("", ABSTAIN))
    return made


def main():
    options = {"sets": tuple(PLAN), "rows": ROWS, "seeds": 5, "size": 8000, "as_given": AS_GIVEN} | features.FOLDERS
    quick, fixed = {"size": 500, "epochs": 5, "seeds": 1, "as_given": True}, {"epochs": EPOCHS}
    settings = {"keys": keys, "settings": ("size",)}
    experiments.run(__doc__, "real_annotators", measured, tables, options, quick, fixed, **settings)


if __name__ == "__main__":
    main()
