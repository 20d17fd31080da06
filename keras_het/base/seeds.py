"""Seeds of the draws that NumPy makes."""

import numpy as np

from keras_het.base.refusal import refusal


def random_generator(seed: int | list[int]) -> np.random.Generator:
    """NumPy's random generator for an integer, at least 0, or for a list of them: the seed fixes its draws.

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
