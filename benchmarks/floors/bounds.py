"""Bounds: what the best possible model of a task has, and what the same model is as a prediction of the true classes.

Three figures bound every model: the noisy NLL from below, noisy and clean accuracy from above. The others are
reference points: they are those of the ideal p(noisy label | x), read as if it were of the true class, and a model can
be better at them, for it can be nearer to the true classes than to the labels.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import entr, xlogy

from benchmarks.floors import tasks
from benchmarks.lib.tasks import FEATURES, GROUP, SPREAD, group_centers

FLOORS, CEILINGS = ("noisy NLL",), ("noisy accuracy", "clean accuracy")
PARTS = ("noisy NLL of the group", "noisy NLL within the group")  # they sum to the noisy NLL
REFERENCES = ("ideal: clean accuracy", "ideal: clean ECE", "ideal: clean NLL")
FIGURES = (*FLOORS, *PARTS, *CEILINGS, *REFERENCES)
BINS = 15
ELEMENTS = 1 << 21  # of a block of probabilities


class Figure(NamedTuple):
    """A mean, its standard error, and the standard deviation of one example."""

    value: float
    error: float
    deviation: float


def bounds(noise, units, count, seed=0):
    """Bounds and reference points of a task, `{name of a figure: Figure}`.

    Each class has as many draws of its cluster as any other. The rest is exact: the last coordinate by its two signs,
    the labels by their probabilities.
    """
    parts = []
    for x in blocks(units, count, seed):
        p = tasks.posterior(x, units)
        parts.append(np.stack([of_posteriors(p, tasks.noisy(p, rate, noise.flip)) for rate in noise.rates], axis=1))
    return summary(np.concatenate(parts, axis=2))


def blocks(units, count, seed):
    """Draws of the clusters, each class in turn, `(N, D + 1)` at a time."""
    rng = np.random.default_rng([seed, 3])
    centers, size = group_centers(units), ELEMENTS // units
    for start in range(0, count, size):
        y = np.arange(start, min(start + size, count)) % units
        x = centers[y] + SPREAD * rng.normal(size=(len(y), FEATURES))
        yield np.pad(x, ((0, 0), (0, 1))).astype("float32")


def of_posteriors(p, q):
    """What `summary` takes, of each example, expected over its labels, from p(true | x) and p(noisy | x), `(N, K)`."""
    rows, best = np.arange(len(p)), q.argmax(axis=1)
    whole, group = (entr(each).sum(axis=1) for each in (q, tasks.by_group(q)))
    clean = -xlogy(p, np.maximum(q, np.finfo(q.dtype).tiny)).sum(axis=1)  # a q below it is 0, and p is not
    return np.stack([whole, group, whole - group, q.max(axis=1), p.max(axis=1), p[rows, best], clean, q.max(axis=1)])


def simulated(noise, units, count, seed=0):
    """`bounds` by another way: labels are drawn, as for a training, and the ideal model is scored on them."""
    size = ELEMENTS // units
    parts = []
    for number, start in enumerate(range(0, count, size)):
        drawn = tasks.draw(noise, units, min(size, count - start), [seed, 4, number])
        p = tasks.posterior(drawn.x, units)
        parts.append(of_labels(p, tasks.noisy(p, tasks.rate_of(noise, drawn.x), noise.flip), drawn))
    return summary(np.concatenate(parts, axis=1)[:, None])


def of_labels(p, q, drawn):
    """What `summary` takes, of each example, for its drawn labels."""
    rows, best = np.arange(len(p)), q.argmax(axis=1)
    whole, group = -np.log(q[rows, drawn.noisy]), -np.log(tasks.by_group(q)[rows, drawn.noisy // GROUP])
    hits = (best == drawn.noisy, p.argmax(axis=1) == drawn.y, best == drawn.y)
    return np.stack([whole, group, whole - group, *hits, -np.log(q[rows, drawn.y]), q.max(axis=1)])


def summary(values):
    """`Figure`s of the values of each example, `(8, M, N)`: the mean over M is that of one draw."""
    *simple, right, nll, confidence = values.astype("float64")
    return {
        name: figure(each) for name, each in zip(FIGURES, [*simple, right, gap(confidence, right), nll], strict=True)
    }


def figure(values):
    """Mean, standard error and deviation of values `(M, N)`."""
    return Figure(values.mean(), values.mean(axis=0).std() / np.sqrt(values.shape[1]), values.std())


def gap(confidence, right):
    """Values whose mean is the ECE: how far an example is right less often than it is sure, by the sign of its bin."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    signs = np.sign(np.bincount(bins.ravel(), (right - confidence).ravel(), minlength=BINS))
    return signs[bins] * (right - confidence)
