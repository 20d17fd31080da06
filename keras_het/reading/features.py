"""Features: the outputs of a layer of a model for examples."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches
from keras_het.base.graph import predictor
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_integer
from keras_het.reading.ending import CLASSIFIERS, ending_of, single_output


def features(model: keras.Model, x: Any, layer: str | None = None, batch_size: int = 128) -> np.ndarray:
    """Returns the input of a model's head, or the output of one of its layers, for each example.

    Args:
        model: a functional or built Sequential model.
        x: the examples: arrays, a list of texts where the model takes these, or a data set of batches in a fixed order,
            whose labels are ignored.
        layer: the name of a layer; None takes the input of the head, a `Dense` or a head of this package.
        batch_size: size of the batches for predictions from arrays.
    Returns:
        shape `(N, D)`, float32; all axes but the first become one.
    Raises:
        ValueError: for a model without a graph or a head, or a name that is none of its layers'.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
        >>> features(model, np.ones((5, 4))).shape
        (5, 8)
    """
    single_output(model)
    tensor = ending_of(model, CLASSIFIERS).features if layer is None else _output_of(model, layer)
    rows = predicted(model, tensor, x, check_integer("batch_size", batch_size, 1))
    return rows.reshape(len(rows), -1)


def predicted(model: keras.Model, tensor: Any, x: Any, batch_size: int) -> np.ndarray:
    """Returns the values of a symbolic tensor of a model for each example, float32."""
    predict = predicted_batch(model, tensor)
    return np.concatenate([predict(part) for part, _ in batches(x, batch_size)])


def predicted_batch(model: keras.Model, tensor: Any) -> Callable[[Any], np.ndarray]:
    """Returns a function that gives the values of a symbolic tensor of a model for a batch, float32."""
    predict = predictor(model, tensor)
    return lambda part: ops.convert_to_numpy(predict(part)).astype("float32")


def _output_of(model, name):
    names = [layer.name for layer in model.layers]
    refuse_if(name not in names, "layer", f"be one of {', '.join(map(repr, names))}", value=name)
    return model.get_layer(name).output
