"""Noise of a model's head over many examples, for the report: mean covariance and confused pairs."""

from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.batches import count_examples, select_rows
from keras_het.base.internals import layers_of
from keras_het.explain.covariance import confused_pairs, covariance
from keras_het.layers import HeteroscedasticDense

MAX_EXAMPLES = 10_000  # enough for a mean, and more predictions are slow
DRAWS, MANY_CLASSES, FEWER_DRAWS = 99, 200, 19  # with many classes a draw of signs takes a second


class HeadNoise(NamedTuple):
    """Noise that the head of a model has learned.

    Attributes:
        covariance: mean over examples, `(K, K)`, in temperatures squared.
        pairs: every `ConfusedPair`, by number, the largest covariance first; None if the pairs are unknown.
        reason: sentence that explains pairs=None.
    """

    covariance: np.ndarray
    pairs: list | None
    reason: str = ""


def head_noise(model: keras.Model, x: Any, classes: int, batch_size: int = 128) -> HeadNoise | None:
    """Returns the noise of a model's head on at most 10,000 of the examples; None without a head.

    Raises:
        ValueError: if the covariance cannot be read, for example from a subclassed model.
    """
    if not layers_of(model, HeteroscedasticDense):
        return None
    sample = _sample(x)
    mean = covariance(model, sample, batch_size=batch_size)
    draws = DRAWS if classes <= MANY_CLASSES else FEWER_DRAWS
    try:
        pairs = confused_pairs(model, sample, count=classes**2, draws=draws, batch_size=batch_size)
    except ValueError as error:
        return HeadNoise(mean, None, str(error))
    return HeadNoise(mean, pairs)


def _sample(x: Any) -> Any:
    """Returns at most `MAX_EXAMPLES` random examples, the same in every call."""
    count = count_examples(x)
    if count <= MAX_EXAMPLES:
        return x
    return select_rows(x, np.sort(np.random.default_rng(0).choice(count, MAX_EXAMPLES, replace=False)))
