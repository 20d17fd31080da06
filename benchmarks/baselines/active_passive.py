"""Active and passive losses: a normalised crossentropy, and a reverse one."""

from typing import Any

import keras
from keras import ops

from keras_het.base.validation import check_number
from keras_het.losses.crossentropy import Crossentropy
from keras_het.losses.robust import check_log_of_zero, reverse_crossentropy
from keras_het.ops.log_space import is_possible, weighted_logs


@keras.saving.register_keras_serializable("benchmarks")
class ActivePassiveCrossentropy(Crossentropy):
    """Better than early stopping on digits for symmetric and random flips, pairs and weak raters, +2.6 to +5.1 points.

    On the same four noises `SymmetricCrossentropy` gains 2.3 to 4.5 points (`benchmarks/results/arena_digits.md`). The
    loss is a weighted sum of normalised crossentropy and reverse crossentropy (NCE + RCE):

        alpha sum_k t_k log p_k / sum_j log p_j - beta sum_k p_k log t_k,   log 0 := A       (Ma et al. 2020, Section 3)

    The sum over j is over the classes that are possible: without those that have a logit of -inf.
    The normalised crossentropy is between 0 and 1, and 1 / K where all classes are equally probable. Its gradient falls
    as the number K of classes grows, so many classes need a larger alpha. For one label the second part is
    -A beta (1 - p_y).

    Args:
        alpha: weight of the normalised crossentropy, at least 0.
        beta: weight of the reverse crossentropy, at least 0. The paper takes (alpha, beta) = (1, 1) for ten classes,
            (10, 0.1) for a hundred.
        log_of_zero: A < 0, which replaces log 0; the paper takes -4.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: as for any Keras loss.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges, and for predictions of one class.

    Example:
        >>> loss = ActivePassiveCrossentropy(alpha=1.0, beta=0.0)
        >>> round(float(loss([0], [[0.125, 0.5, 0.375]])), 4)  # log(0.125) / (log(0.125) + log(0.5) + log(0.375))
        0.554
    """

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        log_of_zero: float = -4.0,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "active_passive_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.alpha = check_number("alpha", alpha, low=0.0)
        self.beta = check_number("beta", beta, low=0.0)
        self.log_of_zero = check_log_of_zero(log_of_zero)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        if log_probs.shape[-1] < 2:
            raise ValueError(f"`y_pred` must have at least two classes. Received: shape {tuple(log_probs.shape)}")
        # At most -K log K for K possible classes: a small number added to it would only make the loss wrong.
        total = ops.sum(ops.where(is_possible(log_probs), log_probs, 0.0), axis=-1)
        normalized = weighted_logs(targets, log_probs) / ops.where(total == 0, -1.0, total)  # 0 for a single one
        return self.alpha * normalized + self.beta * reverse_crossentropy(targets, log_probs, self.log_of_zero)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "alpha": self.alpha, "beta": self.beta, "log_of_zero": self.log_of_zero}
