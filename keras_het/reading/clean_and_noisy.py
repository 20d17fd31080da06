"""Predictions of true classes and of noisy labels, by models that end in a `NoiseTransition`."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import labelled_batches
from keras_het.base.graph import check_one_output
from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_annotations, check_integer, check_labels
from keras_het.layers import NoiseTransition
from keras_het.layers.log_probabilities import TOLERANCE


class Predictions(NamedTuple):
    """Log-probabilities for a batch, float64, `clean` `(N, K)` and `noisy` `(N, K)` or `(N, M, K)`, and its labels."""

    clean: np.ndarray
    noisy: np.ndarray
    labels: np.ndarray


class TransitionPredictor:
    """Predictor with and without the last layer of a model, which must be its only `NoiseTransition`."""

    def __init__(self, model: keras.Model):
        self.layer, self._predict = _find_transition(model), model.predict_on_batch

    def batches(self, x: Any, y: Any = None, batch_size: int = 128, name: str = "y") -> Iterator[Predictions]:
        """Yields `Predictions`, with the arguments of `labelled_batches`, for log-probabilities and labels in range."""
        if y is not None:
            self._check(ops.convert_to_numpy(y), None, name)
        count = 0
        for inputs, labels in labelled_batches(x, y, check_integer("batch_size", batch_size, 1), name):
            clean = ops.convert_to_numpy(self._predict(inputs))
            _check_sums(clean)
            noisy = ops.convert_to_numpy(self.layer(clean, training=True))
            labels = self._check(labels, len(clean), name)
            count += len(labels)
            yield Predictions(clean.astype("float64"), noisy.astype("float64"), labels)
        if not count:
            raise refusal("x" if name in ("y", "labels") else name, "have at least one example", "none")

    def noisy_nll(self, x: Any, y: Any = None, batch_size: int = 128, name: str = "y") -> float:
        """Computes the mean of -log p(noisy y | x), with the arguments and errors of `batches`."""
        total, count = 0.0, 0
        for batch in self.batches(x, y, batch_size, name):
            is_present = batch.labels >= 0
            log_p = np.take_along_axis(batch.noisy, np.where(is_present, batch.labels, 0)[..., None], axis=-1)[..., 0]
            total -= float(np.sum(log_p[is_present]))
            count += int(is_present.sum())
        return total / count if count else math.nan

    def _check(self, labels, count, name):
        if self.layer.num_annotators is None:
            return check_labels(labels, self.layer.size, count, name)
        return check_annotations(labels, self.layer.size, self.layer.num_annotators, name)


def _check_sums(log_probs: np.ndarray) -> None:
    log_sums = np.log(np.sum(np.exp(log_probs.astype("float64")), axis=-1))
    if np.any(np.abs(log_sums) > TOLERANCE):  # false for nan, which comes from a diverged model
        rule = (
            'be log-probabilities, for example from Dense(K, "log_softmax"), and NoiseTransition must be the last layer'
        )
        raise refusal("The input of NoiseTransition", rule, f"probabilities that sum to {np.exp(log_sums.max()):.4g}")


def _find_transition(model: keras.Model) -> NoiseTransition:
    check_one_output(model)
    layers = layers_of(model, NoiseTransition)
    if len(layers) != 1:
        received = f"model={model.name!r} with {len(layers)} NoiseTransition layers"
        raise refusal("The model", "end in its only NoiseTransition layer", received)
    return layers[0]
