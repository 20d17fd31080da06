"""A head for segmentation: one Gaussian of the logits of all pixels and classes."""

import numbers
from typing import Any

import keras

from keras_het import covariances, links
from keras_het.covariances.low_rank import OverPixels
from keras_het.layers.joint_heteroscedastic_dense import JointHeteroscedasticDense

DEFAULT_NUM_FACTORS = 10


@keras.saving.register_keras_serializable("keras_het")
class StochasticSegmentation(JointHeteroscedasticDense):
    """A head for segmentation, which draws whole label maps: the noise of its factors is one for all pixels.

        u_i(x) = mu_i(x) + d_i(x) * e_i + V_i(x) e_R,    e_i ~ N(0, I_C) of each pixel i, e_R ~ N(0, I_R) of the image

    The head is a `JointHeteroscedasticDense` of the features of each pixel with temperature 1, and may have more
    factors than classes. What makes the noise common is the loss, `losses.JointSegmentationCrossentropy`, and
    `analysis.sample_segmentations`, which draws label maps. A `models.DistributionModel` that ends in this head trains
    on its output, and predicts probabilities of each pixel by itself.

    Args:
        units: C, the number of classes.
        num_factors: R; 0 leaves every pixel its own noise alone; None is 10.
        link: a softmax.
        covariance: an instance from `keras_het.covariances` in place of num_factors.
        kwargs: other arguments of `JointHeteroscedasticDense`.
    Input shape: `(B, ..., D)`, such as `(B, H, W, D)`, features of the pixels.
    Output shape: `(B, ..., C (2 + R) + 1)`: mu, d, V, and the training step.
    Raises:
        ValueError: for arguments outside these ranges, or a link that is no softmax.
    Source: Monteiro et al., Stochastic segmentation networks, NeurIPS 2020.

    Example:
        >>> import numpy as np
        >>> head = StochasticSegmentation(2, num_factors=5)
        >>> pixels = np.zeros((1, 16, 16, 8))
        >>> tuple(head(pixels).shape), tuple(head.probabilities(pixels).shape)
        ((1, 16, 16, 15), (1, 16, 16, 2))
    """

    def __init__(
        self,
        units: int,
        num_factors: int | None = None,
        *,
        link: str | links.Link = "softmax",
        covariance: covariances.Covariance | None = None,
        **kwargs: Any,
    ) -> None:
        if covariance is None:
            factors, num_factors = DEFAULT_NUM_FACTORS if num_factors is None else num_factors, None
            is_diagonal = isinstance(factors, numbers.Integral) and factors == 0
            covariance = covariances.Diagonal() if is_diagonal else OverPixels(factors)
        super().__init__(units, num_factors, link=link, covariance=covariance, **kwargs)
        if not isinstance(self.link, links.Softmax):
            raise ValueError(f"`link` must be a softmax: a pixel has one class. Received: {link!r}")
