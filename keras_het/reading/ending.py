"""Reads the end of a model: the head, the layers after it, and the kind of the outputs.

The graph is walked once, backwards from each output. Heads of this package declare their outputs. A Dense layer without
activation returns numbers, which a loss can treat as logits. A softmax or sigmoid returns probabilities for any input.
Other layers are unknown. A subclassed model is read through its `call` with symbolic inputs.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras

from keras_het.base.graph import (
    activation_of,
    check_one_output,
    differences,
    has_graph,
    is_a,
    is_activation,
    is_dense,
    model_inputs,
    output_code,
    symbolic_inputs,
    walk,
)
from keras_het.base.internals import is_symbolic, layers_of, producer
from keras_het.base.refusal import refusal, refuse_if
from keras_het.layers import HeteroscedasticDense, HeteroscedasticNormal, JointHeteroscedasticDense, NoiseTransition

MAX_NAMES = 5  # layers that an error lists
DENSE_LAYERS = (keras.layers.Dense,)
NOISY_HEADS = (HeteroscedasticDense, JointHeteroscedasticDense)
HEADS = (*NOISY_HEADS, HeteroscedasticNormal)
LAST_LAYERS = (*DENSE_LAYERS, *HEADS)
RESHAPING_LAYERS = (keras.layers.Reshape, keras.layers.Flatten)
# Layers and operations of `keras.ops` that only move, drop or cast values. Dropout is off at inference.
PASSIVE_LAYERS = (
    *RESHAPING_LAYERS,
    keras.layers.Permute,
    keras.layers.Cropping2D,
    keras.layers.Dropout,
    keras.layers.InputLayer,
)
PASSIVE_OPERATIONS = {"Reshape", "Cast", "GetItem", "Squeeze", "ExpandDims", "Transpose", "Identity"}
# Outputs of an activation after a head.
ACTIVATION_EFFECTS: dict[tuple[str, str | None], str] = {
    ("log-probabilities", "log_softmax"): "log-probabilities",
    ("log-probabilities", "softmax"): "probabilities",
    ("log-probabilities", "exponential"): "probabilities",
    ("logits", "sigmoid"): "probabilities",
}
# Link and outputs of an activation, for any input. No loss accepts the logarithms of a sigmoid.
ACTIVATIONS = {
    None: ("", "numbers"),
    "softmax": ("softmax", "probabilities"),
    "log_softmax": ("softmax", "log-probabilities"),
    "sigmoid": ("sigmoid", "probabilities"),
    "log_sigmoid": ("sigmoid", "anything"),
}
# Activations of the other link, which do not return probabilities of the head's classes.
MISFITS = {("log-probabilities", "sigmoid"), ("logits", "exponential")}
# Cache for subclassed models, so that `call` runs once for each model.
_ENDINGS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Ending(NamedTuple):
    """Kind and origin of an output of a model.

    Attributes:
        source: the layer or model that computes the values, as errors name it, such as "the head 'predictions'".
        link: "softmax" or "sigmoid"; "" if unknown.
        returns: "log-probabilities", "logits" or "probabilities"; "distributions" for the packed output of a head for
            regression or joint labels, "numbers" for a Dense layer without activation, and "anything" if unknown.
        units: number of classes; 0 if unknown.
        shape: shape of the output, None where a size is unknown; () if unknown.
        names: names of the output, in the model and in the dict that the model returns; none for the only output of a
            model that returns no dict.
        is_head: boolean, whether a layer or model of this package computes the values.
        accepts_activation: boolean, whether that layer has an argument `activation`.
        is_distribution: boolean, whether the loss gets a distribution instead of the output, as in a
            `DistributionModel`.
        head: the layer at which the reading stopped; None if a layer calls it at every step.
        tail: layers and operations after the head, in order.
        transition: the `NoiseTransition` after the head, or None.
        call_site: node of the graph where the head was called, and the models around it.
        error: error about misplaced layers; "" if none.
        warning: warning about a softmax before the head; "" if none.
    """

    source: str
    link: str
    returns: str
    units: int
    shape: tuple = ()
    names: frozenset = frozenset()
    is_head: bool = True
    accepts_activation: bool = False
    is_distribution: bool = False
    head: Any = None
    tail: tuple = ()
    transition: Any = None
    call_site: tuple[Any, tuple] | None = None
    error: str = ""
    warning: str = ""

    @property
    def features(self) -> Any:
        """Symbolic input of the head, in the graph of the outermost model."""
        node, models = self.call_site or (None, ())
        return lift(node.input_tensors[0], models) if node else None

    @property
    def head_activation(self) -> str | None:
        """Name of the activation in or after the head, or None; a ValueError for several or an unknown one."""
        layers = [self.head, *filter(is_activation, self.tail)]
        pairs = [(name, layer.name) for layer in layers if (name := activation_of(layer)) is not None]
        names, text = [name for name, _ in pairs], ", then ".join(f"{name} in {layer!r}" for name, layer in pairs)
        is_known = ACTIVATIONS.keys() >= set(names)
        refuse_if(not is_known, "The activation of the head", "be softmax, sigmoid or none", text)
        refuse_if(len(names) > 1, "The head", "have one activation", text)
        return names[0] if names else None

    @property
    def reshapes(self) -> tuple[Any, ...]:
        """Layers after the head, without activations."""
        return tuple(layer for layer in self.tail if not is_activation(layer))

    @property
    def annotators(self) -> int:
        """Number of annotators of the `NoiseTransition`, the size of an axis of its output in training; else 0."""
        return self.transition.num_annotators or 0 if self.transition is not None else 0

    @property
    def activation_layer(self) -> str:
        """Python code of the layer that turns the outputs into probabilities."""
        return "keras.layers.Softmax()" if self.link == "softmax" else "keras.layers.Activation('sigmoid')"

    @property
    def activation_remedy(self) -> str:
        """Remedy, as a fragment of a sentence, which makes the model return probabilities."""
        remedy = f'give the head activation="{self.link}"'
        return remedy if self.accepts_activation else f"put {self.activation_layer} after it"

    def ends_in(self, kinds: tuple) -> bool:
        """True if the head has one of these classes, and only activations, Reshape and Flatten follow."""
        only_reshapes = all(any(is_a(layer, kind) for kind in RESHAPING_LAYERS) for layer in self.reshapes)
        return only_reshapes and _is_any(self.head, kinds)


def endings(model: keras.Model) -> list[Ending]:
    """Returns an `Ending` for each output, in order; [] for a model that cannot be read.

    The `call` of a subclassed model runs once. Later changes of that model have no effect.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(3, name="head"), keras.layers.Softmax()])
        >>> ending = endings(model)[0]
        >>> ending.head.name, ending.link, ending.returns
        ('head', 'softmax', 'probabilities')
    """
    if (ending := _declared_ending(model)) is not None:
        return [ending]
    if isinstance(model, keras.Sequential) and not getattr(model, "outputs", None):  # without a graph, or not yet built
        return [read_layers(list(_layers(model)))]
    if has_graph(model):
        return _read_all(model, getattr(model, "output", model.outputs))  # a Sequential has no `output`
    if model not in _ENDINGS:
        if (outputs := _trace(model)) is None:
            return []
        # Layers can refer to the model, and would keep it alive in the cache.
        _ENDINGS[model] = [ending._replace(head=None, tail=(), call_site=None) for ending in _read_all(model, outputs)]
    return _ENDINGS[model]


def find_ending(
    model: keras.Model, kinds: tuple = DENSE_LAYERS, name: str | None = None, remedy: str | None = None
) -> Ending:
    """Finds the head of these classes that a model ends in, or the head with this name, and returns the ending there.

    The head can be in an inner model. Dense includes 1x1 convolutions and subclasses with the same `call`. With `name`,
    any layers can follow the head. `remedy` is a sentence for the error if the model ends in another layer; None names
    the heads of the model.
    """
    output = single_output(model)
    ending = _read(walk([output], past_merges=False), tuple(output.shape))
    if ending.ends_in(kinds) and name in (None, ending.head.name):
        _ = name or ending.head_activation  # raises for an activation without a link
        return ending
    steps = list(walk([output]))
    if step := next((step for step in steps if step[0].name == name and _is_any(step[0], kinds)), None):
        return _read([step])
    kind, last = kinds[0].__name__, ending.head or producer(output)[0]
    candidates = [repr(layer.name) for layer, *_ in reversed(steps) if _is_any(layer, kinds[:1])]
    names = ", ".join(["..."] * (len(candidates) > MAX_NAMES) + candidates[-MAX_NAMES:]) or "none"
    if name is not None:
        raise refusal("layer", f"name a {kind} layer of the model: {names}", value=name)
    is_dense_wanted = kinds[0] is keras.layers.Dense
    if remedy is None:
        hint = _top_hint(model, last) * is_dense_wanted
        remedy = f"Otherwise `layer` must name one of its {kind} layers: {names}. {hint}"
    options = differences(last) if isinstance(last, keras.layers.Conv2D) else []
    raise ValueError(
        f"The model must end in a {kind} layer{' or a 1x1 Conv2D' * is_dense_wanted}. Only a softmax or sigmoid and "
        f"layers that reshape can follow it. {remedy.strip()} Received: model={model.name!r}, which ends in "
        f"{last.name!r}, a {type(last).__name__}{' with ' * bool(options)}{', '.join(options)}"
    )


def _top_hint(model: keras.Model, last: Any) -> str:
    """Returns the code that adds a head to a model without a top, such as an application with include_top=False."""
    name = getattr(getattr(last, "activation", None), "__name__", "")
    if isinstance(last, keras.layers.Conv2D) and name in ("linear", *ACTIVATIONS):
        return ""  # a map of classes, not of features
    is_map = len(model.outputs[0].shape) == 4
    features = "keras.layers.GlobalAveragePooling2D()(model.outputs[0])" if is_map else "model.outputs[0]"
    return f"For a model without a top, write {output_code(model, f'keras_het.HeteroscedasticDense(K)({features})')}. "


def read_layers(layers: list, shape: tuple = ()) -> Ending:
    """Reads the ending of a chain of layers with an output of this shape, without a graph."""
    return _read(((layer, None, ()) for layer in reversed(layers)), shape)


def single_output(model: keras.Model) -> Any:
    """Returns the symbolic output of a model with a graph and one output; refuses other models."""
    if not has_graph(model) or not getattr(model, "outputs", None):
        is_call = isinstance(model, keras.Model) and getattr(model, "outputs", None)
        raise ValueError(
            "`model` must be a functional or built Sequential model: give a Sequential model a keras.Input. A "
            f"subclass{' with its own `call`' * bool(is_call)} has no graph of what it computes, so add the head by "
            f"hand: HeteroscedasticDense(K)(backbone.output). Received: model={model!r}"
        )
    check_one_output(model)
    return model.outputs[0]


def _is_any(layer: Any, kinds: tuple) -> bool:
    return any(is_dense(layer) if kind is keras.layers.Dense else is_a(layer, kind) for kind in kinds)


def lift(features: Any, models: tuple) -> Any:
    """Lifts a tensor of an inner model to the outermost graph, by calling this part as each model was called."""
    for model, node in reversed(models):
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
    result = []
    for index, (path, tensor) in enumerate(outputs):
        model_names = {names[index]} if names and len(names) == len(outputs) > 1 else set()
        keys = {key for key in path[-1:] if isinstance(key, str)}
        ending = _read(walk([tensor], past_merges=False), tuple(tensor.shape))
        error = (has_transition and _learner_error(tensor)) or ending.error
        result.append(ending._replace(names=frozenset(model_names | keys), error=error))
    return result


def _read(steps: Iterable[tuple[Any, Any, tuple]], shape: tuple = ()) -> Ending:
    """Reads the ending of an output of this shape from the steps of `walk`, which begin with the last layer."""
    tail: list[Any] = []
    units = (shape[-1] if shape else 0) or 0
    chain = ((layer, (node, models)) for layer, node, models in steps if not has_graph(layer))
    ending = _unknown("the last layer", units)
    for layer, call_site in chain:
        inner = _unwrap(layer)
        if is_a(inner, NoiseTransition) or _is_passive(inner):
            tail.append(layer)
            continue
        ending = _read_head(inner, chain) or _read_dense(inner, units) or _unknown(_describe(inner), units)
        ending = ending if inner is not layer else ending._replace(head=layer, call_site=call_site)
        break
    for layer in reversed(tail):
        ending = _append(ending, layer)
    if not shape and any(isinstance(layer, RESHAPING_LAYERS) for layer in tail):
        ending = ending._replace(units=0)  # they can change the last axis
    return ending._replace(shape=shape or ending.shape)


def _read_head(layer: Any, earlier: Iterator[tuple[Any, Any]]) -> Ending | None:
    """Returns the ending of a layer of this package, or None; `earlier` yields the layers before it."""
    if not _is_layer(layer):
        return None
    source = f"the head {layer.name!r}"
    if hasattr(layer, "predictions"):
        link = getattr(getattr(layer, "link", None), "activation", "")
        return Ending(source, link, "distributions", layer.units, is_head=False)
    if is_a(layer, HeteroscedasticDense):
        warning = _warn_softmax(layer, source, next((_unwrap(each) for each, _ in earlier), None))
        returns = "probabilities" if activation_of(layer) else layer.link.returns
        return Ending(source, layer.link.activation, returns, layer.units, accepts_activation=True, warning=warning)
    return _declared_ending(layer)


def _read_dense(layer: Any, units: int) -> Ending | None:
    """Returns the ending of a Dense layer or a 1x1 convolution, or None."""
    try:
        return _activate(_unknown("", units or units_of(layer)), layer) if is_dense(layer) else None
    except ValueError:  # channels first, or a custom activation
        return None


def units_of(dense: Any) -> int:
    """Returns the number of classes of a Dense layer or a 1x1 convolution."""
    return dense.filters if isinstance(dense, keras.layers.Conv2D) else dense.units


def _append(ending: Ending, layer: Any) -> Ending:
    """Returns the ending with another layer after it."""
    ending, part = ending._replace(tail=(*ending.tail, layer)), _unwrap(layer)
    if is_a(part, NoiseTransition):
        source, returns = f"the layer {part.name!r}", "log-probabilities"
        ending = ending._replace(source=source, link="softmax", returns=returns, units=part.size, is_head=True)
        return ending._replace(accepts_activation=False, transition=part, warning="")
    if ending.error or not is_activation(part):
        return ending
    try:
        activation = activation_of(part)
    except ValueError:  # over another axis, or a custom activation
        source = _describe(part)
        return ending._replace(source=source, link="", returns="anything", is_head=False, accepts_activation=False)
    kind = (ending.returns, activation)
    is_second = ending.is_head and ending.returns == "probabilities" and activation is not None
    if kind in MISFITS or is_second:
        match = "none" if is_second else f"{ending.activation_layer} or none"
        rule = f"be {match}, because {ending.source} returns {ending.returns}"
        error = refusal(f"The activation after {ending.source}", rule, repr(activation))
        return ending._replace(link="", returns="anything", is_head=False, error=str(error))
    if ACTIVATION_EFFECTS.get(kind) == "probabilities":
        source = f"an activation after {ending.source}"
        return ending._replace(source=source, returns="probabilities", accepts_activation=False)
    return ending if activation is None or kind in ACTIVATION_EFFECTS else _activate(ending, part)


def _activate(ending: Ending, layer: Any) -> Ending:
    """Returns the ending of a layer with an activation, for any input."""
    activation = activation_of(layer)
    link, returns = ACTIVATIONS.get(activation, ("", "anything"))
    is_unknown = returns == "anything"
    source = f"{_describe(layer)} with the activation {activation}" if is_unknown else f"the layer {layer.name!r}"
    return ending._replace(source=source, link=link, returns=returns, is_head=False, accepts_activation=False)


def _unknown(source: str, units: int) -> Ending:
    return Ending(source, "", "anything", units, is_head=False)


def _describe(layer: Any) -> str:
    return f"the layer {layer.name!r} ({type(layer).__name__})"


def _warn_softmax(head: Any, source: str, layer: Any) -> str:
    """Returns the warning about the layer before a head if it is a softmax over as many classes, else ""."""
    if not head.built or head.input_spec.axes[-1] != head.units:
        return ""
    try:
        has_activation = is_a(layer, keras.layers.Dense) or is_activation(layer)
        activation = activation_of(layer) if has_activation else None
    except ValueError:  # over another axis, or a custom activation
        return ""
    if activation not in ("softmax", "log_softmax"):
        return ""
    return (
        f"The layer {layer.name!r} before {source} is a softmax over the same number of classes. A head replaces this "
        "layer: it needs features, and learns little from a softmax. Remove the layer or its softmax."
    )


def _learner_error(tensor: Any) -> str:
    """Returns the error about a trainable layer after a `NoiseTransition`, or ""."""
    learners = [
        (part, node.input_tensors)
        for layer, node, _ in walk([tensor])
        for part in (layers_of(layer) if _is_layer(layer) else ())
        if _learns(part)
    ]
    if not _find_transitions([tensor for _, inputs in learners for tensor in inputs]):  # one walk for all learners
        return ""
    part, name = next((part, name) for part, inputs in learners for name in _find_transitions(inputs))
    return (
        f"The layer {name!r} must be the last layer, because it returns the log-probabilities of the noisy labels for "
        "the loss. Only activations and layers that reshape can follow. "
        f"Received: {part.name!r}, a {type(part).__name__}, after it"
    )


def _find_transitions(tensors: list) -> list[str]:
    return [layer.name for layer, *_ in walk(tensors) if isinstance(_unwrap(layer), NoiseTransition)]


def _learns(layer: Any) -> bool:
    """True if a layer of Keras or of this package is trained on its input; False for a user's own layer."""
    is_known = type(layer).__module__.startswith(("keras.", "keras_het."))
    is_container = isinstance(layer, NoiseTransition | keras.Model)
    return is_known and not is_container and bool(layer.weights) and not _is_passive(layer)


def _is_layer(layer: Any) -> bool:
    return isinstance(layer, keras.layers.Layer)


def _is_passive(layer: Any) -> bool:
    """True if a layer or an operation of Keras is an activation, or only moves values."""
    is_operation = not _is_layer(layer) and type(layer).__module__.startswith("keras.")
    is_passive_operation = is_operation and type(layer).__name__ in PASSIVE_OPERATIONS
    return is_passive_operation or is_activation(layer) or any(is_a(layer, kind) for kind in PASSIVE_LAYERS)


def _declared_ending(layer: Any) -> Ending | None:
    ending = getattr(layer, "head_output", None)
    return ending if isinstance(ending, Ending) else None


def _unwrap(layer: Any) -> Any:
    """Returns the layer that a TimeDistributed calls at every step; any other layer itself."""
    return layer.layer if is_a(layer, keras.layers.TimeDistributed) else layer


def _layers(model: keras.Sequential) -> Iterator[Any]:
    """Yields the layers of a Sequential model without a graph, in order."""
    for layer in model.layers:
        if isinstance(layer, keras.Sequential):
            yield from _layers(layer)
        else:
            yield layer


def _trace(model: keras.Model) -> Any:
    """Calls a subclassed model on symbolic inputs; returns [] if it refuses them, and None if nothing can be read."""
    known = (HeteroscedasticDense, NoiseTransition, keras.layers.Dense, keras.layers.Conv2D)
    if not model.built or not layers_of(model, known):
        return None
    try:
        outputs = model.call(symbolic_inputs(model))
    except Exception:  # the caller's code can raise anything on symbolic inputs
        return []
    return outputs if all(is_symbolic(tensor) for tensor in keras.tree.flatten(outputs)) else []
