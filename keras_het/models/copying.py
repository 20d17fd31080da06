"""Copies of models, models as bytes, and draws that change no random state."""

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
    """Leaves the state of Python's `random` unchanged, from which Keras draws the seeds of initializers.

    Args:
        seed: seed of the draws; None continues from the caller's state.
    """
    state = random.getstate()
    if seed is not None:
        random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def copy_model(model):
    """Returns a copy of a model, with its own layers of equal configuration, state and `trainable`.

    The copy goes through a `.keras` file, the only way in Keras that keeps everything: vocabularies, statistics, int8
    weights.

    Raises:
        ValueError: if the copy has other weights: a backbone of KerasHub loses LoRA that was enabled later.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        # Not in safe mode, which would refuse a `Lambda`: the model is the caller's own.
        copied = keras.models.load_model(path, compile=False, safe_mode=False)
    if [weight.shape for weight in copied.variables] != [weight.shape for weight in model.variables]:
        rule = (
            f"be False: the layers of {model.name!r} have other weights when they are made again from a file, "
            "as they have where LoRA was enabled later. Convert first and enable LoRA on the new model"
        )
        raise refusal("clone", rule, "clone=True")
    for pair in (
        zip(_all_layers(model), _all_layers(copied), strict=True),
        zip(model.variables, copied.variables, strict=True),
    ):
        for original, other in pair:
            if original.trainable != other.trainable:
                other.trainable = original.trainable
    return copied


def make_body(model, ending, clone):
    """Returns the model up to its head: its own layers, or copies of them."""
    body = keras.Model(model_inputs(model), ending.features, name=model.name)
    return copy_model(body) if check_boolean("clone", clone) else body


def dense_weights(dense):
    """Returns the kernel, `(D, K)`, with its LoRA update if there is one, and the bias, as arrays."""
    tensors = (dense.kernel, dense.bias) if dense.use_bias else (dense.kernel,)
    kernel, *bias = (keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in tensors)
    return [np.reshape(kernel, kernel.shape[-2:]), *bias]


def model_to_bytes(model: keras.Model) -> bytes:
    """Returns the content of the model's `.keras` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def model_from_bytes(content: bytes) -> keras.Model:
    """Returns the model of the content of a `.keras` file.

    No code in the file runs: layers of your own must be registered, and a `Lambda` is refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        path.write_bytes(content)
        return keras.models.load_model(path, safe_mode=True)


def _all_layers(model):
    """Returns a model's layers and the layers inside them, outer before inner, without inputs."""
    return [layer for layer in layers_of(model, include_self=False) if not isinstance(layer, keras.layers.InputLayer)]
