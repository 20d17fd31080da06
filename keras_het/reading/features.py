"""Features: outputs of a layer of a model."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches
from keras_het.base.graph import has_graph, is_dense, predictor, walk
from keras_het.base.masks import MaskReader
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.validation import check_choice, check_integer
from keras_het.reading.ending import LAST_LAYERS, find_ending, lift, single_output

PADDING_INPUT = "padding_mask"  # of KerasHub's text models


class Tokens(NamedTuple):
    """Symbolic tokens or pixels that features are computed from, and the name of the Dense layer after one, or ""."""

    tensor: Any
    pooler: str


def features(
    model: keras.Model, x: Any, layer: str | None = None, batch_size: int = 128, *, pooling: str | None = None
) -> np.ndarray:
    """Returns the input of a model's head, or the output of a layer, for each example.

    A text classifier often reads a pooler: a `Dense` layer after the first token, which knows little of your task
    before you fine-tune it. For a pretrained text model, pass `pooling="mean"`. It is the mean over the tokens without
    padding, as in `keras_hub.models.TextEmbedder`. On TREC, `labels.clean` is far more accurate on this mean.

    Args:
        model: a functional or built Sequential model.
        x: examples: arrays, a list of texts if the model accepts them, or a data set of batches in a fixed order,
            whose labels are ignored.
        layer: name of a layer, whose output is returned; None selects the input of the `Dense` layer or head of this
            package that the model ends in.
        batch_size: batch size of the predictions from arrays.
        pooling: "mean" averages the output of `layer` over all axes but the first and the last, or by default the
            tokens that the head's input is computed from. Padding does not count: it is what a Keras mask hides, or the
            input `padding_mask` of KerasHub. None averages nothing.
    Returns:
        shape `(N, D)`, float32; all axes but the first are flattened.
    Raises:
        ValueError: for a model without a graph, a model that ends in another layer, an unknown layer name, or `pooling`
            without tokens.
    Warns: if the features are outputs of a pooler, or a data set shuffles itself.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
        >>> features(model, np.ones((5, 4))).shape
        (5, 8)
    """
    single_output(model)
    check_choice("pooling", pooling, (None, "mean"))
    if layer is None:
        remedy = "Otherwise pass the name of the layer before the head as `layer`, whose output is returned."
        tensor = find_ending(model, LAST_LAYERS, remedy=remedy).features
        if pooling is None:
            warn_of_pooler(tensor)
        else:
            tensor = _find_tokens(tensor).tensor
    else:
        names = [each.name for each in model.layers]
        refuse_if(layer not in names, "layer", f"be one of {', '.join(map(repr, names))}", value=layer)
        tensor = model.get_layer(layer).output
    predict = batch_predictor(model, tensor if pooling is None else _mean(model, tensor))
    parts = [predict(part) for part, _ in batches(x, check_integer("batch_size", batch_size, 1))]
    refuse_if(not parts, "x", "have at least one example", "none")
    rows = np.concatenate(parts)
    return rows.reshape(len(rows), -1)


def warn_of_pooler(tensor: Any) -> None:
    """Warns if symbolic features are outputs of a pooler."""
    if name := _find_tokens(tensor).pooler:
        warnings.warn(
            f"The features are outputs of {name!r}, a pooler of one token, which knows little of a task before it is "
            'fine-tuned. For a pretrained model, use keras_het.explain.features(model, x, pooling="mean"), the mean '
            "over the tokens.",
            stacklevel=outside_level(),
        )


def _find_tokens(tensor: Any) -> Tokens:
    """Returns the tokens that symbolic features are computed from; None for the tensor if they are not known."""
    pooler = ""
    if len(tensor.shape) > 2:
        return Tokens(tensor, pooler)
    for layer, node, models in walk([tensor], past_merges=False):
        if has_graph(layer):
            continue
        source, kind = next(iter(node.input_tensors), None), type(layer).__name__
        if source is None or len(source.shape) != 2:
            is_item = kind == "GetItem"
            is_known = source is not None and (is_item or kind.startswith("Global"))
            return Tokens(lift(source, models) if is_known else None, pooler * (is_item and _is_first_token(node)))
        pooler = layer.name if is_dense(layer) else pooler
    return Tokens(None, "")


def _is_first_token(node: Any) -> bool:
    """True if an indexing takes entry 0 of the second axis, unlike the last step of a recurrent layer."""
    key = node.arguments.args[1] if len(node.arguments.args) > 1 else node.arguments.kwargs.get("key")
    return isinstance(key, tuple) and len(key) > 1 and isinstance(key[1], int) and key[1] == 0


def _mean(model: keras.Model, tensor: Any) -> Any:
    """Returns the symbolic mean of a tensor `(N, ..., D)` over all axes but the first and the last, without padding."""
    rule = "be None for features without tokens. Otherwise name a `layer` with an output (N, ..., D)"
    refuse_if(tensor is None or len(tensor.shape) < 3, "pooling", rule, "pooling='mean'")
    inputs = [each for each in model.inputs if each.name == PADDING_INPUT and len(tensor.shape) == 3]
    weights = ops.cast(inputs[0] if inputs else MaskReader()(tensor), "float32")[..., None]
    axes = tuple(range(1, len(tensor.shape) - 1))
    total = ops.sum(ops.cast(tensor, "float32") * weights, axis=axes)
    return total / ops.maximum(ops.sum(weights, axis=axes), 1.0)


def batch_predictor(model: keras.Model, tensor: Any) -> Callable[[Any], np.ndarray]:
    """Returns a function that computes a symbolic tensor of a model for a batch, float32."""
    predict = predictor(model, tensor)
    return lambda part: ops.convert_to_numpy(predict(part)).astype("float32")
