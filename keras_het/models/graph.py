"""Where the head of a functional model is: the layer that makes its outputs, what comes in, and the activation behind it.

Only the graph of symbolic tensors is read; no layer is called and nothing changes.
"""

from typing import Any, NamedTuple

import keras

# Activations of a head, with the link that has them as its inverse; None: the head returns logits.
LINKS = {
    keras.activations.linear: None,
    keras.activations.softmax: "softmax",
    keras.activations.log_softmax: "softmax",
    keras.activations.sigmoid: "sigmoid",
    keras.activations.log_sigmoid: "sigmoid",
}
# Layers, and operations of `keras.ops`, that are nothing but an activation.
ACTIVATIONS = {
    "Identity": None,
    "Softmax": "softmax",
    "LogSoftmax": "softmax",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "sigmoid",
}


class Head(NamedTuple):
    """A head in a model.

    layer: the layer.    features: its symbolic input, in the graph of the model.
    link: "softmax" or "sigmoid" if such an activation follows the affine map, or None.
    """

    layer: Any
    features: Any
    link: str | None


def find_head(model, kind, name=None):
    """The last layer of a class, if nothing but activations follows it, or the layer of that class that has this name.

    Args:
        model: functional or Sequential; the head may lie in a model inside it.    kind: the class.
        name: of the layer; None finds the last one.
    Returns: `Head`.
    Raises: ValueError if the model has no graph, more than one output, or no such layer.
    """
    output = _single_output(model)
    head = _last(output, kind) if name is None else _named(output, kind, name)
    if head is not None:
        return head
    candidates = ", ".join(repr(layer.name) for layer in layers_of(model, kind)) or "none"
    if name is None:
        raise ValueError(
            f"The model must end in a {kind.__name__} layer, with nothing but a softmax or sigmoid behind it, or `layer` must name one "
            f"of its {kind.__name__} layers: {candidates}. Received: model={model.name!r}, whose last layer is {_describe(output)}"
        )
    raise ValueError(f"`layer` must name a {kind.__name__} layer of the model: {candidates}. Received: layer={name!r}")


def layers_of(model, kind):
    """Layers of a class in a model and in the models inside it, in order."""
    for layer in model.layers:
        if isinstance(layer, kind):
            yield layer
        elif isinstance(layer, keras.Model):
            yield from layers_of(layer, kind)


def model_inputs(model):
    """The symbolic inputs of a model, in the structure that it is called with."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _single_output(model):
    outputs = getattr(model, "outputs", None) if isinstance(model, keras.Model) else None
    if not outputs:
        raise ValueError(
            "`model` must be a functional model, or a Sequential one that is built (give it a keras.Input): a subclassed model has no "
            f"graph in which a layer could be replaced. Received: model={model!r}"
        )
    if len(outputs) != 1:
        raise ValueError(f"`model` must have one output. Received: a model with {len(outputs)} outputs, {[x.name for x in outputs]}")
    return outputs[0]


def _last(tensor, kind):
    """The head behind a tensor, walking back through activations and into models."""
    link = None
    while True:
        layer, inputs = _producer(tensor)
        if isinstance(layer, kind):
            return Head(layer, inputs[0], _joined(link, _link_of(layer), layer))
        if _has_graph(layer):
            inner = _last(layer.outputs[0], kind)
            return inner and Head(inner.layer, _outside(layer, inner.features, inputs), _joined(link, inner.link, layer))
        if not _is_activation(layer):
            return None
        link, tensor = _joined(link, _link_of(layer), layer), inputs[0]


def _named(tensor, kind, name):
    """The head of that name, somewhere behind a tensor."""
    waiting, seen = [tensor], set()
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        layer, inputs = _producer(tensor)
        if isinstance(layer, kind) and layer.name == name:
            return Head(layer, inputs[0], _link_of(layer))
        inner = _named(layer.outputs[0], kind, name) if _has_graph(layer) else None
        if inner is not None:
            return inner._replace(features=_outside(layer, inner.features, inputs))
        waiting += inputs
    return None


def _producer(tensor):
    """The layer or operation that made a symbolic tensor, and its symbolic inputs."""
    history = tensor._keras_history
    return history.operation, history.operation._inbound_nodes[history.node_index].input_tensors


def _has_graph(layer):
    return isinstance(layer, keras.Model) and len(getattr(layer, "outputs", None) or ()) == 1


def _outside(model, features, inputs):
    """A tensor of a model that is itself a layer, in the graph around it: that part of the model, called on the model's inputs."""
    if any(features is x for x in model.inputs):
        return inputs[[features is x for x in model.inputs].index(True)]
    part = keras.Model(model.inputs, features, name=f"{model.name}_features")
    return part(inputs if len(inputs) > 1 else inputs[0])


def _is_activation(layer):
    return isinstance(layer, keras.layers.Activation) or type(layer).__name__ in ACTIVATIONS


def _link_of(layer):
    """The link whose inverse a layer has as its activation, or is."""
    name = type(layer).__name__
    if name in ACTIVATIONS:
        if getattr(layer, "axis", -1) != -1:
            raise ValueError(f"The softmax over the classes must be over the last axis. Received: axis={layer.axis} in {_label(layer)}")
        return ACTIVATIONS[name]
    activation = getattr(layer, "activation", keras.activations.linear)
    if activation not in LINKS:
        raise ValueError(f"The activation of the head must be softmax, sigmoid or none. Received: {activation} in {_label(layer)}")
    return LINKS[activation]


def _joined(later, earlier, layer):
    if later is not None and earlier is not None:
        raise ValueError(f"The head must have one activation. Received: {earlier} in {_label(layer)}, and {later} behind it")
    return later or earlier


def _label(layer):
    return f"the layer {layer.name!r}"


def _describe(tensor):
    layer, _ = _producer(tensor)
    return f"{layer.name!r} ({type(layer).__name__})"
