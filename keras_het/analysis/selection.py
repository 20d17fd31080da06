"""Choice of hyperparameters of the noise without clean labels."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from keras_het.batches import check_again, examples_and_labels
from keras_het.compilation import check
from keras_het.noisy_labels import CleanAndNoisy


class Selection(NamedTuple):
    """The strength whose model explains the noisy validation labels best, that model, and the scores of all.

    strength: the best one.    model: the fitted model.    scores: dict from strength to mean negative log-likelihood.
    """

    strength: float
    model: Any
    scores: dict[float, float]


def select_strength(
    make_model: Callable[[Any], Any], strengths: Iterable, x: Any, y: Any = None, validation_data: Any = None, **fit_arguments: Any
) -> Selection:
    """Chooses the strength of T's regulariser by the likelihood of held-out noisy labels: no clean label is needed.

        the least -mean log p(noisy y | x), with p(noisy | x) = p(true | x) T

    Too weak, and T stays at the identity while the base model fits the noise, which costs likelihood on new examples; too strong, and T
    claims more noise than there is. Let one of the strengths be so small that T stays, for data without noise.

    Args:
        make_model: function of a strength that returns a compiled model ending in a `NoiseTransition`.
        strengths: numbers.
        x: what to fit to: arrays, or a data set of batches (x, y) as for `fit`, that can be read more than once.
        y: noisy labels; None for a data set.
        validation_data: `(x, y)`, or a data set; noisy integer labels as well.
        fit_arguments: for `fit`, such as epochs, batch_size, verbose; `fit` does not see the validation data.
    Returns: `Selection`.
    Raises: ValueError without strengths or validation data, for a model that is not new or was compiled with a wrong loss, if none
        has a finite likelihood, for validation labels out of range, or a generator, of which the second strength would get nothing.

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
    check_again("x", x)
    held_out = examples_and_labels("validation_data", validation_data)
    best, scores = None, {}
    model: Any = None
    for strength in strengths:
        last, model = model, make_model(strength)
        if model is last:
            raise ValueError("`make_model` must make a new model at every call. Received: the same one twice")
        check(model)
        model.fit(x, y, **fit_arguments)
        scores[strength] = CleanAndNoisy(model).noisy_nll(*held_out, name="validation_data")
        if np.isfinite(scores[strength]) and (best is None or scores[strength] < scores[best.strength]):
            best = Selection(strength, model, scores)
    if best is None:
        raise ValueError(f"`strengths` must have one with a finite likelihood. Received: negative log-likelihoods {scores}")
    return best


def noisy_nll(model: Any, x: Any, y: Any = None, batch_size: int = 128) -> float:
    """Mean negative log-likelihood of noisy labels, -mean log p(noisy y | x), under a model that ends in a `NoiseTransition`.

    Far lower on the training labels than on held-out ones, it says that the base model still learns labels by heart: there is too
    little data for T, or too weak a penalty.

    Args:
        model: ends in the layer.
        x: examples: arrays, or a data set of batches (x, y) as for `fit`.
        y: their noisy labels, integers in [0, K), `(N,)`; None for a data set.
        batch_size: of the predictions from arrays.
    Returns: a float.
    Raises: ValueError for labels out of range, or a model that does not end in the layer.

    Example:
        >>> import keras
        >>> from keras_het.layers import NoiseTransition
        >>> flips = NoiseTransition(2, transition=[[0.5, 0.5], [0.0, 1.0]], trainable=False)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("log_softmax"), flips])
        >>> round(noisy_nll(model, np.array([[30.0, -30.0]]), [1]), 4)  # -log(0.5)
        0.6931
    """
    return CleanAndNoisy(model).noisy_nll(x, y, batch_size)
