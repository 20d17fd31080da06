"""Losses that share a contract, each with an oracle in NumPy float64, written from the formula alone."""

from typing import NamedTuple

import numpy as np
from scipy import special

from keras_het.losses import (
    ForwardCorrectedCrossentropy,
    GeneralizedCrossentropy,
    SmoothedCrossentropy,
    SymmetricCrossentropy,
)

UNITS, EXAMPLES = 4, 7
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
T = 0.6 * np.eye(UNITS) + 0.4 * RNG.dirichlet(np.ones(UNITS), size=UNITS)
WEIGHTS = RNG.random(EXAMPLES).astype("float32")
VECTORS = RNG.dirichlet(np.ones(UNITS), size=EXAMPLES).astype("float32")  # label vectors that are not one-hot
VECTORS[0] = [0.999, 0.001, 0.0, 0.0]  # log 0.001 is below log 0 := -4


class Case(NamedTuple):
    """A loss: how it is made, and its oracle, which maps targets t and log p, both `(..., K)`, to `(...)`."""

    make: object
    oracle: object


def crossentropy(t, log_p):
    return -(t * log_p).sum(-1)


def reverse(t, log_p, log_of_zero=-4.0):
    with np.errstate(divide="ignore"):
        return -(np.exp(log_p) * np.maximum(np.log(t), log_of_zero)).sum(-1)


CASES = {
    "forward": Case(
        lambda **kwargs: ForwardCorrectedCrossentropy(T, **kwargs),
        lambda t, log_p: -(t * np.log(np.exp(log_p) @ T)).sum(-1),
    ),
    "generalized": Case(
        lambda **kwargs: GeneralizedCrossentropy(0.6, **kwargs),
        lambda t, log_p: (t * (1 - np.exp(log_p) ** 0.6) / 0.6).sum(-1),
    ),
    "symmetric": Case(
        lambda **kwargs: SymmetricCrossentropy(0.3, 0.8, **kwargs),
        lambda t, log_p: 0.3 * crossentropy(t, log_p) + 0.8 * reverse(t, log_p),
    ),
    "smoothed": Case(
        lambda **kwargs: SmoothedCrossentropy(0.2, **kwargs),
        lambda t, log_p: crossentropy(0.8 * t + 0.2 / log_p.shape[-1], log_p),
    ),
    "sharpened": Case(
        lambda **kwargs: SmoothedCrossentropy(-0.6, **kwargs),
        lambda t, log_p: crossentropy(1.6 * t - 0.6 / log_p.shape[-1], log_p),
    ),
}


def expected(oracle, targets, logits):
    """Returns the result of an oracle for integer labels or label vectors, and logits: `(...)`."""
    targets = np.asarray(targets)
    targets = np.eye(UNITS)[targets] if targets.ndim < logits.ndim else targets.astype("float64")
    return oracle(targets, special.log_softmax(np.asarray(logits, "float64"), axis=-1))
