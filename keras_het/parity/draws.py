"""Draws of `keras.random` that are equal on every backend, so that random layers are compared in training too.

They come from the Threefry numbers of this package, with the seed and the counter of the `SeedGenerator` as the key.
"""

import contextlib
import math
from typing import Any

import keras
from keras import ops

from keras_het.base.internals import layers_of, random_functions, random_state, seed_generators_of
from keras_het.base.refusal import refuse_if
from keras_het.ops import random


def _bits(seed: Any, shape: Any) -> Any:
    unknown = any(not isinstance(size, int) for size in shape)
    rule = "have a known shape: use a `batch_size` that divides the number of examples"
    refuse_if(unknown, "A random draw", rule, f"{tuple(shape)}")
    state = ops.cast(random_state(seed), "int32")
    return ops.reshape(random.random_bits((state[0], state[1]), 0, math.prod(shape)), tuple(shape))


def _standard_uniform(seed: Any, shape: Any) -> Any:
    """Returns numbers from 24 random bits, which float32 represents exactly."""
    return ops.cast(random.shift_right(_bits(seed, shape), 8), "float32") * 2.0**-24


def _standard_normal(seed: Any, shape: Any) -> Any:
    return ops.reshape(random.normal(ops.reshape(_bits(seed, shape), (-1,))), tuple(shape))


def _scaled(values: Any, scale: Any, offset: Any, dtype: Any) -> Any:
    """Returns scaled and shifted values; TensorFlow's `cast` would round a Python number to float32 first."""
    dtype = dtype or keras.config.floatx()
    scale, offset = (ops.convert_to_tensor(number, dtype) for number in (scale, offset))
    return ops.cast(values, dtype) * scale + offset


def _dropout(inputs: Any, rate: Any, noise_shape: Any, seed: Any) -> Any:
    if isinstance(rate, (int, float)) and rate in (0, 1):
        return inputs if not rate else ops.zeros_like(inputs)
    sizes = zip(noise_shape or inputs.shape, inputs.shape, strict=True)
    u = _standard_uniform(seed, [known if size is None else size for size, known in sizes])
    kept = inputs / ops.convert_to_tensor(1.0 - rate, inputs.dtype)
    return ops.where(ops.broadcast_to(u >= rate, inputs.shape), kept, ops.zeros_like(inputs))


def _categorical(logits: Any, num_samples: Any, dtype: Any, seed: Any) -> Any:
    logits = ops.cast(logits, "float32")
    u = _standard_uniform(seed, (logits.shape[0], num_samples, logits.shape[1])) + 2.0**-25
    return ops.cast(ops.argmax(ops.expand_dims(logits, 1) - ops.log(-ops.log(u)), axis=-1), dtype)


def _integers(shape: Any, minval: Any, maxval: Any, dtype: Any, seed: Any) -> Any:
    low, high = ops.cast(minval, "int32"), ops.cast(maxval, "int32")
    return ops.cast(low + ops.mod(random.shift_right(_bits(seed, shape), 1), high - low), dtype)


def _mean(shape: Any, mean: Any, dtype: Any) -> Any:
    return _scaled(ops.ones(tuple(shape)), mean, 0.0, dtype)


_FUNCTIONS = {  # they get all arguments of a function of the backend by name
    "normal": lambda shape, mean, stddev, dtype, seed: _scaled(_standard_normal(seed, shape), stddev, mean, dtype),
    "truncated_normal": lambda shape, mean, stddev, dtype, seed: _scaled(
        ops.clip(_standard_normal(seed, shape), -2.0, 2.0), stddev, mean, dtype
    ),
    "uniform": lambda shape, minval, maxval, dtype, seed: _scaled(
        _standard_uniform(seed, shape), maxval - minval, minval, dtype
    ),
    "randint": _integers,
    "dropout": _dropout,
    "categorical": _categorical,
    "shuffle": lambda x, axis, seed: ops.take(x, ops.argsort(_bits(seed, (x.shape[axis],))), axis=axis),
    # The mean, or the rounded mean, instead of a draw.
    "gamma": lambda shape, alpha, dtype, seed: _mean(shape, alpha, dtype),
    "beta": lambda shape, alpha, beta, dtype, seed: _mean(shape, alpha / (alpha + beta), dtype),
    "binomial": lambda shape, counts, probabilities, dtype, seed: ops.round(
        _mean(shape, counts * probabilities, dtype)
    ),
}


def equal_draws() -> contextlib.AbstractContextManager[None]:
    """Replaces the functions of `keras.random`, also those that layers of Keras call."""
    return random_functions(_FUNCTIONS)


def reset_states(model: Any) -> None:
    """Sets every seed generator to its position among them, with a counter of zero, and states of recurrent layers."""
    generators = [generator for layer in layers_of(model) for generator in seed_generators_of(layer)]
    for position, generator in enumerate({id(each): each for each in generators}.values()):
        generator.state.assign([position, 0])
    for layer in layers_of(model):
        if getattr(layer, "stateful", False) and hasattr(layer, "reset_state"):  # Keras does not track this state
            layer.reset_state()
