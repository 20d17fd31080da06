"""Methods for noisy labels, and the base class for your own."""

import copy
from typing import Any, Self

import keras
import numpy as np

from keras_het import models
from keras_het.base.graph import model_inputs
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_number
from keras_het.labels.data import Data
from keras_het.layers import HeteroscedasticDense
from keras_het.losses import ForwardCorrectedCrossentropy

__all__ = [
    "METHODS",
    "EarlyLearning",
    "EarlyStopping",
    "ForwardCorrection",
    "Heteroscedastic",
    "Method",
]

LABEL_SMOOTHING = 0.3  # without it, forward correction trains towards certainty although T is only an estimate


class Method:
    """Base class of the methods for noisy labels: crossentropy with a Dense head.

    A subclass sets `name` and overrides one or more of the methods below.

    Attributes:
        name: unique name, for the table.

    Example:
        >>> class Focal(Method):
        ...     def __init__(self, gamma=2.0):
        ...         self.name, self.gamma = f"focal loss ({gamma})", gamma
        ...
        ...     def loss(self, data):
        ...         return keras.losses.CategoricalFocalCrossentropy(gamma=self.gamma, from_logits=True)
        ...
        ...     def labels(self, data):
        ...         return data.distribution
        >>> Focal(1.0).loss(None).gamma
        1.0
    """

    name: str = ""

    def __repr__(self) -> str:
        values = [f"{name}={value!r}" for name, value in vars(self).items() if name != "name"]
        return f"{type(self).__name__}({', '.join(values)})"

    def head(self, units: int, **options: Any) -> list[keras.layers.Layer]:
        """Returns new layers from features, `(N, D)`, to logits or log-probabilities, `(N, units)`.

        `options` are the regularizers and the initializer of the last layer that they replace.
        """
        return [keras.layers.Dense(units, "log_softmax", dtype="float32", **options)]

    def loss(self, data: Data) -> keras.losses.Loss:
        """Returns a new loss of the head's outputs, for the training `data`."""
        losses = keras.losses
        kind = losses.SparseCategoricalCrossentropy if data.y.ndim == 1 else losses.CategoricalCrossentropy
        return kind(from_logits=True)

    def labels(self, data: Data) -> Any:
        """Returns the targets of the loss, `(N,)` or `(N, K)`, for the training `data`."""
        return data.y

    def sample_weight(self, data: Data) -> Any:
        """Returns the weights of the training `data`, `(N,)`, or None."""
        return data.weight

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns new callbacks for a training."""
        return []

    def adapt(self, transition: np.ndarray) -> Self:
        """Returns a method adapted to T[i, j] = p(label j | class i), `(K, K)`, estimated by the plain training."""
        return self

    def compile(self, model: keras.Model, optimizer: Any, data: Data, **arguments: Any) -> keras.Model:
        """Compiles and returns the `model` with the head, for the training `data`."""
        model.compile(optimizer, self.loss(data), **arguments)
        return model


class EarlyStopping(Method):
    """Plain training: crossentropy, -log p_y, with a Dense head, at the best epoch."""

    name = "early stopping"


class EarlyLearning(Method):
    """Early-learning regularisation, which keeps predictions near earlier ones, before label errors are memorised.

        -log p_y + strength log(1 - t'p),    t the moving average of the example's earlier p       (Liu et al. 2020)

    Args:
        strength: strength of the regularisation, greater than 0.
    """

    def __init__(self, strength: float = 3.0):
        self.strength = check_number("strength", strength, above=0.0)
        self.name = f"early-learning regularisation ({strength:g})"

    def sample_weight(self, data: Data) -> Any:
        return models.with_index(len(data), data.weight)

    def compile(self, model: keras.Model, optimizer: Any, data: Data, **arguments: Any) -> keras.Model:
        trained = models.EarlyLearning(model_inputs(model), model.output, len(data), self.strength)
        return super().compile(trained, optimizer, data, **arguments)


class ForwardCorrection(Method):
    """Forward correction by the transition matrix of the plain training, for class-dependent noise.

        -sum_j ((1 - s) y_j + s / K) log sum_i p_i T_ij,    s = 0.3                             (Patrini et al. 2017)

    Args:
        transition: T, `(K, K)`; None for the estimate of `choose`.
    """

    name = "forward correction"

    def __init__(self, transition: Any = None):
        self.transition = transition

    def adapt(self, transition: np.ndarray) -> Self:
        adapted = copy.copy(self)
        adapted.transition = transition if self.transition is None else self.transition
        return adapted

    def loss(self, data: Data) -> keras.losses.Loss:
        rule = "be a matrix (K, K); only `choose` estimates it"
        refuse_if(self.transition is None, "transition", rule, f"{self!r}")
        return ForwardCorrectedCrossentropy(self.transition, from_logits=True)

    def labels(self, data: Data) -> Any:
        return (1.0 - LABEL_SMOOTHING) * data.distribution + LABEL_SMOOTHING / data.units


class Heteroscedastic(Method):
    """Crossentropy of a `HeteroscedasticDense` head, for labels confused with look-alike classes.

        -log E[softmax(u / temperature)_y],    u ~ N(mu(h), diag(d(h)^2) + V(h) V(h)')        (Collier et al. 2021)

    The mean of the logits starts from zeros if the kernel of the replaced layer does. The method is not in `METHODS`.
    The page "When the head helps" compares it with a tuned Dense layer.

    Args:
        num_factors: R, number of columns of V; None for the default of the layer.
        temperature: temperature of the softmax.
    """

    def __init__(self, num_factors: int | None = None, temperature: float = 1.0):
        self.num_factors, self.temperature = num_factors, check_number("temperature", temperature, above=0.0)
        self.name = f"heteroscedastic head ({temperature:g})"

    def head(self, units: int, **options: Any) -> list[keras.layers.Layer]:
        return [HeteroscedasticDense(units, self.num_factors, temperature=self.temperature, **options)]


METHODS: tuple[Method, ...] = (
    EarlyLearning(3.0),
    EarlyStopping(),
    ForwardCorrection(),
)
"""Methods that `choose` compares by default, the safest first."""
