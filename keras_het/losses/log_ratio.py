"""Classification as a regression: the squared error of log-ratios."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_number
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops.log_space import is_possible


def check_smoothing(smoothing: Any) -> float:
    """`smoothing` as a float, if it is in (0, 1): without it the log-ratios of a label are infinite."""
    number = check_number("smoothing", smoothing, above=0.0)
    refuse_if(number >= 1.0, "smoothing", "be in (0, 1)", f"smoothing={smoothing}")
    return number


@keras.saving.register_keras_serializable("keras_het")
class LogRatioSquaredError(Crossentropy):
    """Half the squared error of logits, without their mean, as a regression on the logits of a smoothed label.

        |C (log p - log s)|^2 / 2,   s = (1 - eps) t + eps / K,   C x = x - mean(x)

    It is half the squared distance of Aitchison between p and s, and, up to a constant, -log N(ilr(s); ilr(p), I) of
    the isometric log-ratios in K - 1 dimensions: the likelihood of SGN (Englesson and Azizpour) without its covariance
    and its shift. A wrong label pulls the logits to a finite place instead of ever further, and the
    best prediction for labels of several classes is the mean of their targets, so that the most frequent label wins.

    The probabilities are not those of the labels: where an input has the label k with probability q_k, the best logits
    are q_k log(1 + K (1 - eps) / eps). Values are some tens of times those of crossentropy: lower the learning rate of
    an optimizer that does not rescale gradients, such as SGD.

    Args:
        smoothing: eps, in (0, 1); the smaller it is, the farther apart the logits of classes.
        from_logits: boolean, whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: argument of any Keras loss.
        dtype: argument of any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.
    Source: Englesson and Azizpour, ICLR 2024, whose targets these are.

    Example:
        >>> loss = LogRatioSquaredError(smoothing=0.2, from_logits=True)
        >>> round(float(loss([0], [[0.0, 0.0]])), 4)  # s = (0.9, 0.1), and C log s = (1, -1) log(9) / 2
        1.2069
    """

    def __init__(
        self,
        smoothing: float = 0.001,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "log_ratio_squared_error",
        **kwargs: Any,
    ) -> None:
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.smoothing = check_smoothing(smoothing)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above, over the possible classes: `(..., K)`, `(..., K)` to `(...)`."""
        possible = is_possible(log_probs)
        count = ops.sum(ops.cast(possible, log_probs.dtype), axis=-1, keepdims=True)
        label = ops.log((1.0 - self.smoothing) * targets + self.smoothing / count)
        error = ops.where(possible, ops.where(possible, log_probs, 0.0) - label, 0.0)
        centred = error - ops.sum(error, axis=-1, keepdims=True) / count
        return 0.5 * ops.sum(ops.where(possible, ops.square(centred), 0.0), axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "smoothing": self.smoothing}
