"""A training of a head on a task of the atlas, and how far it ends from the floor."""

import time

import keras
import numpy as np
from scipy.special import log_softmax, logsumexp, xlogy

from benchmarks.floors import tasks
from benchmarks.floors.bounds import gap
from benchmarks.floors.limits import CRITERIA
from benchmarks.labels import recipe
from benchmarks.lib.tasks import GROUP

METHODS = (
    "Dense",
    "diagonal",
    "full",
    "parameter-efficient",
    "normalized sigmoid, diagonal",
    "normalized sigmoid, full",
)
BATCH = 100  # divides all sizes, so that a program is compiled for one size
TEMPERATURES = {10: 5.0, 100: 15.0, 1000: 15.0}  # of all methods, by the number of classes
MEASURED = (
    "distance",
    "distance of the group",
    "distance within the group",
    "noisy NLL",
    "noisy accuracy",
    "clean accuracy",
    "clean ECE",
    "clean NLL",
)


class BestEpochs(keras.callbacks.Callback):
    """The weights of the best epoch by each of `CRITERIA`, of equals the first: `{criterion: (epoch, weights)}`."""

    def __init__(self, validation):
        super().__init__()
        self.validation, self.scores, self.best = validation, dict.fromkeys(CRITERIA, -np.inf), {}

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        log_p, labels = predict(self.model, self.validation.x), self.validation.y
        found = np.mean(log_p.argmax(axis=1) == labels), log_p[np.arange(len(labels)), labels].mean()
        for criterion, score in zip(CRITERIA, found, strict=True):
            if score > self.scores[criterion]:
                self.scores[criterion], self.best[criterion] = score, (epoch + 1, self.model.get_weights())


def predict(model, x):
    """Log-probabilities, `(N, K)`."""
    return log_softmax(model.predict(x, batch_size=1000, verbose=0).astype("float64"), axis=-1)


def run(name, units, per_class, method, seed):
    """One line of the results: the key, and for each of `CRITERIA` the epoch and `MEASURED`.

    Of each figure there are the value and its standard error over the test examples.
    """
    start, noise = time.perf_counter(), tasks.NOISES[name]
    task, test = tasks.make(noise, units, per_class, seed)
    model, callback = started(task, method, seed), BestEpochs(task.validation)
    model.fit(*task.train, batch_size=BATCH, epochs=task.epochs, verbose=0, callbacks=[callback])
    choices = {}
    for criterion, (epoch, weights) in callback.best.items():
        model.set_weights(weights)
        found = measured(predict(model, test.x), test, noise)
        figures = {name: [values.mean(), values.std() / np.sqrt(len(values))] for name, values in found.items()}
        choices[criterion] = {"epoch": epoch, "figures": figures}
    key = {"noise": name, "units": units, "per_class": per_class, "method": method, "seed": seed}
    return {**key, "temperature": TEMPERATURES[units], "seconds": time.perf_counter() - start, "choices": choices}


def started(task, method, seed):
    """A model at the start of a training: that of a size and method is compiled once, and begins anew."""
    fresh = recipe.make_model(task, recipe.Setting(method, TEMPERATURES[task.units]), seed)
    return begin(compiled(task, method), fresh.get_weights())


def begin(model, weights):
    """The model with these weights, and with an optimizer that has not made a step."""
    model.set_weights(weights)
    for variable in model.optimizer.variables[2:]:  # the first are the number of steps and the learning rate
        variable.assign(np.zeros(variable.shape))
    model.optimizer.iterations.assign(0)
    return model


MODELS = {}


def compiled(task, method):
    """The model of a size and a method."""
    if (task.units, method) not in MODELS:
        MODELS[task.units, method] = recipe.make_model(task, recipe.Setting(method, TEMPERATURES[task.units]), 0)
    return MODELS[task.units, method]


def measured(log_p, test, noise):
    """`MEASURED` of each example, `{name: (N,)}`.

    The distance is the divergence of p(noisy | x) from what is predicted: its mean is the noisy NLL less its floor,
    without the chance of drawn labels. That of the group is the divergence of the groups' probabilities, and the rest
    is within the group.
    """
    p = tasks.posterior(test.x, log_p.shape[1])
    q = tasks.noisy(p, tasks.rate_of(noise, test.x), noise.flip).astype("float64")
    of_groups = logsumexp(log_p.reshape(len(log_p), -1, GROUP), axis=-1)
    whole, group = divergence(q, log_p), divergence(tasks.by_group(q), of_groups)
    rows, best = np.arange(len(log_p)), log_p.argmax(axis=1)
    right, nll = best == test.y, -log_p[rows, test.y]
    ece = gap(np.exp(log_p.max(axis=1)), right)
    noisy = -log_p[rows, test.noisy], best == test.noisy
    return dict(zip(MEASURED, [whole, group, whole - group, *noisy, right, ece, nll], strict=True))


def divergence(q, log_p):
    """Kullback and Leibler's, of each example, `(N, K)` to `(N,)`."""
    return (xlogy(q, q) - q * log_p).sum(axis=1)
