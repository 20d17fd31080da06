"""Seeds of the draws that NumPy makes."""

import numpy as np


def random_generator(seed: int | list[int]) -> np.random.Generator:
    """NumPy's generator of an integer, at least 0, or of a list of them: the draw is a function of it.

    Raises:
        ValueError: for anything else, None too.

    Example:
        >>> float(random_generator(0).random()) == float(random_generator(0).random())
        True
    """
    words = np.asarray(seed)
    if words.dtype.kind not in "iu" or words.ndim > 1 or not words.size or words.min() < 0:
        raise ValueError(f"`seed` must be an integer at least 0, or a list of them. Received: seed={seed!r}")
    return np.random.default_rng(seed)
