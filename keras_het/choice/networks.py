"""The network of a training: the user's layers, the head of a candidate, and its layers for training alone."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.graph import has_graph, model_inputs, single_output
from keras_het.inspection.features import input_of_head, predicted
from keras_het.layers import HeteroscedasticDense
from keras_het.models.raw_inputs import with_preprocessor

PROBABILITIES = ("softmax", "sigmoid", "log_sigmoid")  # activations, not of logits or log-probabilities of one class
HEADS = (*PROBABILITIES, "log_softmax")  # activations that only a head has


class Network(NamedTuple):
    """Two models that share their layers.

    Attributes:
        trained: the model for `fit`, whose outputs the loss gets.
        predictor: the model for true classes, without the layers for training alone.
    """

    trained: keras.Model
    predictor: keras.Model


class LayersBelow:
    """The layers below the head, made anew for every training.

    Args:
        make_body: a function without arguments that returns a list of new layers, or a new functional model.
    """

    def __init__(self, make_body: Callable[[], Any]):
        self._make_body = make_body
        self._has_warned = False

    def inputs(self, x: Any) -> Any:
        """The examples as the network takes them."""
        return x

    def network(self, x: Any, units: int, head: list[keras.layers.Layer], tail: list[keras.layers.Layer]) -> Network:
        """A new network for examples like `x`.

        Raises:
            ValueError: if the function makes something else, a head, or features of another shape than `(N, D)`; or if
                the head makes probabilities.
        """
        inputs, found = self._features(x, units)
        _check_features(found)
        _check_log_probabilities(head[-1])
        outputs = _applied(head, found)
        return Network(keras.Model(inputs, _applied(tail, outputs)), keras.Model(inputs, outputs))

    def whole(self, predictor: keras.Model) -> keras.Model:
        """The model that the user gets."""
        return predictor

    def _features(self, x: Any, units: int) -> tuple[Any, Any]:
        body = self._make_body()
        if isinstance(body, keras.Model) and has_graph(body):
            self._check_no_head(body.layers[-1:], units)
            return body.inputs if len(body.inputs) > 1 else body.inputs[0], single_output(body)
        if not isinstance(body, list | tuple) or not all(isinstance(layer, keras.layers.Layer) for layer in body):
            rule = "make a list of new Keras layers, or a new functional model, without a head"
            raise ValueError(f"`make_body` must {rule}. Received: a {type(body).__name__}")
        if not hasattr(x, "shape"):
            rule = "make a functional model where examples have several parts"
            raise ValueError(f"`make_body` must {rule}. Received: a list of layers for a {type(x).__name__}")
        layers = [layer for layer in body if not isinstance(layer, keras.layers.InputLayer)]
        self._check_no_head(layers[-1:], units)
        inputs = keras.Input(tuple(x.shape[1:]), dtype=_input_dtype(x, layers[:1]))
        return inputs, _applied(layers, inputs)

    def _check_no_head(self, layers: list[keras.layers.Layer], units: int) -> None:
        """Raises a ValueError if the last layer is a head, which `choose` makes; warns, once, if it looks like one."""
        for layer in layers:
            name = _activation_of(layer)
            if isinstance(layer, HeteroscedasticDense | keras.layers.Softmax) or name in HEADS:
                found = type(layer).__name__ + (f" with activation {name!r}" if name else "")
                raise ValueError(
                    f"`make_body` must make the layers below the head, which is added. Received: a {found}"
                )
            if isinstance(layer, keras.layers.Dense) and name == "linear" and layer.units == units:
                self._warn_of_head(layer)

    def _warn_of_head(self, layer: keras.layers.Dense) -> None:
        if not self._has_warned:
            warnings.warn(
                f"`make_body` ends in a Dense layer of {layer.units} units without an activation, as many as there are "
                "classes, like a head. Leave it out if it is one: the head is added, and would see no other features.",
                stacklevel=2,
            )
        self._has_warned = True


class Features(LayersBelow):
    """Features that are computed once, with no layers between them and the head: a frozen backbone.

    Args:
        model: the trained model; its features are the inputs of its head, or its outputs if it has none.
        batch_size: of its predictions.
    """

    def __init__(self, model: keras.Model, batch_size: int):
        super().__init__(list)
        self._model, self._batch_size = model, batch_size
        self._features_of = _features_of(model)
        _check_features(self._features_of)

    def inputs(self, x: Any) -> np.ndarray:
        """The features, `(N, D)`."""
        return predicted(self._model, self._features_of, x, self._batch_size)

    def whole(self, model: keras.Model) -> keras.Model:
        """The frozen layers with the new head, for the inputs of the old model."""
        joined = keras.Model(model_inputs(self._model), model(self._features_of))
        return with_preprocessor(joined, self._model)


def layers_below(make_body: Any, batch_size: int) -> LayersBelow:
    """The layers below the head of what a user gives: see `choose`.

    Raises:
        ValueError: for anything else.
    """
    if make_body is None:
        return LayersBelow(list)
    if isinstance(make_body, keras.Model):
        return Features(make_body, batch_size)
    if not callable(make_body) or isinstance(make_body, keras.layers.Layer):
        rule = "be a function that makes the layers below the head, a trained model, or None if `x` are features"
        raise ValueError(f"`make_body` must {rule}. Received: a {type(make_body).__name__}")
    return LayersBelow(make_body)


def _features_of(model: keras.Model) -> Any:
    """The symbolic input of the head of a model, or its output if it ends in none."""
    output = single_output(model)  # raises for a model without a graph
    try:
        return input_of_head(model)
    except ValueError:
        return output


def _input_dtype(x: Any, first: list[keras.layers.Layer]) -> str:
    """The type of the inputs: integers become what the first layer computes with, as in `fit` of a Sequential model.

    Else a convolution of images of uint8 fails on PyTorch and TensorFlow. A layer that takes numbers of words, such as
    an Embedding, gets them as they are.
    """
    converted = first and first[0].autocast and np.issubdtype(x.dtype, np.integer)
    return first[0].variable_dtype if converted else str(x.dtype)


def _applied(layers: Any, tensor: Any) -> Any:
    for layer in layers:
        tensor = layer(tensor)
    return tensor


def _check_features(tensor: Any) -> None:
    if len(tensor.shape) != 2:
        rule = "end in features of shape (N, D), such as by Flatten or GlobalAveragePooling2D"
        raise ValueError(f"`make_body` must {rule}. Received: shape {tuple(tensor.shape)}")


def _check_log_probabilities(layer: keras.layers.Layer) -> None:
    """Raises a ValueError if the last layer of a candidate's head makes probabilities."""
    if (name := _activation_of(layer)) in PROBABILITIES or isinstance(layer, keras.layers.Softmax):
        rule = "make logits or log-probabilities of exclusive classes"
        found = type(layer).__name__ + (f" with activation {name!r}" if name else "")
        raise ValueError(f"The head of a candidate must {rule}. Received: a {found}")


def _activation_of(layer: keras.layers.Layer) -> str:
    """The name of the activation of a layer, empty if it has none."""
    return getattr(getattr(layer, "activation", None), "__name__", "")
