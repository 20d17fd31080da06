"""Walks the graph of a functional model, and names the activations in it; no layer gets a new call."""

from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_het.base.internals import output_index, producer
from keras_het.base.refusal import refusal

# Operations of `keras.ops` that are nothing but an activation.
OPERATIONS = {
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "log_sigmoid",
    "Exp": "exponential",
}


def model_inputs(model: keras.Model) -> Any:
    """Returns the symbolic inputs of a model, in the structure that it is called with."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def predictor(model: keras.Model, tensor: Any) -> Callable[[Any], Any]:
    """Returns a function from a batch, as `predict` takes it, to a tensor's values.

    A batch may be raw images or strings where the model preprocesses them.

    Args:
        model: functional or built Sequential.
        tensor: symbolic, in its graph.
    """
    part, preprocess = part_and_preprocessor(model, tensor)
    return lambda batch: part.predict_on_batch(preprocess(batch))


def part_and_preprocessor(model: keras.Model, tensor: Any) -> tuple[keras.Model, Callable[[Any], Any]]:
    """Returns the part of a model up to a symbolic tensor, and the function that makes its inputs of a batch."""
    part, preprocess = keras.Model(model_inputs(model), tensor), getattr(model, "preprocess_samples", None)
    if preprocess is None:
        return part, lambda batch: batch
    return part, lambda batch: keras.utils.unpack_x_y_sample_weight(preprocess(batch))[0]


def walk(tensors: list[Any], past_merges: bool = True) -> Iterator[tuple[Any, Any, tuple]]:
    """Yields the layers and operations that symbolic tensors come from, the last first, each tensor's once.

    A model is followed by what is inside it.

    Args:
        tensors: the tensors.
        past_merges: boolean, whether the walk goes on before a layer of several inputs; if not, it is a chain.
    Yields:
        the layer, the node of the graph where it was called, and the models around it, the outer first, each with its
        node.
    """
    waiting: list[tuple[Any, tuple]] = [(tensor, ()) for tensor in tensors]
    seen = set()
    while waiting:
        tensor, around = waiting.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        layer, node = producer(tensor)
        yield layer, node, around
        if past_merges or len(node.input_tensors) == 1:
            waiting += [(before, around) for before in node.input_tensors]
        if has_graph(layer):
            waiting.append((layer.outputs[output_index(tensor)], (*around, (layer, node))))


def has_graph(layer: Any) -> bool:
    """Returns whether a layer is a model that computes its graph, and nothing else."""
    if not isinstance(layer, keras.Model) or not getattr(layer, "built", False):
        return False
    graphs: list[Any] = [base for base in type(layer).__mro__ if base.__name__ in ("Functional", "Sequential")]
    return bool(graphs) and type(layer).call is graphs[0].call


def is_a(layer: Any, kind: Any) -> bool:
    """Returns whether a layer is of a class and computes the same: a subclass with its own `call` does not."""
    return isinstance(layer, kind) and type(layer).call is kind.call


def is_dense(layer: Any) -> bool:
    """Returns whether a layer is a Dense layer, or a 1x1 convolution, which is one at every place of an image.

    Raises:
        ValueError: for such a convolution whose channels are not the last axis.
    """
    if not is_a(layer, keras.layers.Conv2D):
        return is_a(layer, keras.layers.Dense)
    if layer.kernel_size != (1, 1) or layer.strides != (1, 1) or layer.groups != 1:
        return False
    if layer.data_format != "channels_last":
        rule = "be 'channels_last', for a Dense layer is of the last axis"
        raise refusal("`data_format` of a head", rule, f"data_format={layer.data_format!r} in {layer.name!r}")
    return True


def is_activation(layer: Any) -> bool:
    """Returns whether a layer, or an operation of `keras.ops`, is nothing but an activation."""
    of_keras = not isinstance(layer, keras.layers.Layer) and type(layer).__module__.startswith("keras.")
    known = (keras.layers.Activation, keras.layers.Softmax, keras.layers.Identity)
    return any(is_a(layer, kind) for kind in known) or (of_keras and type(layer).__name__ in OPERATIONS)


def activation_of(layer: Any) -> str | None:
    """Returns the name of the activation that a layer has, or is; None for none.

    Raises:
        ValueError: for a softmax that is not over the last axis, and for a function that Keras has no name for.
    """
    if getattr(layer, "axis", -1) != -1:
        raise refusal("The softmax over the classes", "be over the last axis", f"axis={layer.axis} in {layer.name!r}")
    if isinstance(layer, keras.layers.Softmax):
        return "softmax"
    if not isinstance(layer, keras.layers.Layer):
        return OPERATIONS[type(layer).__name__]
    activation = getattr(layer, "activation", keras.activations.linear)
    name = getattr(activation, "__name__", repr(activation))
    if activation is not getattr(keras.activations, name, None):
        raise refusal("The activation of the head", "be softmax, sigmoid or none", f"{name} in {layer.name!r}")
    return None if name == "linear" else name
