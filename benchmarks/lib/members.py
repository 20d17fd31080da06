"""How unsure the members of an ensemble are, and how far they disagree."""

import dataclasses
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, xlogy

from keras_het.base.batches import batches
from keras_het.base.refusal import refuse_if


@dataclasses.dataclass(frozen=True)
class EnsembleUncertainty:
    """Parts of the uncertainty of each example, `(N,)` each, in nats; `total = within + between`.

    Attributes:
        total: the entropy of the mean probabilities.
        within: the mean of the members' own entropies.
        between: the mutual information of the label and the member, 0 where all members predict the same.
    """

    total: np.ndarray
    within: np.ndarray
    between: np.ndarray


def ensemble_uncertainty(model: Any, x: Any, batch_size: int = 128) -> EnsembleUncertainty:
    """How unsure an ensemble is of each example, within its members and between them.

        H[mean_m p_m] = mean_m H[p_m] + mean_m KL(p_m || mean p)

    Neither part is purely "aleatoric" or "epistemic". Members that learned too little are unsure together, and members
    that learned the same wrong labels are sure together: both show in `within`. Noisy labels that each member learned
    by heart in its own way show in `between`. Compare both among examples, and take neither for the noise of a label.

    Args:
        model: a `DeepEnsemble`.
        x: examples: arrays, or a data set of batches.
        batch_size: size of the batches of the predictions from arrays.
    Returns:
        `EnsembleUncertainty`. For labels that are not exclusive, each part is a sum over the labels.
    Raises:
        ValueError: for a model without members, and for no example.

    Example:
        >>> import keras
        >>> from keras_het.models import DeepEnsemble
        >>> members = [keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax")]) for _ in range(2)]
        >>> found = ensemble_uncertainty(DeepEnsemble(members, "softmax", from_logits=True), np.zeros((1, 2)))
        >>> [round(float(part[0]), 4) for part in vars(found).values()]  # log 2, log 2 and 0: both say one half
        [0.6931, 0.6931, 0.0]
    """
    refuse_if(not hasattr(model, "predict_members"), "model", "be a DeepEnsemble", kind=model)
    parts = [
        _parts(model.predict_members(inputs, batch_size).astype("float64"), model.link.activation)
        for inputs, _ in batches(x, batch_size)
    ]
    refuse_if(not parts, "x", "have at least one example", "none")
    return EnsembleUncertainty(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _parts(outputs: np.ndarray, activation: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parts of log-probabilities or logits of members, `(M, N, ..., K)`."""
    if activation == "sigmoid":  # both values of every label, as classes of a last axis
        p = np.stack([expit(outputs), expit(-outputs)], axis=-1)
        total, within = _entropy(p.mean(axis=0)).sum(axis=-1), _entropy(p).mean(axis=0).sum(axis=-1)
    else:
        p = np.exp(log_softmax(outputs, axis=-1))
        total, within = _entropy(p.mean(axis=0)), _entropy(p).mean(axis=0)
    return total, within, np.maximum(total - within, 0.0)  # rounding may take it below zero


def _entropy(p: np.ndarray) -> np.ndarray:
    return -xlogy(p, p).sum(axis=-1)
