"""The data of the demo: scikit-learn's digits with three kinds of wrong labels."""

from typing import NamedTuple

import numpy as np

from keras_het.base import extras
from keras_het.labels import corrupt, look_alike_transitions, pair_flip, symmetric

CLASSES, KNOWN = 10, 1280  # examples with noisy labels, at most; the other 517 are the test
NOISES = {  # each gives every example the distribution of its label, `(N, K)`
    "swapped pairs": lambda x, y: pair_flip(CLASSES, 0.4)[y],
    "random flips": lambda x, y: symmetric(CLASSES, 0.45)[y],
    "look-alikes": lambda x, y: look_alike_transitions(x, y, 0.4),
}


class Data(NamedTuple):
    """Digits with noisy labels, and a clean test.

    Attributes:
        x: pixels in [0, 1], `(N, 64)`.
        labels: noisy, `(N,)`.
        true: the right labels, `(N,)`, for nothing but measurements.
        test_x: pixels of the test.
        test_y: right labels of the test.
    """

    x: np.ndarray
    labels: np.ndarray
    true: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def wrong(self):
        """Whether a label is wrong, `(N,)`."""
        return self.labels != self.true

    @property
    def images(self):
        """The digits as pictures, black on white, `(N, 8, 8)`."""
        return 1.0 - self.x.reshape(-1, 8, 8)


def load_data(noise, seed, examples=KNOWN):
    """The digits with one kind of noise; they depend on the arguments, not on the backend."""
    digits = import_extra("sklearn.datasets").load_digits()
    order = np.random.default_rng([seed, 1]).permutation(len(digits.target))
    x, y = (digits.data[order] / 16.0).astype("float32"), digits.target[order]
    known = x[:examples], y[:examples]
    labels = corrupt(known[1], NOISES[noise](*known), [seed, 2])
    return Data(known[0], labels, known[1], x[KNOWN:], y[KNOWN:])


def import_extra(name):
    """A module of the extra `demo`."""
    return extras.import_extra(name, "The demo")
