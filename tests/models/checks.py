"""Checks of what a converted model keeps, for any model."""

import random

import keras
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from keras_het import heteroscedastic
from keras_het.reading.ending import find_ending
from tests.common import assert_same_arrays, reloaded, sparse_crossentropy, to_numpy

UNITS = 5


def sharpen(model):
    """Gives the head of an untrained model large weights, so that predictions differ as a trained model's do."""
    dense, rng = find_ending(model).head, np.random.default_rng(5)
    dense.kernel.assign(rng.normal(size=dense.kernel.shape) * 3 / np.sqrt(dense.kernel.shape[-2]))
    if dense.use_bias:
        dense.bias.assign(rng.normal(size=dense.bias.shape))
    return model


def state_of(model):
    """Returns what a call must not change: weights, `trainable` flags, seeds and dtype policy."""
    weights = [weight.numpy() for weight in model.weights]
    flags = [(layer.name, layer.trainable) for layer in model._flatten_layers()] + [
        weight.trainable for weight in model.weights
    ]
    return weights, flags, random.getstate(), np.random.get_state()[1].tolist(), keras.config.dtype_policy().name


def assert_same_state(before, after, seeds=True):
    assert_same_arrays(before[0], after[0])
    assert before[1] == after[1]
    assert not seeds or before[2:] == after[2:]


def old_probabilities(model, x):
    outputs = keras.ops.convert_to_tensor(model.predict(x, verbose=0).astype("float32"))
    return np.asarray(outputs) if find_ending(model).link else to_numpy(keras.ops.softmax(outputs))


def head_of(model):
    """Returns the head of a converted model, which reshaping layers can follow."""
    return next(layer for layer in reversed(model.layers) if hasattr(layer, "link"))


def probabilities(model, x):
    outputs, head = model.predict(x, verbose=0), head_of(model)
    if head.activation is not keras.activations.linear:
        return outputs
    function = keras.ops.exp if head.link.activation == "softmax" else keras.ops.sigmoid
    return to_numpy(function(keras.ops.convert_to_tensor(outputs)))


def check_conversion(model, x, y, folder, **arguments):
    """Checks that the new model predicts like the old one, trains for an epoch, and reloads from a `.keras` file."""
    old, before = old_probabilities(model, x), state_of(model)
    new = heteroscedastic(model, 2, **arguments)
    assert_same_state(before, state_of(model))
    assert_array_equal(old_probabilities(model, x), old)
    p = probabilities(new, x)
    assert np.abs(p - old).max() < 0.02
    assert np.mean((p.argmax(-1) == old.argmax(-1)) | (np.diff(np.sort(old)[..., -2:])[..., 0] < 0.01)) >= 0.99
    # A copy computes what the shared layers do: it need not be traced again.
    check_fit(new, x, y, run_eagerly=arguments.get("clone", False) and keras.config.backend() == "tensorflow")
    check_file(new, x, folder)
    return new


def check_fit(model, x, y, run_eagerly=False):
    head = model.layers[-1]
    before = [weight.numpy() for weight in head.trainable_weights]
    is_log = head.activation is keras.activations.linear
    loss = sparse_crossentropy() if is_log else "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(1e-3), loss, run_eagerly=run_eagerly)
    assert np.isfinite(model.fit(x, y, batch_size=16, verbose=0).history["loss"][0])
    for weight, start in zip(head.trainable_weights, before, strict=True):
        assert np.abs(weight.numpy() - start).max() > 0, weight.path


def check_file(model, x, folder):
    assert_allclose(outputs(reloaded(model, folder), x), outputs(model, x), rtol=1e-5, atol=1e-5)


def outputs(model, x):
    """Returns the predictions of a model, compiled only on JAX, which would compile each operation separately."""
    if keras.config.backend() == "jax":
        return model.predict(x, verbose=0)
    return to_numpy(model(x, training=False))
