"""Crossentropy that the inverse of T corrects."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.validation import check_number
from keras_het.losses import ForwardCorrectedCrossentropy
from keras_het.ops.log_space import is_possible
from keras_het.ops.transition import condition_number


@keras.saving.register_keras_serializable("benchmarks")
class BackwardCorrectedCrossentropy(ForwardCorrectedCrossentropy):
    """Crossentropy of the noisy labels, corrected so that its mean over the noise is the crossentropy of the true ones.

        -sum_k inv(T)[y, k] log p(true k)        (Patrini et al. 2017, Theorem 1)

    It is unbiased, but it may be negative and has no lower bound. Its variance grows with the condition number of T:
    prefer the forward correction. The sum is over the classes that are possible: the terms of the others, of a logit of
    -inf, would cancel in the mean over the noise.

    Args:
        transition: see `ForwardCorrectedCrossentropy`.
        from_logits: see `ForwardCorrectedCrossentropy`.
        ignore_class: see `ForwardCorrectedCrossentropy`.
        name: see `ForwardCorrectedCrossentropy`.
        reduction: see `ForwardCorrectedCrossentropy`.
        dtype: see `ForwardCorrectedCrossentropy`.
        max_condition: the largest condition number of T to accept, at least 1.
    Raises:
        ValueError: if T is not square and row-stochastic, or its condition number is larger.

    Example:
        >>> loss = BackwardCorrectedCrossentropy([[0.75, 0.25], [0.0, 1.0]])
        >>> round(float(loss([0], [[0.8, 0.2]])), 4)  # (-log(0.8) + 0.25 log(0.2)) / 0.75
        -0.239
    """

    def __init__(
        self,
        transition: Any,
        from_logits: bool = False,
        ignore_class: int | None = None,
        max_condition: float = 100.0,
        name: str = "backward_corrected_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(transition, from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.max_condition = check_number("max_condition", max_condition, low=1.0)
        condition = condition_number(self.transition)
        if condition > self.max_condition:
            raise ValueError(
                f"`transition` must have a condition number of at most {self.max_condition:g} to be inverted. "
                f"Received: {condition:.4g}; use ForwardCorrectedCrossentropy, which does not invert it"
            )
        self.inverse = np.linalg.inv(self.transition)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """The loss above: `(..., K)`, `(..., K)` to `(...)`."""
        inverse = ops.convert_to_tensor(self.inverse, log_probs.dtype)
        return -ops.sum(ops.matmul(targets, inverse) * ops.where(is_possible(log_probs), log_probs, 0.0), axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "max_condition": self.max_condition}
