"""Seven kinds of noise, with about as many label errors each, on one set of data."""

from typing import NamedTuple

import numpy as np

from benchmarks.lib import tasks
from keras_het.labels import corrupt, pair_flip, symmetric
from keras_het.labels.synthetic import look_alike_transitions

RATE, SYMMETRIC, SEEN = 0.4, 0.45, 2  # rates of label errors; examples of each class that a weak rater sees


class Noisy(NamedTuple):
    """Examples `(N, ...)`, their true labels `(N,)`, -1 for outliers, and distributions of their labels `(N, K)`."""

    x: np.ndarray
    y: np.ndarray
    rows: np.ndarray


def matrix_noise(make):
    """Returns a noise that flips labels by a T, a function of the number of classes and the seed."""
    return lambda x, y, seed: Noisy(x, y, make(y.max() + 1, seed)[y])


def random_flip(size, rate, seed):
    """Returns T of flips to random targets: 1 - rate on the diagonal, the rest of each row uniform on the simplex."""
    transition, others = (1.0 - rate) * np.eye(size), ~np.eye(size, dtype=bool)
    transition[others] = rate * np.random.default_rng(seed).dirichlet(np.ones(size - 1), size=size).ravel()
    return transition


def look_alikes(x, y, seed):
    """Returns flips to the class that an example looks most like."""
    return Noisy(x, y, look_alike_transitions(_flat(x), y, RATE))


def weak_raters(x, y, seed):
    """Returns labels that come from one of five small models."""
    return Noisy(x, y, np.eye(y.max() + 1)[answers(_flat(x), y, SEEN, seed)].mean(axis=1))


def answers(x, y, per_class, seed):
    """Returns answers of five models, `(N, 5)`. They err on hard examples, often alike.

    Each model learns `per_class` clean examples of every class, and then labels all examples. Fewer examples make more
    errors.
    """
    from sklearn import linear_model, naive_bayes, neighbors, neural_network, tree

    models = (
        neighbors.KNeighborsClassifier(1),
        tree.DecisionTreeClassifier(max_depth=6, random_state=0),
        naive_bayes.GaussianNB(var_smoothing=1e-2),
        linear_model.RidgeClassifier(),
        neural_network.MLPClassifier((8,), solver="lbfgs", alpha=1.0, max_iter=50_000, random_state=0),
    )
    x, rng, columns = x.astype("float64"), np.random.default_rng(seed), []
    for model in models:
        seen = np.concatenate([rng.permutation(np.flatnonzero(y == k))[:per_class] for k in range(y.max() + 1)])
        columns.append(model.fit(x[seen], y[seen]).predict(x))
    return np.stack(columns, axis=1)


def outliers(x, y, seed):
    """Returns out-of-distribution examples with any label: shuffled pixels, or means of two classes."""
    rng = np.random.default_rng(seed)
    chosen = rng.random(len(y)) < RATE
    others = np.array([rng.choice(np.flatnonzero(y != label)) for label in y])
    shuffled = rng.permuted(_flat(x), axis=1).reshape(x.shape)
    is_mixture = (rng.random(len(y)) < 0.5).reshape(-1, *[1] * (x.ndim - 1))
    strange = np.where(is_mixture, (x + x[others]) / 2, shuffled)
    rows = np.where(chosen[:, None], 1.0 / (y.max() + 1), np.eye(y.max() + 1)[y])
    return Noisy(np.where(chosen.reshape(is_mixture.shape), strange, x), np.where(chosen, -1, y), rows)


def _flat(x):
    return x.reshape(len(x), -1)


def digits():
    """Returns scikit-learn's digits, sizes of training and validation, epochs, and the network."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x / 16.0).astype("float32"), y, (1024, 256), 50, tasks.dense(128, 128)


NOISES = {
    "none": matrix_noise(lambda size, seed: np.eye(size)),
    "symmetric": matrix_noise(lambda size, seed: symmetric(size, SYMMETRIC)),
    "pair": matrix_noise(lambda size, seed: pair_flip(size, RATE)),
    "random": matrix_noise(lambda size, seed: random_flip(size, SYMMETRIC, seed)),
    "look-alike": look_alikes,
    "weak raters": weak_raters,
    "outliers": outliers,
}


def make(noise, seed):
    """Returns the task of digits. Training and validation data are noisy, the test is clean."""
    x, y, sizes, epochs, backbone = digits()
    order, known = np.random.default_rng([seed, 1]).permutation(len(y)), sum(sizes)
    x, y = x[order], y[order]
    noisy = NOISES[noise](x[:known], y[:known], [seed, 3])
    labels = corrupt(y[:known], rows=noisy.rows, seed=[seed, 2])
    splits = (tasks.Split(noisy.x[part], labels[part]) for part in (slice(sizes[0]), slice(sizes[0], known)))
    return tasks.Task(*splits, tasks.Split(x[known:], y[known:]), noisy.rows.shape[1], epochs, backbone)
