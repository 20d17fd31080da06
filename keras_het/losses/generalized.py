"""Generalised crossentropy: between crossentropy, which learns fast, and the absolute error, which is robust."""

from typing import Any

import keras
from keras import ops

from keras_het.base.validation import check_number
from keras_het.losses.crossentropy import Crossentropy


@keras.saving.register_keras_serializable("keras_het")
class GeneralizedCrossentropy(Crossentropy):
    """The negative Box-Cox transform of the label's probability; a larger q makes wrong labels move the model less.

        sum_k t_k (1 - p_k^q) / q                                                  (Zhang and Sabuncu 2018, Section 3.2)

    It is computed as -expm1(q log p_k) / q, which is exact up to rounding for every q. Its gradient is finite where
    p_k = 0; that of Keras' own `CategoricalGeneralizedCrossEntropy` is not. As q goes to 0, it becomes crossentropy.
    q = 1 gives 1 - p_y, half the absolute error of the whole vector. A label vector weighs the losses of its classes,
    so the loss is the mean over labels drawn from it.

    Args:
        q: in (0, 1]; the paper takes 0.7.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: as for any Keras loss.
        dtype: as for any Keras loss.
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
        if self.q > 1.0:
            raise ValueError(f"`q` must be in (0, 1]. Received: q={q}")

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        return -ops.sum(targets * ops.expm1(self.q * log_probs), axis=-1) / self.q

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "q": self.q}
