"""Tasks whose distribution is known: Gaussian clusters in groups of look-alikes, and four kinds of wrong labels.

An example has the coordinates of its cluster and one more, on whose sign the rate of flips may depend. So
p(true class | x) and p(noisy label | x) are functions of x, which `posterior` and `noisy` return.
"""

from typing import NamedTuple

import numpy as np

from benchmarks.lib import tasks

VALIDATION, TEST = 2000, 4000
LENGTHS = {  # by the number of classes: examples between two looks at the validation labels, and of the whole training
    10: (2_000, 48_000),
    100: (4_000, 160_000),
    1000: (20_000, 320_000),
}


class NextGroup:
    """A flip to one other class: the one at the same place of the next group."""

    def draw(self, y, p, rng):
        """The class that each true class is taken for, `(N,)`; `p` is p(true | x), `(N, K)`."""
        return (y + tasks.GROUP) % p.shape[1]

    def spread(self, p):
        """The probabilities of these classes, of p(true | x), `(N, K)`."""
        return np.roll(p, tasks.GROUP, axis=1)


class OwnGroup:
    """A flip to any other class of the group."""

    def draw(self, y, p, rng):
        """The class that each true class is taken for, `(N,)`; `p` is p(true | x), `(N, K)`."""
        return tasks.other_of_group(y, rng)

    def spread(self, p):
        """The probabilities of these classes, of p(true | x), `(N, K)`."""
        return (np.repeat(by_group(p), tasks.GROUP, axis=1) - p) / (tasks.GROUP - 1)


class MostAlike:
    """A flip to the class that the example looks most like: the most probable of the others."""

    def draw(self, y, p, rng):
        """The class that each true class is taken for, `(N,)`; `p` is p(true | x), `(N, K)`."""
        others = p.copy()
        others[np.arange(len(y)), y] = -1.0
        return others.argmax(axis=1)

    def spread(self, p):
        """The probabilities of these classes, of p(true | x), `(N, K)`."""
        rows, (second, first) = np.arange(len(p)), np.argpartition(p, (-2, -1), axis=1)[:, -2:].T
        moved = np.zeros_like(p)
        moved[rows, second], moved[rows, first] = p[rows, first], 1.0 - p[rows, first]
        return moved


class Noise(NamedTuple):
    """A kind of wrong labels.

    Attributes:
        rates: of flips, where the last coordinate is negative, and where it is positive.
        flip: where a flip goes: `draw` a class for each true one, or `spread` probabilities of the true ones, `(N, K)`.
    """

    rates: tuple[float, float]
    flip: NextGroup | OwnGroup | MostAlike


SAME, BY_INPUT = (0.4, 0.4), (0.05, 0.75)
NOISES = {
    "by class": Noise(SAME, NextGroup()),
    "by group": Noise(SAME, OwnGroup()),
    "by group, rate by input": Noise(BY_INPUT, OwnGroup()),
    "look-alike, rate by input": Noise(BY_INPUT, MostAlike()),
}
SIZES = ((10, 20), (10, 100), (100, 20), (100, 100), (1000, 20))  # classes, and training examples of each


class Draw(NamedTuple):
    """Examples `(N, D + 1)`, their true and their noisy labels, `(N,)`."""

    x: np.ndarray
    y: np.ndarray
    noisy: np.ndarray


def posterior(x, units):
    """p(true class | x) of examples, `(N, D + 1)` to `(N, K)`; the last coordinate says nothing of the class."""
    centers = tasks.group_centers(units).astype("float32")
    scores = (x[:, :-1] @ centers.T - np.square(centers).sum(axis=1) / 2) / np.float32(tasks.SPREAD**2)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def noisy(p, rate, flip):
    """p(noisy label | x) of p(true class | x), `(N, K)`, and the rate of flips, `(N, 1)` or a number."""
    return (1.0 - rate) * p + rate * flip.spread(p)


def rate_of(noise, x):
    """The rate of flips at each example, `(N, 1)`."""
    return np.where(x[:, -1:] > 0, noise.rates[1], noise.rates[0]).astype("float32")


def by_group(p):
    """Probabilities of the groups, `(N, K)` to `(N, K / GROUP)`."""
    return p.reshape(len(p), -1, tasks.GROUP).sum(axis=2)


def draw(noise, units, count, seed):
    """Examples with true and noisy labels, drawn as the noise says."""
    rng = np.random.default_rng(seed)
    y = rng.integers(units, size=count)
    centers = tasks.group_centers(units)[y]
    x = np.hstack([centers + tasks.SPREAD * rng.normal(size=centers.shape), rng.normal(size=(count, 1))])
    x = x.astype("float32")
    flipped = rng.random(count) < rate_of(noise, x)[:, 0]
    return Draw(x, y, np.where(flipped, noise.flip.draw(y, posterior(x, units), rng), y))


def make(noise, units, per_class, seed):
    """The task of a training with noisy labels, and the `Draw` that measures it.

    Few examples are repeated, so that an epoch is a look at the validation labels, not a pass.
    """
    train, validation, test = (
        draw(noise, units, count, [seed, part]) for part, count in enumerate((units * per_class, VALIDATION, TEST))
    )
    look, whole = LENGTHS[units]
    passes = max(1, look // len(train.y))
    repeated = tasks.Split(np.tile(train.x, (passes, 1)), np.tile(train.noisy, passes))
    splits = (repeated, tasks.Split(validation.x, validation.noisy), tasks.Split(test.x, test.y))
    return tasks.Task(*splits, units, whole // len(repeated.y), tasks.dense(256)), test
