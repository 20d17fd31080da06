"""Joint training with co-regularisation: two networks that should agree."""

from typing import Any

import keras
from keras import ops

from benchmarks.baselines.selecting import PairCrossentropy
from keras_het.base.validation import check_number


@keras.saving.register_keras_serializable("benchmarks")
class JoCoR(PairCrossentropy):
    """Better than early stopping for symmetric flips on digits, +2.1 points; worse without wrong labels, -10.2.

    It is also worse for outliers, -2.0, level for the four other noises, and never clearly better than two networks
    that learn from all examples (`benchmarks/results/arena_digits.md`). The loss is the crossentropy of two networks
    that should agree, on the examples that have the smallest losses under both:

        (1 - lambda) (-log p1(y) - log p2(y)) + lambda (KL(p1 | p2) + KL(p2 | p1))        (Wei et al. 2020, section 3)

    The mean is over the R n examples of a batch of n for which this loss is smallest; R n is rounded to a whole number.
    Two networks agree on right labels sooner than on wrong ones.

    Args:
        kept_share: see `CoTeaching`.
        from_logits: see `CoTeaching`.
        ignore_class: see `CoTeaching`.
        name: see `CoTeaching`.
        dtype: see `CoTeaching`.
        strength: lambda, in [0, 1].
        reduction: "sum_over_batch_size" is the mean over the kept examples; "none" gives `(B, 1)`, zero for the others.
    Raises:
        ValueError: for arguments outside these ranges; when called, for y_pred of another shape than `(B, 2, K)`.

    Example:
        >>> import numpy as np
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(6), keras.layers.Reshape((2, 3))])
        >>> loss = JoCoR(kept_share=1.0, strength=0.5, from_logits=True).attach(model)
        >>> round(float(loss([0], np.zeros((1, 2, 3)))), 4)  # networks that agree: log 3
        1.0986
    """

    def __init__(self, kept_share: float, strength: float = 0.85, name: str = "jocor", **kwargs: Any):
        super().__init__(kept_share, name=name, **kwargs)
        self.strength = check_number("strength", strength, low=0.0)
        if self.strength > 1.0:
            raise ValueError(f"`strength` must be in [0, 1]. Received: strength={strength}")

    def loss_shape(self, shape: tuple) -> tuple[int, ...]:
        """See `SelectingCrossentropy`; one loss for both networks."""
        return (1,)

    def of_pair(self, losses: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """See above."""
        first, second = log_probs[:, 0], log_probs[:, 1]
        ratio = ops.where(first == second, 0.0, first - second)  # also of a class that both hold for impossible
        apart = ops.sum((ops.exp(first) - ops.exp(second)) * ratio, axis=-1, keepdims=True)
        losses = (1.0 - self.strength) * ops.sum(losses, axis=1, keepdims=True) + self.strength * apart
        return losses, self.smallest(losses, counts)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "strength": self.strength}
