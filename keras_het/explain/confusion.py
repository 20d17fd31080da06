"""Confusion matrices and likelihood for models that end in a `NoiseTransition`."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.validation import check_every_class
from keras_het.reading.clean_and_noisy import TransitionPredictor


@dataclasses.dataclass(frozen=True)
class ConfusionMatrices:
    """Mean predictions for the examples of each true class, `(K, K)`; rows sum to 1.

    Attributes:
        clean: C[i, j] = mean p(true j | x) over the examples of class i; the identity if the base model has learned the
            true classes.
        noisy: C~[i, j] = mean p(noisy j | x) over the same examples; T* if the whole model has learned the noise.
        error: largest |noisy - clean T|, zero up to rounding.
    """

    clean: np.ndarray
    noisy: np.ndarray
    error: float


def confusion_matrices(model: keras.Model, x: Any, labels: Any = None, batch_size: int = 128) -> ConfusionMatrices:
    """Computes the confusion matrices C and C~ of a model that ends in a `NoiseTransition`.

        C[i, j] = mean over S_i of p(true j | x),    C~[i, j] = mean over S_i of p(noisy j | x) = (C T)[i, j]

    S_i are the examples of true class i (Sukhbaatar et al. 2014, Eqs. 4 and 5, transposed: there C~ = Q C). Training
    drives C~ to the true T*, whatever C is. T is near T* only if C is near the identity.

    Args:
        model: a model that ends in the layer.
        x: inputs of the model: arrays, or a data set of batches (x, y), where y are the true classes.
        labels: true classes, integers `(N,)`; None for a data set.
        batch_size: batch size of the predictions from arrays.
    Returns:
        `ConfusionMatrices`.
    Raises:
        ValueError: for labels out of range, a class without examples, or a model that does not end in the layer.

    Example:
        >>> from keras_het.layers import NoiseTransition
        >>> from keras_het.labels import pair_flip
        >>> flips = NoiseTransition(2, transition=pair_flip(2, 0.25), trainable=False)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax"), flips])
        >>> confusion_matrices(model, np.array([[9.0, -9.0], [-9.0, 9.0]]), [0, 1]).noisy.round(3).tolist()
        [[0.75, 0.25], [0.25, 0.75]]
    """
    predictor = TransitionPredictor(model)
    if predictor.layer.num_annotators is not None:
        rule = "have a single T: for several annotators use `labels.annotators`"
        raise refusal("The model", rule, f"model={model.name!r} with num_annotators={predictor.layer.num_annotators}")
    counts = np.zeros(size := predictor.layer.size, int)
    c, c_noisy = np.zeros((size, size)), np.zeros((size, size))
    for batch in predictor.batches(x, labels, batch_size, name="labels"):
        counts += np.bincount(batch.labels, minlength=size)
        np.add.at(c, batch.labels, np.exp(batch.clean))
        np.add.at(c_noisy, batch.labels, np.exp(batch.noisy))
    check_every_class(np.flatnonzero(counts), size)
    c, c_noisy = c / counts[:, None], c_noisy / counts[:, None]
    error = np.abs(c_noisy - c @ ops.convert_to_numpy(predictor.layer.transition)).max()
    return ConfusionMatrices(c, c_noisy, float(error))


def noisy_nll(model: Any, x: Any, y: Any = None, batch_size: int = 128) -> float:
    """Computes the mean negative log-likelihood -log p(noisy y | x) of a model that ends in a `NoiseTransition`.

    Compare training and held-out labels: if the value is far lower on training labels, the base model memorises them.
    Then T needs more data or a stronger penalty. A T that has exchanged two classes can be as likely as the true T.

    Args:
        model: a model that ends in the layer.
        x: examples: arrays, or a data set of batches (x, y).
        y: noisy labels, integers in [0, K), `(N,)`, or `(N, M)` for M annotators, with -1 for missing; None for a data
            set.
        batch_size: batch size of the predictions from arrays.
    Returns:
        a float.
    Raises:
        ValueError: for labels out of range, or a model that does not end in the layer.
    Warns: if a row of a learned T has its largest entry off the diagonal.
    Source: Sukhbaatar et al. 2014, Eq. 3, for held-out labels.

    Example:
        >>> from keras_het.layers import NoiseTransition
        >>> flips = NoiseTransition(2, transition=[[0.5, 0.5], [0.0, 1.0]], trainable=False)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax"), flips])
        >>> round(noisy_nll(model, np.array([[30.0, -30.0]]), [1]), 4)  # -log(0.5)
        0.6931
    """
    predictor = TransitionPredictor(model)
    predictor.layer.warn_if_permuted()
    return predictor.noisy_nll(x, y, batch_size)
