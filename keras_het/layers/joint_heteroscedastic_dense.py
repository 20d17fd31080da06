"""Heads that return the distribution of their logits, for joint losses of several labels or of all pixels."""

import numbers
from typing import Any

import keras

from keras_het import covariances, links
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tensor import Tensor
from keras_het.covariances.low_rank import PixelLowRank
from keras_het.layers.heteroscedastic_dense import HeteroscedasticDense
from keras_het.ops.packed import pack, packed_width, unpack_sized

DEFAULT_PIXEL_FACTORS = 10


@keras.saving.register_keras_serializable("keras_het")
class JointHeteroscedasticDense(HeteroscedasticDense):
    """Head for label vectors or pixels, which returns the Gaussian of its logits for a joint loss.

        u(x) = mu(x) + d(x) * e_K + V(x) e_R,    e_K ~ N(0, I_K), e_R ~ N(0, I_R)       (Collier et al. 2021, section 2)

    A separate loss of each label depends only on the variance of its logit, so the covariance between labels gets no
    gradient. A joint loss, `losses.JointMultiLabelCrossentropy`, gives it a gradient.

    The output is one tensor, `(..., K (2 + R) + 1)`: the means, standard deviations and factor of the logits in
    temperatures, and the training step. The step determines the noise of the loss, and is -1 at inference. For K = 1000
    and R = 15, the output has 68 kB per example. A `models.DistributionModel` that ends in this head trains on that
    output and predicts probabilities.

    Args:
        units: K, the number of labels.
        num_factors: R, from 0 to units; None is min(15, units).
        link: "sigmoid" for labels that are not exclusive, "softmax" for the classes of a pixel.
        temperature: tau > 0, see `HeteroscedasticDense`.
        kwargs: other arguments of `HeteroscedasticDense`; `integrator` serves the predictions of single labels.
    Input shape: `(..., D)`, with at least one leading axis.
    Output shape: `(..., K (2 + R) + 1)`.
    Raises:
        ValueError: for arguments outside these ranges, or noise of the features.
    Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, section 4 (multi-label).

    Example:
        >>> import numpy as np
        >>> head = JointHeteroscedasticDense(10, num_factors=3)
        >>> tuple(head(np.zeros((2, 8))).shape), tuple(head.probabilities(np.zeros((2, 8))).shape)
        ((2, 51), (2, 10))
    """

    def __init__(
        self, units: int, num_factors: int | None = None, *, link: str | links.Link = "sigmoid", **kwargs: Any
    ) -> None:
        rule = "be None: the layer returns a distribution. For probabilities, use a models.DistributionModel"
        activation = kwargs.get("activation")
        refuse_if(activation not in (None, "linear", keras.activations.linear), "activation", rule, value=activation)
        super().__init__(units, num_factors, link=link, **kwargs)
        if self.covariance.noise_space != "logits":
            rule = "have noise of the logits, such as LowRank: noise of the features has no standard deviations"
            raise refusal("covariance", rule, kind=self.covariance)

    def call(self, inputs: Tensor, training: bool = False) -> Any:
        normal = self.logit_distribution(inputs).standardized(self.link.center, self.temperature)
        step = self.clock.tick()[1] if training else None
        return pack(normal, step)

    def predictions(self, outputs: Tensor) -> Any:
        """Returns the probability of each label, `(..., K)`, from outputs of this head, `(..., K (2 + R) + 1)`."""
        normal = unpack_sized(outputs, *self.covariance.size).normal
        return self.link.probabilities(self.integrator.integrate(self.link, normal))

    def probabilities(self, x: Tensor) -> Any:
        """Returns the probability of each label at inference, `(..., K)`, for inputs `x`, `(..., D)`."""
        return self.predictions(self.call(x))

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (*input_shape[:-1], packed_width(*self.covariance.size))


@keras.saving.register_keras_serializable("keras_het")
class StochasticSegmentation(JointHeteroscedasticDense):
    """Segmentation head for whole label maps: all pixels share the factor noise.

        u_i(x) = mu_i(x) + d_i(x) * e_i + V_i(x) e_R,    e_i ~ N(0, I_C) of each pixel i, e_R ~ N(0, I_R) of the image

    The head is a `JointHeteroscedasticDense` of the features of each pixel with temperature 1, and can have more
    factors than classes. The pixels share noise in the loss, `losses.JointSegmentationCrossentropy`, and in
    `explain.sample_segmentations`, which draws label maps. A `models.DistributionModel` that ends in this head trains
    on its output, and predicts the probabilities of each pixel.

    Args:
        units: C, the number of classes.
        num_factors: R; 0 means independent noise of every pixel; None is 10.
        link: softmax link.
        covariance: instance from `keras_het.covariances` instead of num_factors.
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
            factors, num_factors = DEFAULT_PIXEL_FACTORS if num_factors is None else num_factors, None
            is_diagonal = isinstance(factors, numbers.Integral) and factors == 0
            covariance = covariances.Diagonal() if is_diagonal else PixelLowRank(factors)
        super().__init__(units, num_factors, link=link, covariance=covariance, **kwargs)
        refuse_if(not isinstance(self.link, links.Softmax), "link", "be a softmax: a pixel has one class", f"{link!r}")
