"""Low-rank noise that all pixels of an image share."""

from typing import Any

import keras

from keras_het.base.validation import check_integer
from keras_het.covariances.low_rank import LowRank

MOST_FACTORS = 1024


@keras.saving.register_keras_serializable("keras_het")
class OverPixels(LowRank):
    """As `LowRank`, for logits of pixels that share the noise of the factors.

    The covariance has as many rows as the image has pixels times classes, so the factors may be more than the classes.

    Args:
        num_factors: R, from 1 to 1024.
        kwargs: other arguments of `LowRank`.
    """

    def __init__(self, num_factors: int, **kwargs: Any) -> None:
        super().__init__(num_factors, **kwargs)

    def check(self, units: int) -> None:
        self.num_factors = check_integer("num_factors", self.num_factors, 1, MOST_FACTORS)
