"""Copies of models, as files in memory, too; and seeds left as they were."""

import contextlib
import pathlib
import random
import tempfile

import keras


@contextlib.contextmanager
def unchanged_seed(seed=None):
    """Keras draws the seeds of initializers from Python's `random`; the caller's next draw is as if it had not.

    Args:
        seed: what is drawn depends on it alone; None: on the caller's state.
    """
    state = random.getstate()
    if seed is not None:
        random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def copy_model(model):
    """A model with layers of its own, of equal configuration, state and `trainable`.

    By a `.keras` file, which is the one way of Keras that brings everything along: vocabularies, statistics, int8
    weights.

    Raises:
        ValueError: if the file makes other weights: a backbone of KerasHub forgets LoRA that was enabled later.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        copied = keras.models.load_model(path, compile=False, safe_mode=False)  # it is the caller's own
    if [weight.shape for weight in copied.variables] != [weight.shape for weight in model.variables]:
        raise ValueError(
            f"`clone` must be False: the layers of {model.name!r} have other weights when they are made again from a "
            "file, as they have where LoRA was enabled later. Convert first and enable LoRA on the new model. "
            "Received: clone=True"
        )
    for pair in (
        zip(_all_layers(model), _all_layers(copied), strict=True),
        zip(model.variables, copied.variables, strict=True),
    ):
        for original, other in pair:
            if original.trainable != other.trainable:
                other.trainable = original.trainable
    return copied


def model_to_bytes(model: keras.Model) -> bytes:
    """What the model's `.keras` file has in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def model_from_bytes(content: bytes) -> keras.Model:
    """The model of a `.keras` file. No code in the file runs: layers of your own must be registered, and a `Lambda` is
    refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        path.write_bytes(content)
        return keras.models.load_model(path, safe_mode=True)


def _all_layers(model):
    """A model's layers and those inside them, the outer before the inner. Inputs do not count:
    models may share theirs.
    """
    return [
        layer for layer in model._flatten_layers(include_self=False) if not isinstance(layer, keras.layers.InputLayer)
    ]
