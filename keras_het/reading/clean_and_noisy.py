"""Predicts true classes and noisy labels by a model that ends in a `NoiseTransition`, batch by batch."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches, labelled_batches
from keras_het.base.graph import predictor
from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_annotations, check_labels
from keras_het.layers import NoiseTransition
from keras_het.layers.log_probabilities import TOLERANCE
from keras_het.reading.probabilities import exclusive_log_probabilities


class Predictions(NamedTuple):
    """A model's predictions for a batch, as log-probabilities, float64.

    Attributes:
        clean: probabilities of the true classes, `(N, K)`.
        noisy: probabilities of the noisy labels, `(N, K)`, or `(N, M, K)` for several annotators.
        labels: the labels, `(N,)`, or `(N, M)` with -1 where one is missing.
    """

    clean: np.ndarray
    noisy: np.ndarray
    labels: np.ndarray


class CleanAndNoisy:
    """Predicts by a model with and without its last layer, a `NoiseTransition`; the model does not change.

    Args:
        model: a model that ends in the layer.
    Raises:
        ValueError: if it does not end in one.
    """

    def __init__(self, model: keras.Model):
        self.layer, self._base = _layer_and_base(model)

    def batches(self, x: Any, y: Any = None, batch_size: int = 128, name: str = "y") -> Iterator[Predictions]:
        """Yields `Predictions`; `x` and `y` are as for `labelled_batches`.

        Raises:
            ValueError: for labels out of range (the error calls them `name`), inputs of the layer that are no
                log-probabilities, or no example.
        """
        if y is not None:
            self._check(ops.convert_to_numpy(y), None, name)
        count = 0
        for inputs, labels in labelled_batches(x, y, batch_size, name):
            clean = self.clean(inputs)
            noisy = ops.convert_to_numpy(self.layer(clean, training=True))
            labels = self._check(labels, len(clean), name)
            count += len(labels)
            yield Predictions(clean.astype("float64"), noisy.astype("float64"), labels)
        if not count:
            raise refusal("x" if name in ("y", "labels") else name, "have at least one example", "none")

    def clean(self, inputs: Any) -> np.ndarray:
        """The log-probabilities of the true classes for a batch, `(N, K)`.

        Raises:
            ValueError: if they are no log-probabilities.
        """
        clean = ops.convert_to_numpy(self._base(inputs))
        _check_sums(clean)
        return clean

    def noisy_nll(self, x: Any, y: Any = None, batch_size: int = 128, name: str = "y") -> float:
        """Mean of -log p(noisy y | x). Arguments and errors: as of `batches`."""
        total, count = 0.0, 0
        for batch in self.batches(x, y, batch_size, name):
            given = batch.labels >= 0
            log_p = np.take_along_axis(batch.noisy, np.where(given, batch.labels, 0)[..., None], axis=-1)[..., 0]
            total -= float(np.sum(log_p[given]))
            count += int(given.sum())
        return total / count if count else math.nan

    def _check(self, labels, count, name):
        if self.layer.num_annotators is None:
            return check_labels(labels, self.layer.size, count, name)
        return check_annotations(labels, self.layer.size, self.layer.num_annotators, name)


class CleanPredictor:
    """Predicts log-probabilities of the true classes by any model of exclusive classes, also behind a NoiseTransition.

    Args:
        model: model with one output `(N, K)`, or one that ends in a `NoiseTransition` that also acts at inference.
    Raises:
        ValueError: if such a layer is not the end of the model.
    """

    def __init__(self, model: keras.Model):
        acting = any(layer.apply_at_inference for layer in layers_of(model, NoiseTransition))
        self._model, self._ending = model, CleanAndNoisy(model) if acting else None

    def __call__(self, x: Any, batch_size: int) -> np.ndarray:
        """Log-probabilities of arrays of N examples, `(N, K)`, float32.

        Raises:
            ValueError: as `exclusive_log_probabilities`.
        """
        if self._ending is None:
            return exclusive_log_probabilities(self._model, x, batch_size)
        return np.concatenate([self._ending.clean(inputs) for inputs, _ in batches(x, batch_size)])


def _check_sums(log_probs: np.ndarray) -> None:
    log_sums = np.log(np.sum(np.exp(log_probs.astype("float64")), axis=-1))
    if np.any(np.abs(log_sums) > TOLERANCE):  # false for nan: a diverged model has no wrong input
        rule = 'be log-probabilities, as of Dense(K, "log_softmax"), and nothing must follow the layer'
        raise refusal("The input of NoiseTransition", rule, f"probabilities that sum to {np.exp(log_sums.max()):.4g}")


def _layer_and_base(model: keras.Model) -> tuple[NoiseTransition, Callable[[Any], Any]]:
    """The last layer, and a function from a batch, as `predict` takes it, to the input of that layer."""
    layers = layers_of(model, NoiseTransition)
    outputs = getattr(model, "outputs", None) or [None]  # a subclassed model has no such list
    if len(layers) != 1 or len(outputs) != 1:
        rule = "have one output and end in a NoiseTransition layer, the only one"
        found = f"{len(outputs)} outputs and {len(layers)} such layers"
        raise ValueError(f"The model must {rule}. Received: model={model.name!r} with {found}")
    if not layers[0].apply_at_inference:
        return layers[0], model.predict_on_batch
    rule = "have `apply_at_inference=False` in its NoiseTransition, if it is a subclass of keras.Model"
    refuse_if(outputs[0] is None, "The model", rule, f"model={model.name!r}")
    return layers[0], predictor(model, layers[0].input)
