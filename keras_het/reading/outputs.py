"""Finds whether the outputs of a model are log-probabilities, logits or probabilities, and which layer makes them.

A head of this package says it. A Dense layer without activation returns numbers, which a loss may take for logits. A
softmax or sigmoid says it whatever stands before. Nothing is said of other layers and operations, and of models that
have no graph and get none from a call with symbolic inputs.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras

from keras_het.base.graph import activation_of, has_graph, is_a, is_activation, is_head, walk
from keras_het.base.internals import is_symbolic, layers_of
from keras_het.layers import HeteroscedasticDense, NoiseTransition

# Layers that move values, or leave some out, and compute nothing; a Dropout does nothing at inference.
MOVING = tuple(getattr(keras.layers, name) for name in ["Reshape", "Flatten", "Permute", "Cropping2D", "Dropout"])
# Operations of `keras.ops` that do the same; a cast changes only the precision of values.
MOVING_OPERATIONS = {"Reshape", "Cast", "GetItem", "Squeeze", "ExpandDims", "Transpose", "Identity"}
# The kind of outputs that an activation makes of outputs of a kind.
MAKES = {
    ("log-probabilities", "log_softmax"): "log-probabilities",
    ("log-probabilities", "softmax"): "probabilities",
    ("log-probabilities", "exponential"): "probabilities",
    ("logits", "sigmoid"): "probabilities",
}
# The link that an activation is of, and what it returns, whatever it takes; nothing is known of others.
ACTIVATIONS = {
    "softmax": ("softmax", "probabilities"),
    "log_softmax": ("softmax", "log-probabilities"),
    "sigmoid": ("sigmoid", "probabilities"),
}
# Activations of the other link: their values are no probabilities of the head's classes.
MISFITS = {("log-probabilities", "sigmoid"), ("logits", "exponential")}
# Results of running a model's own `call`: without them every check would run it again.
_FOUND: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Output(NamedTuple):
    """An output of a model.

    Attributes:
        source: the layer that makes it, as errors name it, such as "the head 'predictions'".
        activation: "softmax" or "sigmoid", the `activation` of the link; "" if it is not known.
        returns: "log-probabilities", "logits" or "probabilities"; "distributions" in a tensor of a head for regression
            or joint labels, "numbers" of a Dense layer without activation, and "anything" if it is not known.
        units: the number of classes; 0 if it is not known.
        annotators: the number of annotators of a `NoiseTransition`, whose output has an axis of them in training; else
            0.
        always: boolean, whether that output has the axis at inference, too.
        softmax_before: the name of a layer that gives the head a softmax of as many classes, or "".
        is_head: boolean, whether a layer or model of this package makes it.
        shape: shape of the output, None where a size is not known; () if nothing is known.
        is_activated: boolean, whether an activation behind `source` makes the probabilities.
        of_distribution: boolean, whether a loss gets the distribution that the output is made of, as in a
            `DistributionModel`.
    """

    source: str
    activation: str
    returns: str
    units: int
    annotators: int = 0
    always: bool = False
    softmax_before: str = ""
    is_head: bool = True
    shape: tuple = ()
    is_activated: bool = False
    of_distribution: bool = False

    @property
    def activation_layer(self) -> str:
        """The layer that makes probabilities of the outputs."""
        return "keras.layers.Softmax()" if self.activation == "softmax" else "keras.layers.Activation('sigmoid')"

    @property
    def reason(self) -> str:
        """The end of an error: the layer that makes the output."""
        made = f"an activation behind {self.source} makes" if self.is_activated else f"{self.source} returns"
        return f"for {made} them"


class Found(NamedTuple):
    """The outputs of a model, as far as they are known.

    Attributes:
        outputs: the names and the kind of each, in order; none if the model cannot be read.
        followed: the name of a `NoiseTransition` behind which another layer computes, and that layer, in words; None if
            there is none.
        misfit: an output, and the activation of the other link behind it; None if there is none. In `outputs` that
            output returns "anything".
    """

    outputs: list[tuple[set, Output]]
    followed: tuple[str, str] | None = None
    misfit: tuple[Output, str] | None = None


def outputs_of(model: keras.Model) -> list[tuple[set, Output | None]]:
    """The names and the kind of each output, in order, for the outputs of heads.

    The kind is None for an output that is not known to be a head's. An output has the name that the model gives it, or
    its key where the model returns a dict.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(3, name="head"), keras.layers.Softmax()])
        >>> found = outputs_of(model)[0][1]
        >>> found.source, found.activation, found.returns
        ("the head 'head'", 'softmax', 'probabilities')
    """
    return [(names, output if output.is_head else None) for names, output in found_in(model).outputs]


def found_in(model: keras.Model) -> Found:
    """The outputs of a model, as far as they are known.

    The `call` of a subclassed model is run once for this, with symbolic inputs. Later changes of the model are not
    seen.
    """
    if (own := _own_output(model)) is not None:
        return Found([(set(), own)])
    if isinstance(model, keras.Sequential) and not getattr(model, "outputs", None):  # it has no graph yet, or gets none
        return _judged([(set(), output_of(_reversed(model)))])
    if has_graph(model):
        return _found(model, getattr(model, "output", model.outputs))  # a Sequential has no `output`
    if model not in _FOUND:
        shapes = _shapes(model)
        if shapes is None:
            return Found([])
        _FOUND[model] = _found(model, _traced(model, shapes))
    return _FOUND[model]


def _found(model: keras.Model, structure: Any) -> Found:
    """The outputs that symbolic tensors hold, as far as they are known; `structure` is None for other outputs."""
    if structure is None:
        return Found([])
    names = getattr(model, "output_names", None)
    leaves = keras.tree.flatten_with_path(structure)
    outputs: list[tuple[set, Output | tuple[Output, str]]] = []
    for index, (path, tensor) in enumerate(leaves):
        own = {names[index]} if names and len(names) == len(leaves) else set()
        keys = {key for key in path[-1:] if isinstance(key, str)}
        outputs.append((own | keys, output_of(_before(tensor), tuple(tensor.shape))))
    return _judged(outputs, _followed([tensor for _, tensor in leaves]))


def _judged(outputs: list, followed: tuple[str, str] | None = None) -> Found:
    """Makes a `Found` of the results of `output_of` for each output."""
    misfits = [output for _, output in outputs if type(output) is tuple]
    known = [(names, _unknown(output[0].source) if output in misfits else output) for names, output in outputs]
    return Found(known, followed, next(iter(misfits), None))


def _followed(tensors: list) -> tuple[str, str] | None:
    """A `NoiseTransition` behind which a layer computes, by name, and that layer, in words.

    The graph that made the symbolic tensors is searched.
    """
    later = [(part, node.input_tensors) for layer, node, _ in walk(tensors) for part in _computing(layer)[:1]]
    if not _transitions([tensor for _, before in later for tensor in before]):
        return None
    return next(
        (name, f"{part.name!r}, a {type(part).__name__}") for part, before in later for name in _transitions(before)
    )


def _transitions(tensors: list) -> list[str]:
    """The names of the `NoiseTransition` layers that symbolic tensors come from."""
    return [layer.name for layer, *_ in walk(tensors) if isinstance(_unwrapped(layer), NoiseTransition)]


def _computing(layer: Any) -> list:
    """The layer, and those inside it, that compute."""
    return [part for part in layers_of(layer) if _computes(part)] if _is_layer(layer) else []


def _computes(layer: Any) -> bool:
    """Whether a layer of Keras or of this package learns from its input; a user's own layer is not known, so False."""
    of_keras = type(layer).__module__.startswith(("keras.", "keras_het."))
    return (
        of_keras
        and not isinstance(layer, NoiseTransition | keras.Model)
        and bool(layer.weights)
        and not _is_known(layer)
    )


def _is_layer(layer: Any) -> bool:
    return isinstance(layer, keras.layers.Layer)


def output_of(operations: Iterable[Any], shape: tuple = ()) -> Output | tuple[Output, str]:
    """The output of the last layer that is known, after the layers and operations behind it, given last first.

    If an activation behind a head does not fit it, the result is the output and the name of the activation.

    Args:
        operations: the layers and operations, the last first.
        shape: shape of the output; () if it is not known.
    """
    behind: list[Any] = []
    layers = map(_unwrapped, operations)
    units = (shape[-1] if shape else 0) or 0
    for layer in layers:
        made = _head_output(layer, layers) or _dense_output(layer, units)
        if made is not None:
            return _behind(made._replace(shape=shape), behind)
        if not _is_known(layer):
            return _behind(_unknown(_named(layer), units, shape), behind)
        behind.append(layer)
    return _behind(_unknown("the last layer", units, shape), behind)


def _head_output(layer: Any, before: Iterator[Any]) -> Output | None:
    """The output of a layer of this package, or None; `before` gives the layers before it, if one is asked for."""
    if hasattr(layer, "predictions") and _is_layer(layer):
        activation = getattr(getattr(layer, "link", None), "activation", "")
        return Output(f"the head {layer.name!r}", activation, "distributions", layer.units, is_head=False)
    if is_a(layer, HeteroscedasticDense):
        link, softmax = layer.link, _softmax_before(layer, next(before, None))
        output = Output(f"the head {layer.name!r}", link.activation, link.returns, layer.units)
        return output._replace(softmax_before=softmax)
    if is_a(layer, NoiseTransition):
        annotators = (layer.num_annotators or 0, layer.apply_at_inference)
        return Output(f"the layer {layer.name!r}", "softmax", "log-probabilities", layer.size, *annotators)
    return _own_output(layer)


def _dense_output(layer: Any, units: int) -> Output | None:
    """The output of a Dense layer or a 1x1 convolution, or None."""
    try:
        if not is_head(layer, keras.layers.Dense):
            return None
        activation = activation_of(layer)
    except ValueError:  # of other channels, or not one of Keras
        return None
    units = units or getattr(layer, "units", 0) or layer.filters
    numbers = Output(f"the layer {layer.name!r}", "", "numbers", units, is_head=False)
    return numbers if activation is None else _activated(layer, activation, units)


def _activated(layer: Any, activation: str, units: int, shape: tuple = ()) -> Output:
    """The output of a layer with an activation, whatever it takes."""
    if activation not in ACTIVATIONS:
        return _unknown(f"{_named(layer)} with the activation {activation}", units, shape)
    return Output(f"the layer {layer.name!r}", *ACTIVATIONS[activation], units, is_head=False, shape=shape)


def _unknown(source: str, units: int = 0, shape: tuple = ()) -> Output:
    return Output(source, "", "anything", units, is_head=False, shape=shape)


def _named(layer: Any) -> str:
    return f"the layer {layer.name!r} ({type(layer).__name__})"


def _softmax_before(head: Any, layer: Any) -> str:
    """The name of the layer before a head if it is a softmax of as many classes as the head has, else ""."""
    if not head.built or head.input_spec.axes[-1] != head.units:
        return ""
    try:
        has_activation = is_a(layer, keras.layers.Dense) or is_activation(layer)
        activation = activation_of(layer) if has_activation else None
    except ValueError:  # over another axis, or not one of Keras
        return ""
    return layer.name if activation in ("softmax", "log_softmax") else ""


def _own_output(layer: Any) -> Output | None:
    """The `Output` that a layer or model gives as its `head_output`, or None."""
    own = getattr(layer, "head_output", None)
    return own if isinstance(own, Output) else None


def _behind(output: Output, layers: list) -> Output | tuple[Output, str]:
    """The output after the layers behind it, given last first; returned as by `output_of`."""
    for layer in reversed(layers):
        try:
            activation = activation_of(layer) if is_activation(layer) else None
        except ValueError:  # over another axis, or not one of Keras
            output, activation = _unknown(_named(layer), output.units, output.shape), None
        kind = (output.returns, activation)
        if kind in MISFITS:
            return output, str(activation)
        if kind in MAKES:
            returns = MAKES[kind]
            output = output._replace(returns=returns, is_activated=returns == "probabilities")
        elif activation is not None:
            output = _activated(layer, activation, output.units, output.shape)
    return output


def _is_known(layer: Any) -> bool:
    of_keras = not _is_layer(layer) and type(layer).__module__.startswith("keras.")
    moving = of_keras and type(layer).__name__ in MOVING_OPERATIONS
    return moving or is_activation(layer) or any(is_a(layer, kind) for kind in (*MOVING, keras.layers.InputLayer))


def _unwrapped(layer: Any) -> Any:
    """The layer, or the one that a TimeDistributed calls at every step."""
    return layer.layer if is_a(layer, keras.layers.TimeDistributed) else layer


def _before(tensor: Any) -> Iterator[Any]:
    """Yields the layers and operations that made a symbolic tensor, the last first, up to one with several inputs."""
    return (layer for layer, *_ in walk([tensor], past_merges=False) if not has_graph(layer))


def _reversed(model: keras.Sequential) -> Iterator[Any]:
    """The layers of a Sequential model that has no graph yet, the last first."""
    for layer in reversed(model.layers):
        if isinstance(layer, keras.Sequential):
            yield from _reversed(layer)
        else:
            yield layer


def _shapes(model: keras.Model) -> Any:
    """The shapes that a subclassed model was built for; None if it is not built, or has no layer that is known."""
    known = (HeteroscedasticDense, NoiseTransition, keras.layers.Dense, keras.layers.Conv2D)
    if not model.built or not layers_of(model, known):
        return None
    return (model.get_build_config() or {}).get("input_shape")


def _traced(model: keras.Model, shapes: Any) -> Any:
    """The outputs of a subclassed model for symbolic inputs of these shapes, or None if it takes other shapes."""
    try:
        outputs = model.call(keras.tree.map_shape_structure(lambda shape: keras.Input(batch_shape=shape), shapes))
    except Exception:  # its own code may raise anything for symbols
        return None
    symbolic = all(is_symbolic(tensor) for tensor in keras.tree.flatten(outputs))
    return outputs if symbolic else None
