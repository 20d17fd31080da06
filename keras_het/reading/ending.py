"""Reads how a model ends: which layer makes its outputs, what stands behind that layer, and what the outputs are.

The graph is walked once, back from each output. Heads of this package declare what they return. A Dense layer without
activation returns numbers, which a loss can treat as logits. A softmax or sigmoid makes probabilities of any input.
Other layers are unknown. A subclassed model is read through its `call` with symbolic inputs.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras

from keras_het.base.graph import activation_of, has_graph, is_a, is_activation, is_dense, model_inputs, walk
from keras_het.base.internals import is_symbolic, layers_of, producer
from keras_het.base.refusal import refusal, refuse_if
from keras_het.layers import HeteroscedasticDense, HeteroscedasticNormal, JointHeteroscedasticDense, NoiseTransition

MAX_NAMES = 5  # of layers, the last ones, in an error
DENSE = (keras.layers.Dense,)
CLASSIFIERS = (*DENSE, HeteroscedasticDense)
NOISY = (HeteroscedasticDense, JointHeteroscedasticDense)
HEADS = (*NOISY, HeteroscedasticNormal)
RESHAPING = (keras.layers.Reshape, keras.layers.Flatten)
# Layers and operations of `keras.ops` that only move, drop or cast values; a Dropout does nothing at inference.
MOVING = (*RESHAPING, keras.layers.Permute, keras.layers.Cropping2D, keras.layers.Dropout, keras.layers.InputLayer)
MOVING_OPERATIONS = {"Reshape", "Cast", "GetItem", "Squeeze", "ExpandDims", "Transpose", "Identity"}
# What an activation makes of the outputs of a head.
MAKES: dict[tuple[str, str | None], str] = {
    ("log-probabilities", "log_softmax"): "log-probabilities",
    ("log-probabilities", "softmax"): "probabilities",
    ("log-probabilities", "exponential"): "probabilities",
    ("logits", "sigmoid"): "probabilities",
}
# The link of an activation, and what it makes of any input. No loss accepts the logarithms of a sigmoid.
ACTIVATIONS = {
    None: ("", "numbers"),
    "softmax": ("softmax", "probabilities"),
    "log_softmax": ("softmax", "log-probabilities"),
    "sigmoid": ("sigmoid", "probabilities"),
    "log_sigmoid": ("sigmoid", "anything"),
}
# Activations of the other link: they make no probabilities of the classes of the head.
MISFITS = {("log-probabilities", "sigmoid"), ("logits", "exponential")}
# The endings of subclassed models, so that `call` runs once for each.
_ENDINGS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Ending(NamedTuple):
    """An output of a model: what it is, and how it is made.

    Attributes:
        source: the layer or model that makes the values, as errors name it, such as "the head 'predictions'".
        link: "softmax" or "sigmoid"; "" if it is unknown.
        returns: "log-probabilities", "logits" or "probabilities"; "distributions" in a tensor of a head for regression
            or joint labels, "numbers" of a Dense layer without activation, and "anything" if it is unknown.
        units: the number of classes; 0 if it is unknown.
        shape: shape of the output, None where a size is unknown; () if nothing is known.
        names: the names of the output, in the model and in the dict that the model returns.
        is_head: boolean, whether a layer or model of this package makes the values.
        takes_activation: boolean, whether that is a layer with an argument `activation`.
        of_distribution: boolean, whether a loss gets the distribution that the output is made of, as in a
            `DistributionModel`.
        head: the layer at which the reading stopped; None if a layer calls it at every step.
        behind: the layers and operations behind the head, in order.
        transition: the `NoiseTransition` behind the head, or None.
        place: the node of the graph where the head was called, and the models around it.
        fault: the error of layers that must not stand behind others; "" if there is none.
        doubt: the warning about a softmax before the head; "" if there is none.
    """

    source: str
    link: str
    returns: str
    units: int
    shape: tuple = ()
    names: frozenset = frozenset()
    is_head: bool = True
    takes_activation: bool = False
    of_distribution: bool = False
    head: Any = None
    behind: tuple = ()
    transition: Any = None
    place: tuple[Any, tuple] | None = None
    fault: str = ""
    doubt: str = ""

    @property
    def features(self) -> Any:
        """The symbolic input of the head, in the graph of the outermost model."""
        node, around = self.place or (None, ())
        return _outside(node.input_tensors[0], around) if node else None

    @property
    def head_activation(self) -> str | None:
        """The only activation of the head and behind it, or None.

        Raises:
            ValueError: for several activations, for one that no link has or that Keras has no name for, and for a
                softmax that is not over the last axis.
        """
        layers = [self.head, *filter(is_activation, self.behind)]
        found = [(name, layer.name) for layer in layers if (name := activation_of(layer)) is not None]
        names, text = [name for name, _ in found], ", then ".join(f"{name} in {layer!r}" for name, layer in found)
        is_known = ACTIVATIONS.keys() >= set(names)
        refuse_if(not is_known, "The activation of the head", "be softmax, sigmoid or none", text)
        refuse_if(len(names) > 1, "The head", "have one activation", text)
        return names[0] if names else None

    @property
    def reshapes(self) -> tuple[Any, ...]:
        """The layers behind the head that are no activations."""
        return tuple(layer for layer in self.behind if not is_activation(layer))

    @property
    def annotators(self) -> int:
        """The number of annotators of the `NoiseTransition`, whose output has an axis of them in training; else 0."""
        return self.transition.num_annotators or 0 if self.transition is not None else 0

    @property
    def activation_layer(self) -> str:
        """The layer that makes probabilities of the outputs, in Python."""
        return "keras.layers.Softmax()" if self.link == "softmax" else "keras.layers.Activation('sigmoid')"

    @property
    def activation_remedy(self) -> str:
        """Change of the model that makes probabilities of the outputs, in words."""
        by_argument = f'give the head activation="{self.link}"'
        return by_argument if self.takes_activation else f"put {self.activation_layer} behind it"

    def ends_in(self, kinds: tuple) -> bool:
        """Returns whether the head is of these classes, with only activations, Reshape and Flatten behind it.

        Raises:
            ValueError: for a 1x1 convolution whose channels are not the last axis.
        """
        reshaping = all(any(is_a(layer, kind) for kind in RESHAPING) for layer in self.reshapes)
        return reshaping and _is_of(self.head, kinds)


def endings(model: keras.Model) -> list[Ending]:
    """Returns an `Ending` for each output, in order; none for a model that cannot be read.

    The `call` of a subclassed model runs once. Later changes of that model are not seen.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(3, name="head"), keras.layers.Softmax()])
        >>> ending = endings(model)[0]
        >>> ending.head.name, ending.link, ending.returns
        ('head', 'softmax', 'probabilities')
    """
    if (own := _declared(model)) is not None:
        return [own]
    if isinstance(model, keras.Sequential) and not getattr(model, "outputs", None):  # it has no graph yet, or gets none
        return [ending_of_layers(list(_layers(model)))]
    if has_graph(model):
        return _read_all(model, getattr(model, "output", model.outputs))  # a Sequential has no `output`
    if model not in _ENDINGS:
        if (outputs := _traced(model)) is None:
            return []
        read = _read_all(model, outputs)
        # Without the layers, which may refer to the model and keep it alive.
        _ENDINGS[model] = [ending._replace(head=None, behind=(), place=None) for ending in read]
    return _ENDINGS[model]


def ending_of(model: keras.Model, kinds: tuple = DENSE, name: str | None = None) -> Ending:
    """Returns the ending of a model whose head is of one of some classes, or the ending at the head of this name.

    Args:
        model: functional or built Sequential, with one output; the head may lie in a model inside it.
        kinds: the classes; Dense includes 1x1 convolutions, and a subclass counts if it has the same `call`.
        name: name of the head; None finds the last one. Layers behind a head that is not the last are left out.
    Raises:
        ValueError: if the model has no graph, several outputs or no such head, or an activation that no link has
            stands behind the last head.
    """
    output = single_output(model)
    ending = _read(walk([output], past_merges=False), tuple(output.shape))
    if ending.ends_in(kinds) and name in (None, ending.head.name):
        _ = name or ending.head_activation  # raises for an activation that no link has
        return ending
    steps = list(walk([output]))
    if step := next((step for step in steps if step[0].name == name and _is_of(step[0], kinds)), None):
        return _read([step])
    kind, last = kinds[0].__name__, producer(output)[0]
    known = [repr(layer.name) for layer, *_ in reversed(steps) if _is_of(layer, kinds[:1])]
    names = ", ".join(["..."] * (len(known) > MAX_NAMES) + known[-MAX_NAMES:]) or "none"
    if name is not None:
        raise refusal("layer", f"name a {kind} layer of the model: {names}", value=name)
    is_dense_wanted = kinds[0] is keras.layers.Dense
    raise ValueError(
        f"The model must end in a {kind} layer{' or a 1x1 Conv2D' * is_dense_wanted}, with nothing but a softmax or "
        f"sigmoid and layers that reshape behind it, or `layer` must name one of its {kind} layers: {names}. "
        f"{_line_of_top(model) * is_dense_wanted}"
        f"Received: model={model.name!r}, which ends in {last.name!r}, a {type(last).__name__}"
    )


def _line_of_top(model: keras.Model) -> str:
    """Returns the line to write for a model without a top, such as an application with include_top=False."""
    inputs = "model.inputs" if isinstance(model, keras.Sequential) else "model.input"
    is_map = len(model.outputs[0].shape) == 4
    features = "keras.layers.GlobalAveragePooling2D()(model.outputs[0])" if is_map else "model.outputs[0]"
    return f"For a model without a top, write keras.Model({inputs}, keras_het.HeteroscedasticDense(K)({features})). "


def ending_of_layers(layers: list, shape: tuple = ()) -> Ending:
    """Returns the ending that layers make one behind the other, of an output of this shape, without a graph."""
    return _read(((layer, None, ()) for layer in reversed(layers)), shape)


def single_output(model: keras.Model) -> Any:
    """Returns the symbolic output of a functional or built Sequential model.

    Raises:
        ValueError: for a model without a graph, or with several outputs.
    """
    if not has_graph(model) or not getattr(model, "outputs", None):
        raise ValueError(
            "`model` must be a functional model, or a Sequential one that is built (give it a keras.Input): a "
            "subclassed model has no graph in which a layer could be replaced; there, make the model by hand: "
            f"HeteroscedasticDense(K)(backbone.output). Received: model={model!r}"
        )
    if len(model.outputs) != 1:
        raise refusal("model", "have one output", f"a model with {len(model.outputs)} outputs, {model.output_names}")
    return model.outputs[0]


def _is_of(layer: Any, kinds: tuple) -> bool:
    return any(is_dense(layer) if kind is keras.layers.Dense else is_a(layer, kind) for kind in kinds)


def _outside(features: Any, around: tuple) -> Any:
    """Brings a tensor of an inner model to the graph around all models: calls this part as each model was called."""
    for model, node in reversed(around):
        if len(model.inputs) == 1 and features is model.inputs[0]:
            features = node.input_tensors[0]
        else:
            part = keras.Model(model_inputs(model), features, name=f"{model.name}_features")
            features = part(*node.arguments.args, **node.arguments.kwargs)
    return features


def _read_all(model: keras.Model, structure: Any) -> list[Ending]:
    """Reads each symbolic output of a structure."""
    names, outputs = getattr(model, "output_names", None), keras.tree.flatten_with_path(structure)
    has_transition = bool(layers_of(model, NoiseTransition))
    read = []
    for index, (path, tensor) in enumerate(outputs):
        own = {names[index]} if names and len(names) == len(outputs) else set()
        keys = {key for key in path[-1:] if isinstance(key, str)}
        ending = _read(walk([tensor], past_merges=False), tuple(tensor.shape))
        fault = (has_transition and _learner_behind_transition(tensor)) or ending.fault
        read.append(ending._replace(names=frozenset(own | keys), fault=fault))
    return read


def _read(steps: Iterable[tuple[Any, Any, tuple]], shape: tuple = ()) -> Ending:
    """Reads the ending of an output from the layers and operations that made it, the last first, as `walk` yields them.

    A `shape` of () is unknown.
    """
    behind: list[Any] = []
    units = (shape[-1] if shape else 0) or 0
    chain = ((layer, (node, around)) for layer, node, around in steps if not has_graph(layer))
    ending = _unknown("the last layer", units)
    for layer, place in chain:
        inner = _unwrapped(layer)
        if is_a(inner, NoiseTransition) or _is_passive(inner):
            behind.append(layer)
            continue
        ending = _of_head(inner, chain) or _of_dense(inner, units) or _unknown(_named(inner), units)
        ending = ending if inner is not layer else ending._replace(head=layer, place=place)
        break
    for layer in reversed(behind):
        ending = _with_behind(ending, layer)
    return ending._replace(shape=shape or ending.shape)


def _of_head(layer: Any, before: Iterator[tuple[Any, Any]]) -> Ending | None:
    """Returns what a layer of this package makes, or None; `before` yields the layers before it."""
    if not _is_layer(layer):
        return None
    source = f"the head {layer.name!r}"
    if hasattr(layer, "predictions"):
        link = getattr(getattr(layer, "link", None), "activation", "")
        return Ending(source, link, "distributions", layer.units, is_head=False)
    if is_a(layer, HeteroscedasticDense):
        doubt = _doubt(layer, source, next((_unwrapped(each) for each, _ in before), None))
        returns = "probabilities" if activation_of(layer) else layer.link.returns
        return Ending(source, layer.link.activation, returns, layer.units, takes_activation=True, doubt=doubt)
    return _declared(layer)


def _of_dense(layer: Any, units: int) -> Ending | None:
    """Returns what a Dense layer or a 1x1 convolution makes, or None."""
    try:
        return _activated(_unknown("", units or units_of(layer)), layer) if is_dense(layer) else None
    except ValueError:  # of other channels, or an activation that is not one of Keras
        return None


def units_of(dense: Any) -> int:
    """Returns the number of classes of a Dense layer or a 1x1 convolution."""
    return dense.filters if isinstance(dense, keras.layers.Conv2D) else dense.units


def _with_behind(ending: Ending, layer: Any) -> Ending:
    """Returns the ending with one more layer behind it."""
    ending, part = ending._replace(behind=(*ending.behind, layer)), _unwrapped(layer)
    if is_a(part, NoiseTransition):
        source, returns = f"the layer {part.name!r}", "log-probabilities"
        ending = ending._replace(source=source, link="softmax", returns=returns, units=part.size, is_head=True)
        return ending._replace(takes_activation=False, transition=part, doubt="")
    if ending.fault or not is_activation(part):
        return ending
    try:
        activation = activation_of(part)
    except ValueError:  # over another axis, or not one of Keras
        return ending._replace(source=_named(part), link="", returns="anything", is_head=False, takes_activation=False)
    kind = (ending.returns, activation)
    is_second = ending.is_head and ending.returns == "probabilities" and activation is not None
    if kind in MISFITS or is_second:
        fitting = "none" if is_second else f"{ending.activation_layer}, or none"
        rule = f"be {fitting}, for it returns {ending.returns}"
        fault = refusal(f"The activation behind {ending.source}", rule, repr(activation))
        return ending._replace(link="", returns="anything", is_head=False, fault=str(fault))
    if MAKES.get(kind) == "probabilities":
        source = f"an activation behind {ending.source}"
        return ending._replace(source=source, returns="probabilities", takes_activation=False)
    return ending if activation is None or kind in MAKES else _activated(ending, part)


def _activated(ending: Ending, layer: Any) -> Ending:
    """Returns the ending that a layer with an activation makes of any input."""
    activation = activation_of(layer)
    link, returns = ACTIVATIONS.get(activation, ("", "anything"))
    is_unknown = returns == "anything"
    source = f"{_named(layer)} with the activation {activation}" if is_unknown else f"the layer {layer.name!r}"
    return ending._replace(source=source, link=link, returns=returns, is_head=False, takes_activation=False)


def _unknown(source: str, units: int) -> Ending:
    return Ending(source, "", "anything", units, is_head=False)


def _named(layer: Any) -> str:
    return f"the layer {layer.name!r} ({type(layer).__name__})"


def _doubt(head: Any, source: str, layer: Any) -> str:
    """Returns the warning about the layer before a head, if that is a softmax of as many classes, else ""."""
    if not head.built or head.input_spec.axes[-1] != head.units:
        return ""
    try:
        has_activation = is_a(layer, keras.layers.Dense) or is_activation(layer)
        activation = activation_of(layer) if has_activation else None
    except ValueError:  # over another axis, or not one of Keras
        return ""
    if activation not in ("softmax", "log_softmax"):
        return ""
    return (
        f"The layer {layer.name!r} before {source} is a softmax of as many classes. A head stands in the place of that "
        "layer: it takes features, and from a softmax it learns little. Remove the layer or its softmax."
    )


def _learner_behind_transition(tensor: Any) -> str:
    """Returns the error about a layer that learns behind a `NoiseTransition`, or ""."""
    learners = [
        (part, node.input_tensors)
        for layer, node, _ in walk([tensor])
        for part in (layers_of(layer) if _is_layer(layer) else ())
        if _learns(part)
    ]
    if not _transitions([each for _, inputs in learners for each in inputs]):  # one walk for all of them
        return ""
    part, name = next((part, name) for part, inputs in learners for name in _transitions(inputs))
    return (
        f"The layer {name!r} must be the last, but for activations and layers that reshape: it gives the "
        "log-probabilities of the noisy labels, which the loss takes. "
        f"Received: {part.name!r}, a {type(part).__name__}, behind it"
    )


def _transitions(tensors: list) -> list[str]:
    """Returns the names of the `NoiseTransition` layers that symbolic tensors come from."""
    return [layer.name for layer, *_ in walk(tensors) if isinstance(_unwrapped(layer), NoiseTransition)]


def _learns(layer: Any) -> bool:
    """Returns whether a layer of Keras or of this package learns from its input; False for a user's own layer."""
    is_known = type(layer).__module__.startswith(("keras.", "keras_het."))
    is_container = isinstance(layer, NoiseTransition | keras.Model)
    return is_known and not is_container and bool(layer.weights) and not _is_passive(layer)


def _is_layer(layer: Any) -> bool:
    return isinstance(layer, keras.layers.Layer)


def _is_passive(layer: Any) -> bool:
    """Returns whether a layer or an operation of Keras is an activation, or only moves values."""
    of_keras = not _is_layer(layer) and type(layer).__module__.startswith("keras.")
    moves = of_keras and type(layer).__name__ in MOVING_OPERATIONS
    return moves or is_activation(layer) or any(is_a(layer, kind) for kind in MOVING)


def _declared(layer: Any) -> Ending | None:
    """Returns the `Ending` that a layer or model declares as its `head_output`, or None."""
    own = getattr(layer, "head_output", None)
    return own if isinstance(own, Ending) else None


def _unwrapped(layer: Any) -> Any:
    """Returns the layer that a TimeDistributed calls at every step; any other layer itself."""
    return layer.layer if is_a(layer, keras.layers.TimeDistributed) else layer


def _layers(model: keras.Sequential) -> Iterator[Any]:
    """Yields the layers of a Sequential model that has no graph yet, in order."""
    for layer in model.layers:
        if isinstance(layer, keras.Sequential):
            yield from _layers(layer)
        else:
            yield layer


def _traced(model: keras.Model) -> Any:
    """Returns the outputs of a subclassed model for symbolic inputs; none if it refuses them.

    They are None if the model is not built, or has no layer to read.
    """
    known = (HeteroscedasticDense, NoiseTransition, keras.layers.Dense, keras.layers.Conv2D)
    shapes = (model.get_build_config() or {}).get("input_shape") if model.built and layers_of(model, known) else None
    if shapes is None:
        return None
    try:
        outputs = model.call(keras.tree.map_shape_structure(lambda shape: keras.Input(batch_shape=shape), shapes))
    except Exception:  # its own code may raise anything for symbols
        return []
    return outputs if all(is_symbolic(tensor) for tensor in keras.tree.flatten(outputs)) else []
