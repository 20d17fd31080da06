"""Choice of hyperparameters of the noise without clean labels."""

from typing import Any, NamedTuple

import numpy as np

from keras_het.analysis.confusion import predict_clean_and_noisy
from keras_het.ops.transition import check_labels


class Selection(NamedTuple):
    """The strength whose model explains the noisy validation labels best, that model, and the scores of all.

    strength: the best one.    model: the fitted model.    scores: dict from strength to mean negative log-likelihood.
    """

    strength: float
    model: Any
    scores: dict[float, float]


def select_strength(make_model, strengths, x, y, validation_data, **fit_arguments):
    """Chooses the strength of T's regulariser by the likelihood of held-out noisy labels: no clean label is needed.

        the least -mean log p(noisy y | x), with p(noisy | x) = p(true | x) T

    Too weak, and T stays at the identity while the base model fits the noise, which costs likelihood on new examples; too strong, and T
    claims more noise than there is. Let one of the strengths be so small that T stays, for data without noise.

    Args:
        make_model: function of a strength that returns a compiled model ending in a `NoiseTransition`.
        strengths: numbers.    x, y: what to fit to; noisy labels.    validation_data: `(x, y)`, noisy integer labels as well.
        fit_arguments: for `fit`, such as epochs, batch_size, verbose.
    Returns: `Selection`.
    Raises: ValueError without strengths, if none has a finite likelihood, or for validation labels out of range.

    Example:
        >>> import keras
        >>> from keras_het.layers import NoiseTransition
        >>> def make_model(strength):
        ...     flips = NoiseTransition(3, regularizer=keras.regularizers.L2(strength))
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "log_softmax"), flips])
        ...     model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        ...     return model
        >>> x, y = np.ones((8, 2)), np.arange(8) % 3
        >>> sorted(select_strength(make_model, (0.01, 0.1), x, y, (x, y), verbose=0).scores)
        [0.01, 0.1]
    """
    strengths = list(strengths)
    if not strengths:
        raise ValueError("`strengths` must have at least one number. Received: none")
    x_validation, y_validation = validation_data
    best, scores = None, {}
    for strength in strengths:
        model = make_model(strength)
        model.fit(x, y, **fit_arguments)
        scores[strength] = noisy_nll(model, x_validation, y_validation)
        if np.isfinite(scores[strength]) and (best is None or scores[strength] < scores[best.strength]):
            best = Selection(strength, model, scores)
    if best is None:
        raise ValueError(f"`strengths` must have one with a finite likelihood. Received: negative log-likelihoods {scores}")
    return best


def noisy_nll(model, x, y):
    """Mean negative log-likelihood of noisy labels, -mean log p(noisy y | x), under a model that ends in a `NoiseTransition`.

    Far lower on the training labels than on held-out ones, it says that the base model still learns labels by heart: there is too
    little data for T, or too weak a penalty.

    Args: model: ends in the layer.    x, y: examples, and their noisy labels, integers in [0, K), `(N,)`.    Returns: a float.
    Raises: ValueError for labels out of range, or a model that does not end in the layer.

    Example:
        >>> import keras
        >>> from keras_het.layers import NoiseTransition
        >>> flips = NoiseTransition(2, transition=[[0.5, 0.5], [0.0, 1.0]], trainable=False)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax"), flips])
        >>> round(noisy_nll(model, np.array([[30.0, -30.0]]), [1]), 4)  # -log(0.5)
        0.6931
    """
    noisy = predict_clean_and_noisy(model, x).noisy
    y = check_labels(y, noisy.shape[-1], len(noisy), name="y")
    return -float(np.mean(noisy[np.arange(len(y)), y]))
