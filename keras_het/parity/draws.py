"""Draws of `keras.random` that are equal on every backend.

Each backend has its own random numbers, so a model with Dropout or a sampling layer differs on every backend. In a
recording, the draws come from the Threefry numbers of this package instead, with the seed and the counter of the
`SeedGenerator` as the key. So random layers are compared in training too.
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


def normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    """Normal draws."""
    return _scaled(_standard_normal(seed, shape), stddev, mean, dtype)


def truncated_normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    """Normal draws, clipped at two standard deviations."""
    return _scaled(ops.clip(_standard_normal(seed, shape), -2.0, 2.0), stddev, mean, dtype)


def uniform(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
    """Uniform draws in [minval, maxval)."""
    return _scaled(_standard_uniform(seed, shape), maxval - minval, minval, dtype)


def randint(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None) -> Any:
    """Integers in [minval, maxval)."""
    low, high = ops.cast(minval, "int32"), ops.cast(maxval, "int32")
    return ops.cast(low + ops.mod(random.shift_right(_bits(seed, shape), 1), high - low), dtype)


def dropout(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
    """Zeros at the given rate, and the other inputs divided by 1 - rate."""
    if isinstance(rate, (int, float)) and rate in (0, 1):
        return inputs if not rate else ops.zeros_like(inputs)
    shape = [
        known if size is None else size for size, known in zip(noise_shape or inputs.shape, inputs.shape, strict=True)
    ]
    is_kept = ops.broadcast_to(_standard_uniform(seed, shape) >= rate, inputs.shape)
    return ops.where(is_kept, inputs / ops.convert_to_tensor(1.0 - rate, inputs.dtype), ops.zeros_like(inputs))


def categorical(logits: Any, num_samples: int, dtype: Any = "int32", seed: Any = None) -> Any:
    """Classes by the Gumbel trick."""
    logits = ops.convert_to_tensor(logits)
    u = _standard_uniform(seed, (logits.shape[0], num_samples, logits.shape[1])) + 2.0**-25
    noisy = ops.expand_dims(ops.cast(logits, "float32"), 1) - ops.log(-ops.log(u))
    return ops.cast(ops.argmax(noisy, axis=-1), dtype)


def shuffle(x: Any, axis: int = 0, seed: Any = None) -> Any:
    """Entries of an axis in another order."""
    x = ops.convert_to_tensor(x)
    return ops.take(x, ops.argsort(_bits(seed, (x.shape[axis],))), axis=axis)


def _mean(shape: Any, mean: Any, dtype: Any) -> Any:
    return _scaled(ops.ones(tuple(shape)), mean, 0.0, dtype)


_FUNCTIONS = {
    **{draw.__name__: draw for draw in (normal, truncated_normal, uniform, randint, dropout, categorical, shuffle)},
    # The mean, or the rounded mean, instead of a draw.
    "gamma": lambda shape, alpha, dtype=None, seed=None: _mean(shape, alpha, dtype),
    "beta": lambda shape, alpha, beta, dtype=None, seed=None: _mean(shape, alpha / (alpha + beta), dtype),
    "binomial": lambda shape, counts, probabilities, dtype=None, seed=None: ops.round(
        _mean(shape, counts * probabilities, dtype)
    ),
}


def equal_draws() -> contextlib.AbstractContextManager[None]:
    """Replaces the functions of `keras.random`, also those that layers of Keras call."""
    return random_functions(_FUNCTIONS)


def random_layers(model: Any) -> list[str]:
    """Returns the names of the layers that own a seed generator, as Dropout does."""
    return list(dict.fromkeys(layer.name for layer in layers_of(model) if seed_generators_of(layer)))


def reset_seeds(model: Any) -> None:
    """Sets every seed generator of a model to its position among them, with a counter of zero."""
    generators = [generator for layer in layers_of(model) for generator in seed_generators_of(layer)]
    for position, generator in enumerate({id(each): each for each in generators}.values()):
        generator.state.assign([position, 0])
