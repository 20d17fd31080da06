"""Random generators from seeds, and the global random states."""

import contextlib
import random
import sys
from collections.abc import Iterator

import keras
import numpy as np

from keras_het.base.internals import preserve_unseeded_generator
from keras_het.base.refusal import refusal


def random_generator(seed: int | list[int]) -> np.random.Generator:
    """Returns NumPy's random generator for an integer, at least 0, or a list of integers; refuses None."""
    words = np.asarray(seed)
    if words.dtype.kind not in "iu" or words.ndim > 1 or not words.size or words.min() < 0:
        raise refusal("seed", "be an integer at least 0, or a list of integers", value=seed)
    return np.random.default_rng(seed)


@contextlib.contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restores the global random states of Python, NumPy, Keras and PyTorch; TensorFlow's cannot be read."""
    python_state, numpy_state, fork = random.getstate(), np.random.get_state(), contextlib.nullcontext()
    if keras.config.backend() == "torch":
        torch = sys.modules["torch"]
        fork = torch.random.fork_rng(devices=range(torch.cuda.device_count()))  # by default it warns of many devices
    try:
        with preserve_unseeded_generator(), fork:
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
