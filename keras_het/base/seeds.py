"""Seeds of the draws that NumPy makes."""

import contextlib
import random
import sys
from collections.abc import Iterator

import keras
import numpy as np

from keras_het.base.internals import preserve_unseeded_generator
from keras_het.base.refusal import refusal


def random_generator(seed: int | list[int]) -> np.random.Generator:
    """Returns NumPy's random generator for an integer, at least 0, or a list of them.

    Raises:
        ValueError: for anything else, also for None.

    Example:
        >>> float(random_generator(0).random()) == float(random_generator(0).random())
        True
    """
    words = np.asarray(seed)
    if words.dtype.kind not in "iu" or words.ndim > 1 or not words.size or words.min() < 0:
        raise refusal("seed", "be an integer at least 0, or a list of them", value=seed)
    return np.random.default_rng(seed)


@contextlib.contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restores the global random states of Python, NumPy, Keras and PyTorch after calls that seed them.

    The state of TensorFlow cannot be read: it keeps the last seed.
    """
    of_python, of_numpy, fork = random.getstate(), np.random.get_state(), contextlib.nullcontext()
    if keras.config.backend() == "torch":
        torch = sys.modules["torch"]
        fork = torch.random.fork_rng(devices=range(torch.cuda.device_count()))  # named: else it warns of several
    try:
        with preserve_unseeded_generator(), fork:
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
