"""The noise of a head: its settings, the covariance of its classes, and the pairs that it confuses."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het import explain
from keras_het.base.batches import count_examples, select_rows
from keras_het.base.internals import layers_of
from keras_het.layers import HeteroscedasticDense, NoiseTransition

# Examples for the mean covariance, drawn at random: enough for a mean, and more would make its prediction slow.
MOST_EXAMPLES = 10_000
# Draws of signs, for the pairs: each takes a second or more with many classes.
DRAWS, MANY_CLASSES, FEWER_DRAWS = 99, 200, 19


class HeadSettings(NamedTuple):
    """The head of a model.

    Attributes:
        name: name of the layer.
        link: link in words.
        covariance: covariance in words.
        integrator: integrator in words.
        temperature: temperature as it is now.
        learned: boolean, whether the temperature was learned.
        noise_sd: root of the mean variance of the logits that the link sees, in temperatures; nan if it is not known.
    """

    name: str
    link: str
    covariance: str
    integrator: str
    temperature: float
    learned: bool
    noise_sd: float

    @property
    def relative_temperature(self) -> float:
        """The temperature over the noise's standard deviation: how much the noise is damped; nan without noise."""
        return 1.0 / self.noise_sd if self.noise_sd > 0 else float("nan")


class Noise(NamedTuple):
    """The noise that the head of a model has learned.

    Attributes:
        head: its settings.
        covariance: `(K, K)`, in temperatures, the mean over examples; None if it cannot be told.
        pairs: all `ConfusedPair`s, by number, the largest covariance first; None if that cannot be told.
        draws: number of draws of signs for the pairs; weights of pure noise give a pair once in draws + 1 times.
        examples: number of examples that the mean is over.
    """

    head: HeadSettings
    covariance: np.ndarray | None
    pairs: list | None
    draws: int
    examples: int


def find_noise(model: keras.Model, x: Any, classes: int, batch_size: int, missing: list[str]) -> Noise | None:
    """The noise of a model's head, or None without a head; adds to `missing` findings that cannot be made."""
    heads = layers_of(model, HeteroscedasticDense)
    if not heads and (flips := layers_of(model, NoiseTransition)):
        missing.append(
            f"The covariance of a head: there is none. The layer {flips[0].name!r} has learned a transition matrix "
            f"instead: model.get_layer({flips[0].name!r}).transition, in row i and column j p(label j | true class i)."
        )
        return None
    if not heads:
        missing.append(
            "The noise: not known. The model has no head of keras_het, which learns it; "
            "keras_het.heteroscedastic(model) gives it one, to be trained on."
        )
        return None
    part = _at_most(x, MOST_EXAMPLES)
    draws = DRAWS if classes <= MANY_CLASSES else FEWER_DRAWS
    pairs, covariance = (
        None,
        unless_impossible("The noise", missing, lambda: explain.covariance(model, part, batch_size=batch_size)),
    )
    if covariance is not None:

        def find_pairs() -> list:
            return explain.confused_pairs(model, part, count=classes**2, draws=draws, batch_size=batch_size)

        pairs = unless_impossible("Confused classes", missing, find_pairs)
    return Noise(_settings(heads[0], covariance), covariance, pairs, draws, count_examples(part))


def unless_impossible(what: str, missing: list[str], find: Callable[[], Any]) -> Any:
    """Returns the result of `find`.

    If the data or the model do not allow it, returns None and adds a sentence to `missing`.
    """
    try:
        return find()
    except ValueError as error:
        missing.append(f"{what}: not known. {error}")
        return None


def _at_most(x: Any, most: int) -> Any:
    """At most `most` of the examples; they are drawn at random, and equal in every call."""
    count = count_examples(x)
    if count <= most:
        return x
    chosen = np.sort(np.random.default_rng(0).choice(count, most, replace=False))
    return select_rows(x, chosen)


def _settings(head: Any, covariance: np.ndarray | None) -> HeadSettings:
    noise_sd = float("nan") if covariance is None else float(np.sqrt(np.mean(np.diagonal(covariance))))
    names = type(head.link).__name__, _covariance_of(head.covariance), repr(head.integrator)
    return HeadSettings(head.name, *names, float(head.temperature), head.learned_temperature is not None, noise_sd)


def _covariance_of(layer: Any) -> str:
    return f"{type(layer).__name__}, {layer.num_factors} factors" if layer.num_factors else type(layer).__name__
