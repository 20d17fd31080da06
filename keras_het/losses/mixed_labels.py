"""Crossentropies whose labels are mixed with predictions, or with all classes."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_boolean, check_number
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops.log_space import is_possible, weighted_logs


@keras.saving.register_keras_serializable("keras_het")
class BootstrappedCrossentropy(Crossentropy):
    """Crossentropy with labels that are mixed with the model's own predictions.

        soft: -sum_k (beta t_k + (1 - beta) p_k) log p_k                                      (Reed et al. 2014, Eq. 6)
        hard: -sum_k (beta t_k + (1 - beta) [k = argmax p]) log p_k                           (Reed et al. 2014, Eq. 7)

    The gradient passes through p_k in both places. beta = 1 is the plain crossentropy.

    Args:
        beta: weight of the labels, in [0, 1]; None is the paper's: 0.95 for soft, 0.8 for hard.
        hard: whether to mix with the predicted class, not with the probabilities.
        from_logits: see `ForwardCorrectedCrossentropy`.
        ignore_class: see `ForwardCorrectedCrossentropy`.
        name: see `ForwardCorrectedCrossentropy`.
        reduction: see `ForwardCorrectedCrossentropy`.
        dtype: see `ForwardCorrectedCrossentropy`.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> loss = BootstrappedCrossentropy(beta=0.5, hard=True)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # -(log(0.25) + log(0.75)) / 2
        0.837
    """

    def __init__(
        self,
        beta: float | None = None,
        hard: bool = False,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "bootstrapped_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.hard = check_boolean("hard", hard)
        self.beta = check_number("beta", (0.8 if hard else 0.95) if beta is None else beta, low=0.0)
        refuse_if(self.beta > 1.0, "beta", "be in [0, 1]", f"beta={beta}")

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        own = (
            ops.one_hot(ops.argmax(log_probs, axis=-1), log_probs.shape[-1], dtype=log_probs.dtype)
            if self.hard
            else ops.exp(log_probs)
        )
        return -weighted_logs(self.beta * targets + (1.0 - self.beta) * own, log_probs)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "beta": self.beta, "hard": self.hard}


@keras.saving.register_keras_serializable("keras_het")
class SmoothedCrossentropy(Crossentropy):
    """Crossentropy with smoothed labels; a negative number sharpens them, which corrects for symmetric noise.

        -sum_k ((1 - s) t_k + s / K) log p_k        (Wei et al. 2022, Section 2)

    s > 0 is Keras' `label_smoothing`, which makes predictions less certain. s < 0 does the opposite, and corrects for
    wrong labels. K counts only the classes that are possible: Keras also smooths over those of a logit of -inf, and is
    infinite or nan there. If a share e of the labels is flipped evenly to the other classes,
    s = 1 - 1 / (1 - e K / (K - 1)) gives the backward correction by that T: its mean over the flips is the
    crossentropy of the true labels.

    With a negative s the loss has no lower bound: it falls without end as the model becomes sure of its labels, wrong
    labels too. Its gradient for the logits stays bounded. Limit the training (few epochs, weight decay); the paper
    begins it with plain crossentropy. On digits, a negative s was worse than early stopping for five of seven noises,
    by 2.7 to 11.1 points of accuracy (`benchmarks/results/arena_digits.md`).

    Args:
        smoothing: s < 1, of either sign; labels would say nothing at 1, and would be learned as wrong above 1.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: as for any Keras loss.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> loss = SmoothedCrossentropy(smoothing=-0.5)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # -1.25 log(0.25) + 0.25 log(0.75)
        1.6609
    """

    def __init__(
        self,
        smoothing: float = 0.1,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "smoothed_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.smoothing = check_number("smoothing", smoothing)
        refuse_if(self.smoothing >= 1.0, "smoothing", "be less than 1", f"smoothing={smoothing}")

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        possible = ops.cast(is_possible(log_probs), log_probs.dtype)
        spread = possible / ops.sum(possible, axis=-1, keepdims=True)
        return -weighted_logs((1.0 - self.smoothing) * targets + self.smoothing * spread, log_probs)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "smoothing": self.smoothing}
