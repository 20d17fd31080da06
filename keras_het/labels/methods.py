"""Methods for noisy labels, and the base class of your own."""

import copy
from typing import Any, Self

import keras
import numpy as np

from keras_het import models
from keras_het.base.graph import model_inputs
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_number
from keras_het.labels.data import Data
from keras_het.labels.discriminant import discriminant
from keras_het.layers import HeteroscedasticDense
from keras_het.losses import ForwardCorrectedCrossentropy

__all__ = [
    "METHODS",
    "EarlyLearning",
    "EarlyStopping",
    "ForwardCorrection",
    "Heteroscedastic",
    "LinearDiscriminant",
    "Method",
]

SMOOTHING = 0.3  # of labels in forward correction: without it the loss asks for certainty where T is an estimate


class Method:
    """Base class of the methods for noisy labels: crossentropy, from which a subclass differs in something.

    A subclass has a `name` and one or more of the methods below. Predictions are those of the head: layers of `tail`
    act only in training.

    Attributes:
        name: title in the table; two methods of a call have different ones.
        is_closed_form: boolean, whether `solve` gives the weights; such a method is used on features alone.

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
    is_closed_form: bool = False

    def __repr__(self) -> str:
        values = [f"{name}={value!r}" for name, value in vars(self).items() if name != "name"]
        return f"{type(self).__name__}({', '.join(values)})"

    def head(self, units: int, **options: Any) -> list[keras.layers.Layer]:
        """Returns new layers from features, `(N, D)`, to logits or log-probabilities, `(N, K)`, K the `units`.

        `options` are the regularizers and the initializer of the model's own last layer.
        """
        return [keras.layers.Dense(units, "log_softmax", dtype="float32", **options)]

    def tail(self, units: int) -> list[keras.layers.Layer]:
        """Returns new layers behind the head in training alone, such as a `NoiseTransition`, for K = `units`."""
        return []

    def loss(self, data: Data) -> keras.losses.Loss:
        """Returns a new loss of the head's outputs, for the `data` to train on."""
        losses = keras.losses
        kind = losses.SparseCategoricalCrossentropy if data.y.ndim == 1 else losses.CategoricalCrossentropy
        return kind(from_logits=True)

    def labels(self, data: Data) -> Any:
        """Returns the targets of the loss, `(N,)` or `(N, K)`, for the `data` to train on."""
        return data.y

    def sample_weight(self, data: Data) -> Any:
        """Returns the weights of the examples, `(N,)`, or None, for the `data` to train on."""
        return data.weight

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns new callbacks for a training."""
        return []

    def given(self, diagnosis: Any) -> Self:
        """Returns this method, with what it uses of the `diagnosis`, such as its `transition`, `(K, K)`."""
        return self

    def solve(self, data: Data, scale: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns kernel, `(D, K)`, and bias, `(K,)`, of the head in closed form, for features `scale(data.x)`."""
        raise NotImplementedError(f"{type(self).__name__} must define solve(data, scale)")

    def compile(self, model: keras.Model, optimizer: Any, data: Data, **arguments: Any) -> keras.Model:
        """Returns a `model` with head and tail, compiled with a new `optimizer` and `arguments` for the `data`."""
        model.compile(optimizer, self.loss(data), **arguments)
        return model


class EarlyStopping(Method):
    """Crossentropy with a Dense head, stopped at the best epoch: the plain training.

    -log p_y
    """

    name = "early stopping"


class EarlyLearning(Method):
    """Early-learning regularisation, for wrong labels that a model learns late: it keeps to its earlier predictions.

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
    """Forward correction with the transition matrix that the plain training finds, for classes that are swapped.

        -sum_j ((1 - s) y_j + s / K) log sum_i p_i T_ij,    s = 0.3                             (Patrini et al. 2017)

    Args:
        transition: T, `(K, K)`; None for the estimate of `choose`.
    """

    name = "forward correction"

    def __init__(self, transition: Any = None):
        self.transition = transition

    def given(self, diagnosis: Any) -> Self:
        made = copy.copy(self)
        made.transition = diagnosis.transition if self.transition is None else self.transition
        return made

    def loss(self, data: Data) -> keras.losses.Loss:
        rule = "be a matrix (K, K); only `choose` estimates it"
        refuse_if(self.transition is None, "transition", rule, f"{self!r}")
        return ForwardCorrectedCrossentropy(self.transition, from_logits=True)

    def labels(self, data: Data) -> Any:
        return (1.0 - SMOOTHING) * data.distribution + SMOOTHING / data.units


class LinearDiscriminant(Method):
    """Linear discriminant analysis of frozen features, in closed form: it hardly follows wrong labels.

        argmax_k m_k' C^-1 x - m_k' C^-1 m_k / 2 + log prior_k,    C = (1 - a) S + a (tr S / D) I

    m_k is the mean of the features with label k, S their covariance within the classes, and a the shrinkage. Classes
    have equal priors, unless held-out labels clearly say that their frequencies are better. It is left out where a
    function makes the models, whose features change.
    Source: Friedman 1989, "Regularized discriminant analysis", Eq. 18; Lee et al. 2019, "Robust inference via
        generative classifiers for handling noisy labels", section 3.1.
    """

    name, is_closed_form = "linear discriminant analysis", True
    _frequencies: bool | None = None

    def _decided(self, data: Data, scale: Any) -> Self:
        """Returns the method with the kind of priors of all data: probabilities of two kinds have no common order."""
        decided = copy.copy(self)
        decided._frequencies = discriminant(data.x, data.y, data.units, data.weight, scale).frequencies
        return decided

    def solve(self, data: Data, scale: Any) -> tuple[np.ndarray, np.ndarray]:
        return discriminant(data.x, data.y, data.units, data.weight, scale, self._frequencies)[:2]


class Heteroscedastic(Method):
    """Crossentropy of a `HeteroscedasticDense` head, for labels that name a class which the example looks like.

        -log E[softmax(u / temperature)_y],    u ~ N(mu(h), diag(d(h)^2) + V(h) V(h)')        (Collier et al. 2021)

    It is not in `METHODS`: the page "When it pays" says what it gains over a Dense head with the same temperature.

    Args:
        num_factors: R, columns of V; None for the default of the layer.
        temperature: temperature of the softmax.
    """

    def __init__(self, num_factors: int | None = None, temperature: float = 5.0):
        self.num_factors, self.temperature = num_factors, check_number("temperature", temperature, above=0.0)
        self.name = f"heteroscedastic head ({temperature:g})"

    def head(self, units: int, **options: Any) -> list[keras.layers.Layer]:
        return [HeteroscedasticDense(units, self.num_factors, temperature=self.temperature, **options)]


METHODS: tuple[Method, ...] = (
    LinearDiscriminant(),
    EarlyLearning(3.0),
    EarlyStopping(),
    ForwardCorrection(),
)
"""The methods that `choose` compares unless it is given others, the most cautious first."""
