"""Probabilities of a model that returns probabilities, log-probabilities or logits."""

from typing import Any

import keras
import numpy as np
import scipy.special
from keras import ops

from keras_het.base.batches import batches
from keras_het.base.graph import check_one_output
from keras_het.base.internals import argument_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_integer
from keras_het.criteria.criterion import find_criteria
from keras_het.reading.ending import endings

SUM_TOLERANCE = 1e-2  # half precision rounds the sum of probabilities
# Functions from each kind of outputs to probabilities, and to log-probabilities of exclusive classes.
PROBABILITIES: dict[str, Any] = {
    "probabilities": np.asarray,
    "log-probabilities": ops.exp,
    "logits": ops.softmax,
    "logits of each label": ops.sigmoid,
}
LOG_PROBABILITIES: dict[str, Any] = {
    "probabilities": lambda p: np.log(np.maximum(p, np.finfo("float32").tiny)),
    "log-probabilities": np.asarray,
    "logits": lambda logits: scipy.special.log_softmax(logits, axis=1),
}


def predict_probabilities(model: keras.Model, x: Any, batch_size: int = 128) -> np.ndarray:
    """Predicts the probabilities of exclusive classes, or of each label if labels are not exclusive.

    Heads of this package declare whether they return logits. For other models the loss decides. If the loss has no
    `from_logits=True`, outputs must be probabilities or log-probabilities, with rows that sum to 1. For an ensemble,
    average the results of its models.

    Args:
        model: a model with one output of shape `(N, K)`.
        x: inputs of the model: arrays, or a data set of batches in a fixed order, whose labels are ignored.
        batch_size: batch size of the predictions from arrays.
    Returns:
        shape `(N, K)`, float32, in [0, 1].
    Raises:
        ValueError: for several outputs, another shape, predictions of nan, no example, or logits that neither a head
            nor the loss declares.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> predict_probabilities(model, np.zeros((1, 2))).round(3)
        array([[0.333, 0.333, 0.333]], dtype=float32)
    """
    outputs = _predict(model, x, batch_size)
    return _check_finite(ops.convert_to_numpy(PROBABILITIES[_find_kind(model, outputs)](outputs)))


def exclusive_probabilities(model: keras.Model, x: Any, batch_size: int = 128) -> np.ndarray:
    """Predicts probabilities of exclusive classes, `(N, K)`, and scales rows to sum 1, against half precision."""
    p = predict_probabilities(model, x, batch_size)
    if not _sum_to_one(p):
        worst = p.sum(axis=1)[np.abs(p.sum(axis=1) - 1.0).argmax()]
        raise refusal("model", "predict exclusive classes, whose probabilities sum to 1", f"a sum of {worst:.4g}")
    return p / p.sum(axis=1, keepdims=True)


def exclusive_log_probabilities(model: keras.Model, x: Any, batch_size: int = 128) -> np.ndarray:
    """Predicts log-probabilities of exclusive classes, `(N, K)`, float32, without rounding near 0 and 1.

    For a model that returns probabilities, the smallest result is the log of the smallest float32.
    """
    outputs = _predict(model, x, batch_size)
    kind = _find_kind(model, outputs)
    if kind not in LOG_PROBABILITIES or (kind == "probabilities" and not _sum_to_one(outputs)):
        rule = "predict exclusive classes, whose probabilities sum to 1"
        raise refusal("model", rule, f"model={model.name!r}, which returns {kind}")
    return _check_finite(LOG_PROBABILITIES[kind](outputs))


def _predict(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """Returns the outputs of a model, `(N, K)`, float32; raises ValueError for nan."""
    check_one_output(model)
    parts = [
        _to_array(model.predict_on_batch(inputs), model)
        for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1))
    ]
    refuse_if(not sum(map(len, parts)), "x", "have at least one example", "none")
    outputs = np.concatenate(parts)
    rows = np.flatnonzero(np.isnan(outputs).any(axis=1))
    if len(rows):
        rule = "predict no nan: its training has diverged, or `x` has nan"
        raise refusal("model", rule, f"nan for example {rows[0]}")
    return outputs


def _to_array(outputs: Any, model: keras.Model) -> np.ndarray:
    shapes = [tuple(part.shape) for part in keras.tree.flatten(outputs)]
    if len(shapes) != 1 or len(shapes[0]) != 2:
        rule = "have one output of shape (N, K)"
        raise refusal("model", rule, f"model={model.name!r} with outputs of shapes {shapes}")
    return ops.convert_to_numpy(keras.tree.flatten(outputs)[0]).astype("float32")


def _check_finite(p: np.ndarray) -> np.ndarray:
    rows = np.flatnonzero(np.isnan(p).any(axis=1))
    if len(rows):
        raise refusal("model", "predict finite logits", f"infinite logits for example {rows[0]}")
    return p


def _find_kind(model: keras.Model, outputs: np.ndarray) -> str:
    """Returns the kind of outputs, a key of `PROBABILITIES`."""
    for head in [ending for ending in endings(model) if ending.is_head][:1]:
        return "logits of each label" if (head.returns, head.link) == ("logits", "sigmoid") else head.returns
    for loss in list(find_criteria(model.loss))[:1] if getattr(model, "compiled", False) else []:
        if argument_of(loss.loss, "from_logits", False):
            return "logits of each label" if loss.activation == "sigmoid" else "logits"
        if loss.activation == "sigmoid" and _in_range(outputs):
            return "probabilities"
    if _sum_to_one(outputs):
        return "probabilities"
    if np.all(outputs <= SUM_TOLERANCE) and _sum_to_one(np.exp(outputs)):
        return "log-probabilities"
    rule = "return probabilities or log-probabilities, or be compiled with a loss that has from_logits=True"
    numbers = f"numbers from {outputs.min():.4g} to {outputs.max():.4g}, with rows that do not sum to 1"
    raise refusal("model", rule, f"model={model.name!r}, which returns {numbers}")


def _in_range(p: np.ndarray) -> bool:
    return bool(np.all((p >= -1e-5) & (p <= 1.0 + 1e-5)))


def _sum_to_one(p: np.ndarray) -> bool:
    return _in_range(p) and bool(np.all(np.abs(p.sum(axis=1) - 1.0) < SUM_TOLERANCE))
