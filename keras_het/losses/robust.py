"""Robust losses: those that are bounded, or have a bounded part, so that no wrong label weighs too much."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_boolean, check_number
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops.log_space import weighted_logs
from keras_het.ops.transition import SMALLEST


def check_log_of_zero(log_of_zero: Any) -> float:
    """`log_of_zero` as a float, if it is a finite number below zero."""
    number = check_number("log_of_zero", log_of_zero)
    refuse_if(number >= 0.0, "log_of_zero", "be less than 0", f"log_of_zero={log_of_zero}")
    return number


def reverse_crossentropy(targets: Any, log_probs: Any, log_of_zero: float) -> Any:
    """Crossentropy of the labels under the prediction, with a finite number for the logarithm of zero.

        -sum_k p_k max(log t_k, A),   which is -A (1 - p_y) for one label        (Wang et al. 2019, Section 3)

    The paper takes A only for log 0. Here A also replaces smaller logarithms, so the loss is continuous in the label
    vector.

    Args:
        targets: t, label vectors, `(..., K)`; no gradient passes to them.
        log_probs: log p, `(..., K)`.
        log_of_zero: A < 0.
    Returns:
        shape `(...)`.

    Example:
        >>> # 4 * 0.75
        >>> round(float(reverse_crossentropy(ops.array([1.0, 0.0]), ops.log(ops.array([0.25, 0.75])), -4.0)), 4)
        3.0
    """
    targets = ops.stop_gradient(targets)
    positive = ops.where(targets > 0, targets, 1.0)  # a label that is nan must give nan: `0.0 * targets` below
    log_targets = ops.where(targets > 0, ops.maximum(ops.log(positive), log_of_zero), log_of_zero + 0.0 * targets)
    return -ops.sum(ops.exp(log_probs) * log_targets, axis=-1)


@keras.saving.register_keras_serializable("keras_het")
class GeneralizedCrossentropy(Crossentropy):
    """The negative Box-Cox transform of the label's probability; a larger q makes wrong labels move the model less.

        sum_k t_k (1 - p_k^q) / q                                                  (Zhang and Sabuncu 2018, Section 3.2)

    It is computed as -expm1(q log p_k) / q, which is exact up to rounding for every q. Its gradient is finite where
    p_k = 0; the gradient of Keras' own `CategoricalGeneralizedCrossEntropy` is not. As q goes to 0, the loss becomes
    crossentropy. q = 1 gives 1 - p_y, half the absolute error of the whole vector. A label vector weighs the losses of
    its classes, so the loss is the mean over labels drawn from it.

    Args:
        q: number in (0, 1]; the paper takes 0.7.
        from_logits: boolean, whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: argument of any Keras loss.
        dtype: argument of any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> loss = GeneralizedCrossentropy(q=0.5)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # (1 - sqrt(0.25)) / 0.5
        1.0
    """

    def __init__(
        self,
        q: float = 0.7,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "generalized_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.q = check_number("q", q, above=0.0)
        refuse_if(self.q > 1.0, "q", "be in (0, 1]", f"q={q}")

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        return -ops.sum(targets * ops.expm1(self.q * log_probs), axis=-1) / self.q

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "q": self.q}


@keras.saving.register_keras_serializable("keras_het")
class SymmetricCrossentropy(Crossentropy):
    """The sum of crossentropy, which learns, and reverse crossentropy, which is robust to wrong labels.

        -alpha sum_k t_k log p_k - beta sum_k p_k log t_k,   log 0 := A        (Wang et al. 2019, Section 3)

    For one label the second part is -A beta (1 - p_y).

    `multi_label=True` allows several labels at once. Every class is then a yes-or-no question, with answers t_k and
    1 - t_k in [0, 1] and probabilities p_k and 1 - p_k. The loss is the mean over the classes; for beta = 0 it is alpha
    times Keras' `BinaryCrossentropy`. y_true and y_pred have one shape `(..., K)`. With `from_logits=True` y_pred are
    the logits of p_k, such as the outputs of a head with `link="sigmoid"`.

    Args:
        alpha: weight of the crossentropy, at least 0; the paper takes 0.1 for ten classes, 6 for a hundred.
        beta: weight of the reverse crossentropy, at least 0; the paper takes 1 for ten classes, 0.1 for a hundred.
        log_of_zero: A < 0, which replaces log 0; the paper takes -4.
        multi_label: boolean, whether an example may have several labels, or none.
        from_logits: boolean, whether y_pred are logits, or log-probabilities unless `multi_label`, instead of
            probabilities.
        ignore_class: integer label to leave out of the loss and of its mean; None with `multi_label`.
        name: the name of the loss in logs.
        reduction: argument of any Keras loss.
        dtype: argument of any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges, and with `multi_label` for labels of another shape than y_pred.

    Example:
        >>> loss = SymmetricCrossentropy(alpha=0.0, beta=0.5)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # 0.5 * 4 * 0.75
        1.5
        >>> several = SymmetricCrossentropy(alpha=0.0, beta=0.5, multi_label=True)
        >>> round(float(several([[1, 1]], [[0.25, 0.75]])), 4)  # 0.5 * 4 * (0.75 + 0.25) / 2
        1.0
    """

    activation = None

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        log_of_zero: float = -4.0,
        multi_label: bool = False,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "symmetric_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.alpha = check_number("alpha", alpha, low=0.0)
        self.beta = check_number("beta", beta, low=0.0)
        self.log_of_zero = check_log_of_zero(log_of_zero)
        self.multi_label = check_boolean("multi_label", multi_label)
        if multi_label and ignore_class is not None:
            raise refusal("ignore_class", "be None with multi_label=True", f"ignore_class={ignore_class}")

    @staticmethod
    def config_for(config: dict[str, Any], output: Any) -> dict[str, Any] | None:
        """See `Crossentropy`; None for outputs of one label where several are expected, and the reverse."""
        fits = config["multi_label"] == (output.link == "sigmoid")
        return Crossentropy.config_for(config, output) if fits else None

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """See `Crossentropy`."""
        if not self.multi_label:
            return super().call(y_true, y_pred)
        y_true, y_pred = ops.convert_to_tensor(y_true, self.dtype), ops.convert_to_tensor(y_pred, self.dtype)
        if len(y_true.shape) != len(y_pred.shape) or y_true.shape[-1] != y_pred.shape[-1]:
            rule = f"have the shape of `y_pred`, {tuple(y_pred.shape)}, with multi_label=True"
            raise refusal("y_true", rule, shape=y_true)
        possible = ops.logical_and(y_true >= 0, y_true <= 1)
        y_true = ops.where(possible, y_true, np.nan)
        each = self.crossentropy(ops.stack([y_true, 1.0 - y_true], axis=-1), self._log_answers(y_pred))
        return ops.mean(each, axis=-1)

    def _log_answers(self, y_pred):
        """Logarithms of p_k and 1 - p_k, `(..., K, 2)`."""
        if self.from_logits:
            return ops.stack([ops.log_sigmoid(y_pred), ops.log_sigmoid(-y_pred)], axis=-1)
        return ops.log(ops.maximum(ops.stack([y_pred, 1.0 - y_pred], axis=-1), SMALLEST))

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        reverse = reverse_crossentropy(targets, log_probs, self.log_of_zero)
        return self.beta * reverse - self.alpha * weighted_logs(targets, log_probs)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        own = {"alpha": self.alpha, "beta": self.beta, "log_of_zero": self.log_of_zero, "multi_label": self.multi_label}
        return {**super().get_config(), **own}
