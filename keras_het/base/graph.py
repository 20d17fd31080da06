"""Finds the head of a functional model: the layer that makes its outputs, its input, and the activation behind it.

Only the graph of symbolic tensors is read: no layer gets a new call, and nothing changes.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras

from keras_het.base.internals import output_index, producer
from keras_het.base.refusal import refusal

# Activations of a head, and the link whose inverse each one is; None: the head returns logits.
LINKS = {None: None, "softmax": "softmax", "log_softmax": "softmax", "sigmoid": "sigmoid", "log_sigmoid": "sigmoid"}
# Operations of `keras.ops` that are nothing but an activation.
OPERATIONS = {
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "log_sigmoid",
    "Exp": "exponential",
}
# Layers that give the same values in another shape.
RESHAPING = (keras.layers.Reshape, keras.layers.Flatten)


class Head(NamedTuple):
    """A head in a model.

    Attributes:
        layer: the layer.
        features: its symbolic input, in the graph of the model.
        activation: the name of the activation that follows the affine map, or None.
        behind: the layers between it and the output that only reshape, in order.
    """

    layer: Any
    features: Any
    activation: str | None
    behind: tuple[Any, ...] = ()

    @property
    def units(self) -> int:
        """The number of classes."""
        return self.layer.filters if isinstance(self.layer, keras.layers.Conv2D) else self.layer.units

    @property
    def link(self) -> str | None:
        """The link, "softmax" or "sigmoid", as the activation, or None."""
        return LINKS[self.activation]


def find_head(model: keras.Model, kind: type[keras.layers.Layer], name: str | None = None) -> Head:
    """Finds the last layer of a class, if only activations or reshaping layers follow it, or the one with this name.

    Args:
        model: functional or Sequential; the head may lie in a model inside it.
        kind: the class; a subclass counts if it computes the same (has the same `call`).
        name: name of the layer; None finds the last one.
    Returns:
        `Head`.
    Raises:
        ValueError: if the model has no graph, more than one output, or no such layer.
    """
    output = single_output(model)
    head = _last(output, kind) if name is None else _last_of_name(output, kind, name) or _named(output, kind, name)
    if head is not None:
        return head
    candidates = ", ".join(repr(layer.name) for layer in _layers_of(model, kind)) or "none"
    if name is None:
        layer, _ = producer(output)
        raise ValueError(
            f"The model must end in a {kind.__name__} layer{_or_convolution(kind)}, with nothing but a softmax or "
            f"sigmoid and layers that reshape behind it{_by_hand(kind)}, or `layer` must name one of its "
            f"{kind.__name__} layers: {candidates}. Received: model={model.name!r}, which ends in {layer.name!r}, a "
            f"{type(layer).__name__}"
        )
    raise refusal("layer", f"name a {kind.__name__} layer of the model: {candidates}", value=name)


def _or_convolution(kind):
    return " or a 1x1 Conv2D" if kind is keras.layers.Dense else ""


def _by_hand(kind):
    return (
        " (or make the model by hand: HeteroscedasticDense(K)(backbone.output))" if kind is keras.layers.Dense else ""
    )


def model_inputs(model: keras.Model) -> Any:
    """The symbolic inputs of a model, in the structure that it is called with."""
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
    """The part of a model up to a symbolic tensor, and the function that makes its inputs of a batch."""
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


def single_output(model: keras.Model) -> Any:
    """The symbolic output of a functional or built Sequential model, which must have one."""
    if not has_graph(model) or not getattr(model, "outputs", None):
        raise ValueError(
            "`model` must be a functional model, or a Sequential one that is built (give it a keras.Input): a "
            "subclassed model has no graph in which a layer could be replaced; there, make the model by hand: "
            f"HeteroscedasticDense(K)(backbone.output). Received: model={model!r}"
        )
    if len(model.outputs) != 1:
        raise refusal("model", "have one output", f"a model with {len(model.outputs)} outputs, {model.output_names}")
    return model.outputs[0]


def has_graph(layer: Any) -> bool:
    """Whether a layer is a model that computes its graph, and nothing else."""
    if not isinstance(layer, keras.Model) or not getattr(layer, "built", False):
        return False
    graphs: list[Any] = [base for base in type(layer).__mro__ if base.__name__ in ("Functional", "Sequential")]
    return bool(graphs) and type(layer).call is graphs[0].call


def is_a(layer: Any, kind: Any) -> bool:
    """Whether a layer is of a class and computes the same: a subclass with a `call` of its own does not."""
    return isinstance(layer, kind) and type(layer).call is kind.call


def is_head(layer, kind):
    """Whether a layer is of a class; for Dense also a 1x1 convolution, which is one at every place of an image.

    Raises:
        ValueError: for such a convolution whose channels are not the last axis.
    """
    if kind is not keras.layers.Dense or not is_a(layer, keras.layers.Conv2D):
        return is_a(layer, kind)
    if layer.kernel_size != (1, 1) or layer.strides != (1, 1) or layer.groups != 1:
        return False
    if layer.data_format != "channels_last":
        rule = "be 'channels_last', for a Dense layer is of the last axis"
        raise refusal("`data_format` of a head", rule, f"data_format={layer.data_format!r} in {layer.name!r}")
    return True


def _layers_of(model, kind):
    """Layers of a class in a model and in the models inside it, in order."""
    for layer in model.layers:
        if is_head(layer, kind):
            yield layer
        elif has_graph(layer):
            yield from _layers_of(layer, kind)


def _last(tensor, kind):
    """Finds the head that a tensor comes from: goes back through activations and reshaping layers, and into models."""
    activation, behind = None, tuple[Any, ...]()
    for layer, node, around in walk([tensor], past_merges=False):
        if is_head(layer, kind):
            activation = _joined(activation, _known_activation(layer), layer)
            return Head(layer, _outside(node.input_tensors[0], around), activation, behind)
        if is_activation(layer):
            activation = _joined(activation, _known_activation(layer), layer)
        elif any(is_a(layer, reshaping) for reshaping in RESHAPING):
            behind = (layer, *behind)
        elif not has_graph(layer):
            return None
    return None


def _last_of_name(tensor, kind, name):
    """The last head, with the activation behind it, if it has this name."""
    try:
        head = _last(tensor, kind)
    except ValueError:  # it may be about a layer that is not asked for
        return None
    return head if head is not None and head.layer.name == name else None


def _named(tensor, kind, name):
    """Finds the head of this name that a tensor comes from."""
    for layer, node, around in walk([tensor]):
        if layer.name == name and is_head(layer, kind):
            return Head(layer, _outside(node.input_tensors[0], around), _known_activation(layer))
    return None


def _outside(features, around):
    """Brings a tensor of an inner model to the graph around all models: calls this part as each model was called."""
    for model, node in reversed(around):
        if len(model.inputs) == 1 and features is model.inputs[0]:
            features = node.input_tensors[0]
        else:
            part = keras.Model(model_inputs(model), features, name=f"{model.name}_features")
            features = part(*node.arguments.args, **node.arguments.kwargs)
    return features


def is_activation(layer: Any) -> bool:
    """Whether a layer, or an operation of `keras.ops`, is nothing but an activation."""
    of_keras = not isinstance(layer, keras.layers.Layer) and type(layer).__module__.startswith("keras.")
    known = (keras.layers.Activation, keras.layers.Softmax, keras.layers.Identity)
    return any(is_a(layer, kind) for kind in known) or (of_keras and type(layer).__name__ in OPERATIONS)


def activation_of(layer: Any) -> str | None:
    """The name of the activation that a layer has, or is; None for none.

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


def _known_activation(layer):
    """A layer's activation by name, if a head may have it."""
    name = activation_of(layer)
    if name not in LINKS:
        raise refusal("The activation of the head", "be softmax, sigmoid or none", f"{name} in {layer.name!r}")
    return name


def _joined(later, earlier, layer):
    if later is not None and earlier is not None:
        raise refusal("The head", "have one activation", f"{earlier} in {layer.name!r}, and {later} behind it")
    return later or earlier
