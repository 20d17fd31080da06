"""Helpers for tests of several rooms: arrays of tensors, files, sessions of another precision, refusals."""

import contextlib
import os
import pathlib
import subprocess
import sys
import types
import warnings

import keras
import numpy as np
import pytest

from keras_het.ops.low_rank import LowRankNormal, ScaledLowRankNormal
from keras_het.ops.normal import DiagonalNormal

ROOT = pathlib.Path(__file__).parent.parent


def python(*arguments, check=False, **environment):
    """Runs Python in a process of its own, in the repository, with further environment variables; returns how it ended.

    Asserts that it succeeds, if `check` is True.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    run = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert not check or run.returncode == 0, run.stderr[-3000:]
    return run


def public_modules(module):
    """Yields a module and the public modules in its table of contents."""
    yield module
    for name in getattr(module, "__all__", ()):
        if isinstance(getattr(module, name), types.ModuleType):
            yield from public_modules(getattr(module, name))


class Subclassed(keras.Model):
    """Model without a graph: these layers and functions, one after the other."""

    def __init__(self, *layers):
        super().__init__()
        self.parts = list(layers)

    def call(self, inputs, training=False):
        for layer in self.parts:
            inputs = layer(inputs, training=training) if isinstance(layer, keras.Layer) else layer(inputs)
        return inputs


class Batches(keras.utils.PyDataset):
    """Arrays as a data set, in batches of this size and in order."""

    def __init__(self, *arrays, size=16):
        super().__init__()
        self.arrays, self.size = arrays, size

    def __len__(self):
        return -(-len(self.arrays[0]) // self.size)

    def __getitem__(self, index):
        return tuple(array[index * self.size : (index + 1) * self.size] for array in self.arrays)


class StopError(Exception):
    """Stand-in for the end of a process."""


class StopAt(keras.callbacks.Callback):
    def __init__(self, epoch, at_end=False):
        super().__init__()
        self.epoch, self.at_end = epoch, at_end

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch and not self.at_end:
            raise StopError

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.epoch and self.at_end:
            raise StopError


def to_numpy(*tensors):
    """Returns tensors as NumPy arrays, and None as None. A single tensor gives a single array."""
    arrays = [None if x is None else keras.ops.convert_to_numpy(x) for x in tensors]
    return arrays if len(arrays) > 1 else arrays[0]


def number(tensor):
    return float(to_numpy(tensor))


def low_rank_normal(loc, scale_diag, factor=None, row_scale=None):
    """Returns the Gaussian u = loc + scale_diag * e_K + row_scale * (factor e_R); a factor `(K, R)` is shared."""
    tensors = (None if x is None else keras.ops.convert_to_tensor(x) for x in (loc, scale_diag, factor, row_scale))
    loc, scale_diag, factor, row_scale = tensors
    if factor is None:
        return DiagonalNormal(loc, scale_diag)
    if len(factor.shape) == 2:
        row_scale = keras.ops.ones_like(loc) if row_scale is None else row_scale
        return ScaledLowRankNormal(loc, scale_diag, row_scale, factor)
    return LowRankNormal(loc, scale_diag, factor)


def sparse_crossentropy(**arguments):
    return keras.losses.SparseCategoricalCrossentropy(**{"from_logits": True, **arguments})


def built(layer, shape):
    layer.build(shape)
    return layer


def compiled(model, *arguments, **named):
    model.compile(*arguments, **named)
    return model


def reloaded(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


@contextlib.contextmanager
def session(floatx=None, policy=None):
    """Sets another float type or dtype policy inside a `with`."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    try:
        keras.config.set_floatx(floatx or before[0])
        keras.config.set_dtype_policy(policy or before[1])
        yield
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


@contextlib.contextmanager
def texts_of_warnings():
    """Yields a list that has the texts of the UserWarnings at the end of a `with`."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield texts
    texts += [str(warning.message) for warning in caught if warning.category is UserWarning]


def assert_same_arrays(arrays, others):
    """Asserts that two lists of arrays or weights are equal, to the bit."""
    for array, other in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(*to_numpy(array, other))


def assert_finite(value, gradients=()):
    """Asserts that the value and every entry of the gradients, a list or a dict, are finite."""
    gradients = gradients if isinstance(gradients, dict) else dict(enumerate(gradients))
    for name, array in {"value": value, **gradients}.items():
        assert np.isfinite(array).all(), name


def finite_differences(function, point, step=1e-5):
    """Returns the central differences of a scalar function of a float64 array, for each of its entries."""
    point = np.asarray(point, "float64")
    moves = step * np.eye(point.size).reshape(point.size, *point.shape)
    return np.reshape([(function(point + move) - function(point - move)) / (2 * step) for move in moves], point.shape)


def attempt(function, *arguments):
    """Returns the result of a function, or the text of its error."""
    try:
        return function(*arguments)
    except ValueError as error:
        return str(error)


def refuses(pattern):
    return pytest.raises(ValueError, match=pattern)
