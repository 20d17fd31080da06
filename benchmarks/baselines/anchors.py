"""A transition matrix by the predictions for anchors."""

from typing import Any

import numpy as np

from keras_het.base.validation import check_fraction
from keras_het.labels.estimation import check_probabilities


def estimate_by_anchors(probabilities: Any, quantile: float = 1.0) -> np.ndarray:
    """A T by anchors needs a calibrated model, and an example that is surely of the class, for every class.

    Row i of T is what a model of the noisy labels predicts for an example that is surely of class i. No table compares
    it alone: the arena's forward correction takes it or the confident joint, by noisy validation labels.
    This example, the anchor, is the example whose predicted probability of i is the given quantile over all examples.
    Quantile 1 takes the largest; a smaller quantile, such as 0.97, is safer against single examples. Every class needs
    an anchor, and the model must be calibrated.

    Args:
        probabilities: p(noisy label | x), shape `(N, K)`, N >= 1.
        quantile: in [0, 1].
    Returns:
        shape `(K, K)`.
    Raises:
        ValueError: for probabilities or a quantile outside [0, 1].
    Source: Patrini et al. 2017, "Making deep neural networks robust to label noise", Eq. 12.

    Example:
        >>> estimate_by_anchors([[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]).tolist()
        [[0.75, 0.25], [0.125, 0.875]]
    """
    check_fraction("quantile", quantile)
    p = check_probabilities(probabilities)
    anchors = np.argsort(p, axis=0, kind="stable")[round(quantile * (len(p) - 1))]
    return p[anchors] / p[anchors].sum(axis=1, keepdims=True)
