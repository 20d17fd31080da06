"""Copies of models, and a context that preserves the random state."""

import contextlib
import pathlib
import random
import tempfile

import keras
import numpy as np

from keras_het.base.graph import model_inputs
from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_boolean


@contextlib.contextmanager
def preserve_seed(seed=None):
    """Preserves the state of Python's `random`, the source of Keras' seeds; `seed` sets it inside, None leaves it."""
    state = random.getstate()
    if seed is not None:
        random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def copy_model(model):
    """Copies a model with all state and `trainable`, by a `.keras` file, which keeps vocabularies and int8 weights."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        # Safe mode would refuse a `Lambda`, but the model comes from the caller.
        copy = keras.models.load_model(path, compile=False, safe_mode=False)
    if [weight.shape for weight in copy.variables] != [weight.shape for weight in model.variables]:
        rule = (
            f"be False, because a file of {model.name!r} loads with other weights, for example without LoRA. Convert "
            "first, then enable LoRA on the new model"
        )
        raise refusal("clone", rule, "clone=True")
    for pairs in (
        zip(_all_layers(model), _all_layers(copy), strict=True),
        zip(model.variables, copy.variables, strict=True),
    ):
        for source, target in pairs:
            if source.trainable != target.trainable:
                target.trainable = source.trainable
    return copy


def make_body(model, ending, clone):
    """Makes a model of the layers before the head, shared or copied."""
    body = keras.Model(model_inputs(model), ending.features, name=model.name)
    return copy_model(body) if check_boolean("clone", clone) else body


def dense_weights(dense):
    """Returns the kernel, `(D, K)`, with any LoRA update, and the bias if there is one, as arrays."""
    tensors = (dense.kernel, dense.bias) if dense.use_bias else (dense.kernel,)
    kernel, *bias = (keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in tensors)
    return [np.reshape(kernel, kernel.shape[-2:]), *bias]


def _all_layers(model):
    return [layer for layer in layers_of(model, include_self=False) if not isinstance(layer, keras.layers.InputLayer)]
