"""The private attributes of Keras and PyTorch that the package reads or sets, all of them and here alone.

They have no public names for these. A version that renames one breaks this file, and no other.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import keras


def layers_of(model: Any, kind: Any = keras.layers.Layer, include_self: bool = True) -> list[Any]:
    """Returns all layers of a class in a model, and in the layers inside it, outer before inner.

    `kind` can be a tuple of classes; `include_self` counts `model` itself.
    """
    return [layer for layer in model._flatten_layers(include_self=include_self) if isinstance(layer, kind)]


def seed_generators_of(layer: Any) -> list[Any]:
    """Returns the generators of random numbers that a layer itself owns, such as that of `Dropout`."""
    return list(getattr(layer, "_seed_generators", ()))


@contextlib.contextmanager
def share_losses(model: Any, inner: Any) -> Iterator[None]:
    """Gives the losses that Keras' trainer on JAX collected for a model to the model in it, for some time."""
    own, inner._losses_override = inner._losses_override, model._losses_override
    try:
        yield
    finally:
        inner._losses_override = own


def is_symbolic(tensor: Any) -> bool:
    """Returns whether a tensor is a symbol in the graph of a functional model."""
    return hasattr(tensor, "_keras_history")


def producer(tensor: Any) -> tuple[Any, Any]:
    """Returns the layer or operation that made a symbolic tensor, and the node of the graph where it did."""
    history = tensor._keras_history
    return history.operation, history.operation._inbound_nodes[history.node_index]


def output_index(tensor: Any) -> int:
    """Which output of its layer or operation a symbolic tensor is."""
    return tensor._keras_history.tensor_index


def mask_of(tensor: Any) -> Any:
    """Returns the mask that Keras carries with a tensor, or None.

    A tensor of JAX cannot have an attribute: Keras stores its mask in a table.
    """
    return sys.modules[keras.losses.Loss.__module__].backend.get_keras_mask(tensor)


def arguments_of(loss: Any) -> dict[str, Any]:
    """Returns the arguments of the function that a loss or metric of Keras wraps; none for one that wraps none."""
    return getattr(loss, "_fn_kwargs", {})


def compute_dtype(loss: keras.losses.Loss) -> str:
    """Returns the dtype in which a loss computes."""
    return loss._dtype_policy.compute_dtype


def serialized_policy(loss: keras.losses.Loss) -> Any:
    """Returns the dtype policy of a loss, as a config holds it."""
    return keras.saving.serialize_keras_object(loss._dtype_policy)


def compile_arguments(model: Any) -> dict[str, Any]:
    """Returns the arguments of `compile`, as they were given.

    The public `get_compile_config` serialises them, and fails for arguments that cannot be serialised.
    """
    config = getattr(model, "_compile_config", None)
    return dict(config.config) if config is not None else {}


def is_exporting(torch: Any) -> bool:
    """Returns whether `torch.export` traces. Its public function says so of every trace, up to PyTorch 2.11."""
    return bool(getattr(torch.compiler, "_is_exporting_flag", False))


def is_plain(tensor: Any) -> bool:
    """Returns whether a tensor is one of PyTorch that holds numbers, and no part of a trace or a transform."""
    torch = sys.modules.get("torch")
    if torch is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if tensor.is_meta or torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def has_hooks(layer: Any) -> bool:
    """Returns whether something listens to the calls of a layer on PyTorch, or stands for its `call`."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return bool(hooks) or "call" in vars(layer)


def weight_decay_exclusions(optimizer: Any, variables: list[Any]) -> tuple[list[Any], int, list[str] | None]:
    """Returns the variables that an optimizer excludes from weight decay, the number of all of them, and the pattern.

    Only `variables` can be looked up: each backend makes their keys in its own way.
    """
    excluded: set = getattr(optimizer, "_exclude_from_weight_decay", set())
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    found = [variable for variable in variables if optimizer._var_key(variable) in excluded] if excluded else []
    return found, len(excluded), None if pattern is None else [pattern.pattern]


@contextlib.contextmanager
def preserve_unseeded_generator() -> Iterator[None]:
    """Restores the generator of draws without a seed that `keras.utils.set_random_seed` removes from Keras."""
    module = sys.modules[keras.random.SeedGenerator.__module__]
    state, name = module.global_state, module.GLOBAL_SEED_GENERATOR
    generator = state.get_global_attribute(name)
    before = None if generator is None else keras.ops.convert_to_numpy(generator.state)
    try:
        yield
    finally:
        state.set_global_attribute(name, generator)
        if generator is not None:
            generator.state.assign(before)
