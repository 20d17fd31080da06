"""Losses for noisy labels: bounded losses, smoothed labels, forward correction by T."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_number, check_one_transition
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops.log_space import is_possible, weighted_logs
from keras_het.ops.transition import apply_transition


@keras.saving.register_keras_serializable("keras_het")
class GeneralizedCrossentropy(Crossentropy):
    """Negative Box-Cox transform of the label's probability; the larger q, the smaller the effect of label errors.

        sum_k t_k (1 - p_k^q) / q                                                  (Zhang and Sabuncu 2018, Section 3.2)

    It is computed as -expm1(q log p_k) / q, which is exact up to rounding for every q. Its gradient is finite at
    p_k = 0, unlike the gradient of Keras' `CategoricalGeneralizedCrossEntropy`. As q goes to 0, the loss becomes
    crossentropy. q = 1 gives 1 - p_y, half the absolute error of the whole vector. For a label vector t, the loss is
    the mean over labels drawn from t.

    Args:
        q: number in (0, 1]; the paper uses 0.7.
        from_logits, ignore_class: arguments of `Crossentropy`.
        kwargs: arguments of any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> loss = GeneralizedCrossentropy(q=0.5)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # (1 - sqrt(0.25)) / 0.5
        1.0
    """

    def __init__(
        self, q: float = 0.7, *, from_logits: bool = False, ignore_class: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(from_logits, ignore_class, **kwargs)
        self.q = check_number("q", q, above=0.0)
        refuse_if(self.q > 1.0, "q", "be in (0, 1]", f"q={q}")

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        return -ops.sum(targets * ops.expm1(self.q * log_probs), axis=-1) / self.q


@keras.saving.register_keras_serializable("keras_het")
class SymmetricCrossentropy(Crossentropy):
    """Sum of crossentropy, which learns, and reverse crossentropy, which is robust to label errors.

        -alpha sum_k t_k log p_k - beta sum_k p_k log t_k,   log 0 := A        (Wang et al. 2019, Section 3)

    For one label, the second part is -A beta (1 - p_y). The paper uses A only for log 0. Here A also replaces smaller
    logarithms, so the loss is continuous in the label vector.

    Args:
        alpha: weight of the crossentropy, at least 0; the paper uses 0.1 for ten classes, 6 for a hundred.
        beta: weight of the reverse crossentropy, at least 0; the paper uses 1 for ten classes, 0.1 for a hundred.
        log_of_zero: A < 0, which replaces log 0; the paper uses -4.
        from_logits, ignore_class: arguments of `Crossentropy`.
        kwargs: arguments of any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> loss = SymmetricCrossentropy(alpha=0.0, beta=0.5)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # 0.5 * 4 * 0.75
        1.5
    """

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        log_of_zero: float = -4.0,
        *,
        from_logits: bool = False,
        ignore_class: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(from_logits, ignore_class, **kwargs)
        self.alpha = check_number("alpha", alpha, low=0.0)
        self.beta = check_number("beta", beta, low=0.0)
        self.log_of_zero = check_number("log_of_zero", log_of_zero)
        refuse_if(self.log_of_zero >= 0.0, "log_of_zero", "be less than 0", value=log_of_zero)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        logs = ops.log(ops.where(targets > 0, targets, 1.0))
        # `0.0 * targets`, because a nan label must give nan.
        log_targets = ops.where(targets > 0, ops.maximum(logs, self.log_of_zero), self.log_of_zero + 0.0 * targets)
        reverse = -ops.sum(ops.exp(log_probs) * ops.stop_gradient(log_targets), axis=-1)
        return self.beta * reverse - self.alpha * weighted_logs(targets, log_probs)


@keras.saving.register_keras_serializable("keras_het")
class SmoothedCrossentropy(Crossentropy):
    """Crossentropy with smoothed labels; negative smoothing corrects for symmetric noise.

        -sum_k ((1 - s) t_k + s / K) log p_k        (Wei et al. 2022, Section 2)

    s > 0 is Keras' `label_smoothing`, which makes predictions less certain. s < 0 makes them more certain, and corrects
    for label errors. K counts only possible classes. Keras also smooths over classes with a logit of -inf, and returns
    infinity or nan. For symmetric flips of a fraction e, use s = 1 - 1 / (1 - e K / (K - 1)), the backward correction
    by that T. The mean over the flips is then the crossentropy of the true labels.

    With a negative s, the loss has no lower bound: it falls forever as the model memorises the labels, even label
    errors. Its gradient for the logits stays bounded. Limit the training by few epochs or weight decay. The paper
    starts with plain crossentropy.

    Args:
        label_smoothing: s < 1, positive or negative. At 1, labels would carry no information; above 1, they would be
            learned as wrong.
        from_logits, ignore_class: arguments of `Crossentropy`.
        kwargs: arguments of any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> loss = SmoothedCrossentropy(label_smoothing=-0.5)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # -1.25 log(0.25) + 0.25 log(0.75)
        1.6609
    """

    def __init__(
        self, label_smoothing: float = 0.1, *, from_logits: bool = False, ignore_class: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(from_logits, ignore_class, **kwargs)
        self.label_smoothing = check_number("label_smoothing", label_smoothing)
        refuse_if(self.label_smoothing >= 1.0, "label_smoothing", "be less than 1", value=label_smoothing)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        possible = ops.cast(is_possible(log_probs), log_probs.dtype)
        spread = possible / ops.sum(possible, axis=-1, keepdims=True)
        return -weighted_logs((1.0 - self.label_smoothing) * targets + self.label_smoothing * spread, log_probs)


@keras.saving.register_keras_serializable("keras_het")
class ForwardCorrectedCrossentropy(Crossentropy):
    """Crossentropy of the noisy labels under the noisy prediction; its minimum is the model for clean labels.

        -log sum_i p(true i) T[i, y]        (Patrini et al. 2017, Theorem 2)

    It equals crossentropy after a `NoiseTransition` with a fixed T, but needs no layer.

    Args:
        transition: T, `(K, K)`, T[i, j] = p(noisy label j | true class i).
        from_logits, ignore_class: arguments of `Crossentropy`.
        kwargs: arguments of any Keras loss.
    Raises:
        ValueError: if T is not square and row-stochastic, or of another size than y_pred.

    Example:
        >>> loss = ForwardCorrectedCrossentropy([[0.75, 0.25], [0.0, 1.0]])
        >>> round(float(loss([1], [[0.5, 0.5]])), 4)  # -log(0.5 * 0.25 + 0.5)
        0.47
    """

    def __init__(
        self, transition: Any, *, from_logits: bool = False, ignore_class: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(from_logits, ignore_class, **kwargs)
        self.transition = check_one_transition(transition)

    def log_probs(self, y_pred: Any) -> Any:
        """Returns log-probabilities, see `Crossentropy`; raises a ValueError if T has another size."""
        if y_pred.shape[-1] != len(self.transition):
            raise refusal("transition", f"have shape {(y_pred.shape[-1],) * 2}", shape=self.transition)
        return super().log_probs(y_pred)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        return -weighted_logs(targets, apply_transition(log_probs, self.transition))
