"""Features: outputs of a layer of a model."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches
from keras_het.base.graph import predictor
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_integer
from keras_het.reading.ending import LAST_LAYERS, find_ending, single_output


def features(model: keras.Model, x: Any, layer: str | None = None, batch_size: int = 128) -> np.ndarray:
    """Returns the input of a model's head, or the output of a layer, for each example.

    Args:
        model: a functional or built Sequential model.
        x: examples: arrays, a list of texts if the model accepts them, or a data set of batches in a fixed order,
            whose labels are ignored.
        layer: name of a layer, whose output is returned; None selects the input of the `Dense` layer or head of this
            package that the model ends in.
        batch_size: batch size of the predictions from arrays.
    Returns:
        shape `(N, D)`, float32; all axes but the first are flattened.
    Raises:
        ValueError: for a model without a graph, a model that ends in another layer, or an unknown layer name.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
        >>> features(model, np.ones((5, 4))).shape
        (5, 8)
    """
    single_output(model)
    if layer is None:
        remedy = "Otherwise pass the name of the layer before the head as `layer`, whose output is returned."
        tensor = find_ending(model, LAST_LAYERS, remedy=remedy).features
    else:
        names = [each.name for each in model.layers]
        refuse_if(layer not in names, "layer", f"be one of {', '.join(map(repr, names))}", value=layer)
        tensor = model.get_layer(layer).output
    predict = batch_predictor(model, tensor)
    parts = [predict(part) for part, _ in batches(x, check_integer("batch_size", batch_size, 1))]
    refuse_if(not parts, "x", "have at least one example", "none")
    rows = np.concatenate(parts)
    return rows.reshape(len(rows), -1)


def batch_predictor(model: keras.Model, tensor: Any) -> Callable[[Any], np.ndarray]:
    """Returns a function that computes a symbolic tensor of a model for a batch, float32."""
    predict = predictor(model, tensor)
    return lambda part: ops.convert_to_numpy(predict(part)).astype("float32")
