"""Inputs of a model, a walk through the graph of a functional model, and names of its activations."""

from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_het.base.internals import output_index, producer
from keras_het.base.refusal import refusal

# Operations of `keras.ops`, by class name.
ACTIVATION_OPERATIONS = {
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "log_sigmoid",
    "Exp": "exponential",
}
TRAINING_METHODS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics", "compile")
POINTWISE = {"kernel_size": (1, 1), "strides": (1, 1), "groups": 1}  # arguments of a convolution that is a Dense layer


def model_inputs(model: keras.Model) -> Any:
    """Returns the symbolic inputs of a model, in the structure of its calls."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def output_code(model: keras.Model, output: str = "model.outputs[0]") -> str:
    """Returns the code of a model with the inputs of a functional or Sequential model and this output."""
    return f"keras.Model({'model.inputs' if isinstance(model, keras.Sequential) else 'model.input'}, {output})"


def check_one_output(model: keras.Model) -> None:
    """Raises a ValueError for a model with several outputs."""
    outputs = getattr(model, "outputs", None) or [None]  # a subclassed model has no such list
    if len(outputs) != 1:
        rule = f"have one output: pass {output_code(model)} for {model.output_names[0]!r}"
        raise refusal("model", rule, f"a model with {len(outputs)} outputs, {model.output_names}")


def symbolic_inputs(model: keras.Model) -> Any:
    """Returns new symbolic inputs like the inputs of a model; raises ValueError for a model that is not built."""
    if getattr(model, "inputs", None):
        inputs = model_inputs(model)
        return keras.tree.map_structure(lambda x: keras.Input(batch_shape=x.shape, dtype=x.dtype, name=x.name), inputs)
    shapes = (model.get_build_config() or {}).get("input_shape") if model.built else None
    if shapes is None:
        raise refusal("model", "be built: give it a keras.Input, or call it once", f"{model.name!r}, not built")
    return keras.tree.map_shape_structure(lambda shape: keras.Input(batch_shape=shape), shapes)


def predictor(model: keras.Model, tensor: Any) -> Callable[[Any], Any]:
    """Returns a function from a batch, which can be raw images or strings, to the values of a symbolic tensor."""
    part, preprocess = keras.Model(model_inputs(model), tensor), getattr(model, "preprocess_samples", None)
    if preprocess is None:
        return part.predict_on_batch
    return lambda batch: part.predict_on_batch(keras.utils.unpack_x_y_sample_weight(preprocess(batch))[0])


def walk(tensors: list[Any], past_merges: bool = True) -> Iterator[tuple[Any, Any, tuple]]:
    """Yields the layers and operations that compute symbolic tensors, from the last to the first.

    With each layer come the graph node of its call and the models around it, the outermost first, each with its node. A
    model inside the model is yielded before its layers. Every tensor is visited once. Without `past_merges`, the walk
    ends at layers with several inputs.
    """
    waiting: list[tuple[Any, tuple]] = [(tensor, ()) for tensor in tensors]
    seen = set()
    while waiting:
        tensor, parents = waiting.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        layer, node = producer(tensor)
        yield layer, node, parents
        if past_merges or len(node.input_tensors) == 1:
            waiting += [(source, parents) for source in node.input_tensors]
        if has_graph(layer):
            waiting.append((layer.outputs[output_index(tensor)], (*parents, (layer, node))))


def has_graph(layer: Any) -> bool:
    """True if a layer is a functional or Sequential model without its own `call`."""
    if not isinstance(layer, keras.Model) or not getattr(layer, "built", False):
        return False
    graphs: list[Any] = [base for base in type(layer).__mro__ if base.__name__ in ("Functional", "Sequential")]
    return bool(graphs) and type(layer).call is graphs[0].call


def own_methods(model: keras.Model) -> list[str]:
    """Returns the training methods that a model or its class overrides, without the `compile` of a KerasHub task."""
    methods = {name: getattr(type(model), name) for name in TRAINING_METHODS}
    is_task = methods["compile"].__module__.startswith("keras_hub.")
    own = [name for name in methods if methods[name] is not getattr(keras.Model, name) or name in vars(model)]
    return [name for name in own if name != "compile" or not is_task]


def is_a(layer: Any, kind: Any) -> bool:
    """True if a layer is of a class and has its `call`; a subclass with its own `call` differs."""
    return isinstance(layer, kind) and type(layer).call is kind.call


def is_dense(layer: Any) -> bool:
    """True if a layer is a Dense layer, also as a 1x1 convolution, whose channels must be the last axis."""
    if not is_a(layer, keras.layers.Conv2D):
        return is_a(layer, keras.layers.Dense)
    if differences(layer):
        return False
    if layer.data_format != "channels_last":
        rule = "be 'channels_last', because a Dense layer maps the last axis"
        raise refusal("`data_format` of a head", rule, f"data_format={layer.data_format!r} in {layer.name!r}")
    return True


def differences(convolution: Any) -> list[str]:
    """Returns the arguments, as code, that make a convolution differ from a Dense layer at every pixel."""
    values = {name: getattr(convolution, name) for name in POINTWISE}
    return [f"{name}={value}" for name, value in values.items() if value != POINTWISE[name]]


def is_activation(layer: Any) -> bool:
    """True if a layer, or an operation of `keras.ops`, only applies an activation."""
    is_operation = not isinstance(layer, keras.layers.Layer) and type(layer).__module__.startswith("keras.")
    kinds = (keras.layers.Activation, keras.layers.Softmax, keras.layers.Identity)
    return any(is_a(layer, kind) for kind in kinds) or (is_operation and type(layer).__name__ in ACTIVATION_OPERATIONS)


def activation_of(layer: Any) -> str | None:
    """Returns the name of a layer's activation, or None; refuses a softmax over another axis and custom functions."""
    if getattr(layer, "axis", -1) != -1:
        raise refusal("The softmax over the classes", "be over the last axis", f"axis={layer.axis} in {layer.name!r}")
    if isinstance(layer, keras.layers.Softmax):
        return "softmax"
    if not isinstance(layer, keras.layers.Layer):
        return ACTIVATION_OPERATIONS[type(layer).__name__]
    activation = getattr(layer, "activation", keras.activations.linear)
    if is_activation(activation):
        return activation_of(activation)
    name = getattr(activation, "__name__", repr(activation))
    if activation not in (getattr(keras.activations, name, None), getattr(keras.ops, name, None)):
        rule = 'be softmax, sigmoid or none, by name: activation="softmax"'
        text = f"{activation.__module__}.{name}" if hasattr(activation, "__name__") else name
        raise refusal("The activation of the head", rule, f"{text} in {layer.name!r}")
    return None if name == "linear" else name
