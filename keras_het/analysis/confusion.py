"""Confusion matrices of the base model and of the model of the noisy labels."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.batches import labelled_batches
from keras_het.layers import NoiseTransition
from keras_het.layers.log_probabilities import TOLERANCE
from keras_het.ops.transition import check_every_class, check_labels


class ConfusionMatrices(NamedTuple):
    """Mean predictions of the examples of each true class, both `(K, K)`, rows summing to one, and how well they fit together.

    clean: C[i, j] = mean p(true j | x) over the examples of class i: the identity if the base model has found the true classes.
    noisy: the same of p(noisy j | x): T* if the whole model has found the noise.
    error: the largest |noisy - clean T|, zero to rounding.
    """

    clean: np.ndarray
    noisy: np.ndarray
    error: float


class Predictions(NamedTuple):
    """Log-probabilities `(N, K)` of the true classes and of the noisy labels, the labels `(N,)`, and the layer between."""

    clean: np.ndarray
    noisy: np.ndarray
    labels: np.ndarray
    layer: NoiseTransition


def confusion_matrices(model: keras.Model, x: Any, labels: Any = None, batch_size: int = 128) -> ConfusionMatrices:
    """C and C~ of a model that ends in a `NoiseTransition`.

        C[i, j] = mean over S_i of p(true j | x),    C~[i, j] = mean over S_i of p(noisy j | x) = (C T)[i, j]

    S_i are the examples of true class i (Sukhbaatar et al. 2014, Eqs. 4 and 5, transposed: there C~ = Q C). Training drives C~ to the
    true T*, whatever C is; only if C is near the identity is T near T*.

    Args:
        model: ends in the layer.
        x: what it predicts from: arrays, or a data set of batches (x, y) as for `fit`, whose y are the true classes.
        labels: true classes, integers `(N,)`; None for a data set.
        batch_size: of the predictions from arrays.
    Returns: `ConfusionMatrices`.
    Raises: ValueError for labels out of range, a class without examples, or a model that does not end in the layer.

    Example:
        >>> from keras_het.ops.transition import pair_flip
        >>> flips = NoiseTransition(2, transition=pair_flip(2, 0.25), trainable=False)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax"), flips])
        >>> confusion_matrices(model, np.array([[9.0, -9.0], [-9.0, 9.0]]), [0, 1]).noisy.round(3).tolist()
        [[0.75, 0.25], [0.25, 0.75]]
    """
    clean, noisy, labels, layer = predict_clean_and_noisy(model, x, labels, batch_size, name="labels")
    check_every_class(labels, layer.size)
    c, c_noisy = (np.stack([np.exp(p[labels == i]).mean(axis=0) for i in range(layer.size)]) for p in (clean, noisy))
    error = np.abs(c_noisy - c @ ops.convert_to_numpy(layer.transition)).max()
    return ConfusionMatrices(c, c_noisy, float(error))


def predict_clean_and_noisy(model: keras.Model, x: Any, y: Any = None, batch_size: int = 128, name: str = "y") -> Predictions:
    """`Predictions` of a model that ends in a `NoiseTransition`, which does not change; float64. `x`, `y`: as for `labelled_batches`.

    Raises: ValueError if it does not end in one, or for labels out of range, which are called `name`.
    """
    layer, base = _layer_and_base(model)
    pairs = [(ops.convert_to_numpy(base.predict_on_batch(inputs)), labels) for inputs, labels in labelled_batches(x, y, batch_size, name)]
    if not pairs:
        raise ValueError("`x` must have at least one example. Received: none")
    if any(np.any(np.abs(_log_sums(clean)) > TOLERANCE) for clean, _ in pairs):  # false for nan, which is a model that has diverged
        rule = 'be log-probabilities, as of Dense(K, "log_softmax"), and nothing must follow the layer'
        largest = max(_log_sums(clean).max() for clean, _ in pairs)
        raise ValueError(f"The input of NoiseTransition must {rule}. Received: probabilities that sum to {np.exp(largest):.4g}")
    noisy = np.concatenate([ops.convert_to_numpy(layer(clean, training=True)) for clean, _ in pairs])
    clean, labels = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return Predictions(clean.astype("float64"), noisy.astype("float64"), check_labels(labels, layer.size, len(clean), name), layer)


def _log_sums(log_probs: np.ndarray) -> np.ndarray:
    return np.log(np.sum(np.exp(log_probs.astype("float64")), axis=-1))


def _layer_and_base(model: keras.Model) -> tuple[NoiseTransition, keras.Model]:
    """The last layer, and a model whose predictions are what comes into it."""
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, NoiseTransition)]
    outputs = getattr(model, "outputs", None) or [None]  # a subclassed model has no list of them
    if len(layers) != 1 or len(outputs) != 1:
        rule = "have one output and end in a NoiseTransition layer, the only one"
        found = f"{len(outputs)} outputs and {len(layers)} such layers"
        raise ValueError(f"The model must {rule}. Received: model={model.name!r} with {found}")
    if not layers[0].apply_at_inference:
        return layers[0], model
    if outputs[0] is None:
        rule = "have `apply_at_inference=False` in its NoiseTransition, if it is a subclass of keras.Model"
        raise ValueError(f"The model must {rule}. Received: model={model.name!r}")
    return layers[0], keras.Model(model.inputs[0] if isinstance(model, keras.Sequential) else model.input, layers[0].input)
