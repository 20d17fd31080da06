"""Crossentropy whose labels are mixed with all classes."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_number
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops.log_space import is_possible, weighted_logs


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
        from_logits: boolean, whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: argument of any Keras loss.
        dtype: argument of any Keras loss.
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
