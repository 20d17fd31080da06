"""Whether probabilities are as large as the shares of right predictions."""

from typing import Any

import numpy as np

from keras_het.validation import check_integer


def expected_calibration_error(probabilities: Any, labels: Any, bins: int = 15) -> float:
    """How far the confidence in the predicted class is from the share of predictions that are right, over bins of equal width.

        sum over bins b of |sum over i in b of 1[y_i = argmax p_i] - max p_i| / N

    Against noisy labels it says whether a model knows how often the *labels* agree with it; a model that does is less sure than it could
    be of the true classes.

    Args:
        probabilities: `(N, K)`.
        labels: integers, `(N,)`.
        bins: how many.
    Returns: a float in [0, 1].
    Raises: ValueError for other shapes, labels of no class, no example, or no bin.
    Source: Naeini, Cooper and Hauskrecht 2015; Guo, Pleiss, Sun and Weinberger 2017, Eq. 3.

    Example:
        >>> round(expected_calibration_error([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]], [0, 1, 1]), 4)  # (.1 + |.2 - .8|) / 3
        0.2333
    """
    p, y = np.asarray(probabilities, "float64"), np.asarray(labels)
    bins = check_integer("bins", bins, 1)
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(p):
        raise ValueError(f"`probabilities` must be (N, K) and `labels` (N,), with N > 0. Received: {p.shape} and {y.shape}")
    if not np.all((p >= 0) & (p <= 1 + 1e-5)) or np.any(np.abs(p.sum(-1) - 1) > 1e-2):
        rule = "be in [0, 1] and sum to 1, such as the exp of what a head predicts"
        raise ValueError(f"`probabilities` must {rule}. Received: numbers from {p.min():.4g} to {p.max():.4g}")
    if np.any((y < 0) | (y >= p.shape[1])):
        raise ValueError(f"`labels` must be in [0, {p.shape[1] - 1}]. Received: {y[(y < 0) | (y >= p.shape[1])][0]}")
    confidence = p.max(-1)
    places = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(places, (p.argmax(-1) == y) - confidence, bins)
    return float(np.abs(gaps).sum() / len(y))
