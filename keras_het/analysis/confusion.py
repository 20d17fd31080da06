"""Confusion matrices of the base model and of the model of the noisy labels."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.layers import NoiseTransition
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
    """Log-probabilities `(N, K)` of the true classes and of the noisy labels, and the layer between them."""

    clean: np.ndarray
    noisy: np.ndarray
    layer: NoiseTransition


def confusion_matrices(model, x, labels, batch_size=128):
    """C and C~ of a model that ends in a `NoiseTransition`.

        C[i, j] = mean over S_i of p(true j | x),    C~[i, j] = mean over S_i of p(noisy j | x) = (C T)[i, j]

    S_i are the examples of true class i (Sukhbaatar et al. 2014, Eqs. 4 and 5, transposed: there C~ = Q C). Training drives C~ to the
    true T*, whatever C is; only if C is near the identity is T near T*.

    Args: model: ends in the layer.    x: what it predicts from.    labels: true classes, integers `(N,)`.    batch_size: of `predict`.
    Returns: `ConfusionMatrices`.
    Raises: ValueError for labels out of range, a class without examples, or a model that does not end in the layer.

    Example:
        >>> from keras_het.ops.transition import pair_flip
        >>> flips = NoiseTransition(2, transition=pair_flip(2, 0.25), trainable=False)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax"), flips])
        >>> confusion_matrices(model, np.array([[9.0, -9.0], [-9.0, 9.0]]), [0, 1]).noisy.round(3).tolist()
        [[0.75, 0.25], [0.25, 0.75]]
    """
    clean, noisy, layer = predict_clean_and_noisy(model, x, batch_size)
    labels = check_labels(labels, layer.size, len(clean))
    check_every_class(labels, layer.size)
    c, c_noisy = (np.stack([np.exp(p[labels == i]).mean(axis=0) for i in range(layer.size)]) for p in (clean, noisy))
    error = np.abs(c_noisy - c @ ops.convert_to_numpy(layer.transition)).max()
    return ConfusionMatrices(c, c_noisy, float(error))


def predict_clean_and_noisy(model, x, batch_size=128):
    """`Predictions` of a model that ends in a `NoiseTransition`, which does not change; float64.

    Raises: ValueError if it does not end in one.
    """
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, NoiseTransition)]
    outputs = getattr(model, "outputs", None) or [None]  # a subclassed model has no list of them
    if len(layers) != 1 or len(outputs) != 1:
        rule = "have one output and end in a NoiseTransition layer, the only one"
        found = f"{len(outputs)} outputs and {len(layers)} such layers"
        raise ValueError(f"The model must {rule}. Received: model={model.name!r} with {found}")
    (layer,), base = layers, model
    if layer.apply_at_inference:
        if outputs[0] is None:
            rule = "have `apply_at_inference=False` in its NoiseTransition, if it is a subclass of keras.Model"
            raise ValueError(f"The model must {rule}. Received: model={model.name!r}")
        base = keras.Model(model.inputs, layer.input)
    clean = base.predict(x, batch_size=batch_size, verbose=0)
    sums = np.log(np.sum(np.exp(clean.astype("float64")), axis=-1))
    if np.any(np.abs(sums) > 1e-3):  # false for nan, which is a model that has diverged
        rule = 'be log-probabilities, as of Dense(K, "log_softmax"), and nothing must follow the layer'
        raise ValueError(f"The input of NoiseTransition must {rule}. Received: probabilities that sum to {np.exp(sums.max()):.4g}")
    batches = [clean[i : i + batch_size] for i in range(0, len(clean), batch_size)]
    noisy = np.concatenate([ops.convert_to_numpy(layer(batch, training=True)) for batch in batches])
    return Predictions(clean.astype("float64"), noisy.astype("float64"), layer)
