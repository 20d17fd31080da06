"""All private attributes of Keras and PyTorch that the package uses: a version that renames one breaks only this file.

No public name gives the same.
"""

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np


def layers_of(model: Any, kind: Any = keras.layers.Layer, include_self: bool = True) -> list[Any]:
    """Returns all layers of a class, or of a tuple of classes, in a model, outer before inner."""
    return [layer for layer in model._flatten_layers(include_self=include_self) if isinstance(layer, kind)]


def seed_generators_of(layer: Any) -> list[Any]:
    """Returns the seed generators that a layer itself owns, as `Dropout` does."""
    return list(getattr(layer, "_seed_generators", ()))


@contextlib.contextmanager
def share_losses(model: Any, inner: Any) -> Iterator[None]:
    """Lends an inner model the losses that Keras' trainer on JAX collected for the outer model."""
    inner_losses, inner._losses_override = inner._losses_override, model._losses_override
    try:
        yield
    finally:
        inner._losses_override = inner_losses


def forget_values(model: Any) -> None:
    """Drops the arrays that Keras' trainer on JAX keeps after a step, also if the variables have others since."""
    if getattr(model, "_jax_state", None):
        model._jax_state = None


def is_symbolic(tensor: Any) -> bool:
    """True if a tensor is a symbol in the graph of a functional model."""
    return hasattr(tensor, "_keras_history")


def producer(tensor: Any) -> tuple[Any, Any]:
    """Returns the layer or operation that made a symbolic tensor, and the graph node of that call."""
    history = tensor._keras_history
    return history.operation, history.operation._inbound_nodes[history.node_index]


def output_index(tensor: Any) -> int:
    """Returns the index of a symbolic tensor among the outputs of its layer or operation."""
    return tensor._keras_history.tensor_index


def mask_of(tensor: Any) -> Any:
    """Returns the Keras mask of a tensor, or None; on JAX, Keras stores it in a table."""
    return _backend().common.masking.get_keras_mask(tensor)


def argument_of(loss: Any, name: str, default: Any = None) -> Any:
    """Returns an argument of a loss or metric, or of the function that it wraps, or the default if it has none."""
    return getattr(loss, name, getattr(loss, "_fn_kwargs", {}).get(name, default))


def policy_of(loss: keras.losses.Loss) -> Any:
    """Returns the dtype policy of a loss."""
    return loss._dtype_policy


def compile_arguments(model: Any) -> dict[str, Any]:
    """Returns the arguments of `compile`; the public `get_compile_config` fails if one cannot be serialised."""
    config = getattr(model, "_compile_config", None)
    return dict(config.config) if config is not None else {}


def kernel_without_lora(layer: Any) -> Any:
    """Returns the kernel variable of a layer, without an update by LoRA."""
    return getattr(layer, "_kernel", layer.kernel)


def is_exporting(torch: Any) -> bool:
    """True if `torch.export` traces; up to PyTorch 2.11 its public function is true in every trace."""
    return bool(getattr(torch.compiler, "_is_exporting_flag", False))


def is_plain(tensor: Any) -> bool:
    """True if this is a PyTorch tensor with values, outside a trace or a transform."""
    torch = sys.modules.get("torch")
    if torch is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if tensor.is_meta or torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def is_eager(tensors: Any) -> bool:
    """True if PyTorch computes with these tensors at once, and no trace, transform or mode watches it."""
    if not all(is_plain(tensor) for tensor in tensors):
        return False
    torch = sys.modules["torch"]
    if torch.jit.is_tracing() or torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack():
        return False
    return torch.autograd.forward_ad._current_level < 0


def needs_gradient(tensors: Any) -> bool:
    """True if PyTorch records operations on these tensors for a backward pass."""
    return sys.modules["torch"].is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def has_hooks(layer: Any) -> bool:
    """True if a layer has PyTorch hooks, or a replaced `call`."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return bool(hooks) or "call" in vars(layer)


def weight_decay_exclusions(optimizer: Any, variables: list[Any]) -> tuple[list[Any], int, list[str] | None]:
    """Returns which of `variables` have no weight decay, the number of all such variables, and their name pattern."""
    excluded: set = getattr(optimizer, "_exclude_from_weight_decay", set())
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    exclusions = [variable for variable in variables if optimizer._var_key(variable) in excluded] if excluded else []
    return exclusions, len(excluded), None if pattern is None else [pattern.pattern]


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """Makes Keras compute in float64, even where its result type of float64 and float32 is float32.

    `ops.cast` keeps float64 instead of float32. TensorFlow's rounds a Python number to float32 first, such as
    `beta_2` of Adam or the scale of Rescaling, and its tensor of Python numbers is float32, such as the mean of
    Normalization. In attention, TensorFlow rounds the scale to float32. JAX does so with the softmax, so this package's
    attention takes its place.
    """
    backend, floatx = _backend(), keras.config.floatx()
    ops = getattr(backend, "ops", backend)  # of Keras 3.16, and of 3.15
    cast, convert, attention = ops.core.cast, ops.core.convert_to_tensor, ops.nn.dot_product_attention

    def attend(query: Any, key: Any, value: Any, *, scale: Any = None, **options: Any) -> Any:
        scale = np.float64(query.shape[-1] ** -0.5 if scale is None else scale)
        return attention(query, key, value, scale=scale, **options)

    def keep(x: Any, dtype: Any) -> Any:
        if isinstance(x, float):
            return convert(x, dtype)
        is_wide = "float64" in str(getattr(x, "dtype", "")) and "float32" in str(dtype)
        return cast(x, "float64" if is_wide else dtype)

    def widen(x: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
        numbers = keras.tree.flatten(x) if dtype is None and isinstance(x, (float, list, tuple)) else []
        is_wide = any(isinstance(n, float) for n in numbers) and all(isinstance(n, (int, float)) for n in numbers)
        return convert(x, "float64" if is_wide else dtype, *args, **options)

    narrow = getattr(sys.modules[backend.result_type.__module__], "BIT64_TO_BIT32_DTYPE", {})
    before = narrow.get("float64")
    own = {"jax": _attention, "tensorflow": attend}.get(keras.config.backend(), attention)
    keras.config.set_floatx("float64")
    if before:
        narrow["float64"] = "float64"
    try:
        with _replace(cast, keep), _replace(convert, widen), _replace(attention, own):
            yield
    finally:
        keras.config.set_floatx(floatx)
        if before:
            narrow["float64"] = before


@contextlib.contextmanager
def _replace(function: Any, other: Any) -> Iterator[None]:
    """Puts a function in another's place in all modules of Keras that import it by its name."""
    name, modules = function.__name__, list(sys.modules.items())
    places = [module for key, module in modules if key.startswith("keras.src.") and vars(module).get(name) is function]
    for place in places:
        setattr(place, name, other)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, function)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: Any = None,
    is_causal: bool = False,
    **_: Any,
) -> Any:
    """Returns attention of heads (B, T, N, H) in the dtype of the queries, for `ops.dot_product_attention`."""
    ops = keras.ops
    key, value = (ops.repeat(each, query.shape[2] // each.shape[2], axis=2) for each in (key, value))
    logits = ops.einsum("BTNH,BSNH->BNTS", query, key) * (query.shape[-1] ** -0.5 if scale is None else scale)
    logits = logits if bias is None else logits + bias
    is_past = ops.tril(ops.ones(logits.shape[2:], "bool")) if is_causal else True
    is_seen = ops.logical_and(is_past, True if mask is None else mask)
    logits = ops.where(is_seen, logits, -0.7 * float(np.finfo("float32").max))  # a row of padding attends to all alike
    return ops.einsum("BNTS,BSNH->BTNH", ops.softmax(logits, axis=-1), value)


def _backend() -> Any:
    return sys.modules[keras.losses.Loss.__module__].backend


@contextlib.contextmanager
def random_functions(functions: dict[str, Any]) -> Iterator[None]:
    """Replaces functions of the backend's random module, but not for PyTorch's device "meta", which infers shapes.

    The functions get all arguments by name.
    """
    module = vars(_backend().random)
    before = {name: module[name] for name in functions}

    def choose(name: str) -> Any:
        def draw(*arguments: Any, **options: Any) -> Any:
            if "meta" in str(getattr(keras.ops.zeros(()), "device", "")):
                return before[name](*arguments, **options)
            bound = inspect.signature(before[name]).bind(*arguments, **options)
            bound.apply_defaults()
            return functions[name](**bound.arguments)

        return draw

    module.update({name: choose(name) for name in functions})
    try:
        yield
    finally:
        module.update(before)


def random_state(seed: Any) -> Any:
    """Returns the seed and the counter of a seed generator, whose counter advances, or an integer and zero."""
    module = sys.modules[keras.random.SeedGenerator.__module__]
    return module.global_seed_generator().next() if seed is None else module.draw_seed(seed)


@contextlib.contextmanager
def preserve_unseeded_generator() -> Iterator[None]:
    """Restores Keras' generator for draws without a seed, which `keras.utils.set_random_seed` removes."""
    module = sys.modules[keras.random.SeedGenerator.__module__]
    state, name = module.global_state, module.GLOBAL_SEED_GENERATOR
    generator = state.get_global_attribute(name)
    old_state = None if generator is None else keras.ops.convert_to_numpy(generator.state)
    try:
        yield
    finally:
        state.set_global_attribute(name, generator)
        if generator is not None:
            generator.state.assign(old_state)
