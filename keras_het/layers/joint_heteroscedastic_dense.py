"""A head that returns the whole distribution of its logits, for losses of several labels at once."""

from typing import Any

import keras

from keras_het import links
from keras_het.base.tensor import Tensor
from keras_het.layers.heteroscedastic_dense import HeteroscedasticDense
from keras_het.ops.packed import pack, packed_width, unpack


@keras.saving.register_keras_serializable("keras_het")
class JointHeteroscedasticDense(HeteroscedasticDense):
    """A head for label vectors or pixels, which hands the Gaussian of its logits to a joint loss.

        u(x) = mu(x) + d(x) * e_K + V(x) e_R,    e_K ~ N(0, I_K), e_R ~ N(0, I_R)       (Collier et al. 2021, section 2)

    The loss of each label by itself sees only the variance of its logit, so the covariance between labels gets no
    gradient from it. A joint loss, `losses.JointMultiLabelCrossentropy`, gives it one.

    The output is one tensor, `(..., K (2 + R) + 1)`: the means, the standard deviations and the factor of the logits in
    temperatures, and the training step, of which the noise of the loss is a function (-1 at inference). For K = 1000
    and R = 15 it has 68 kB for each example. A `models.DistributionModel` that ends in this head trains on that output,
    and predicts probabilities.

    Args:
        units: K, the number of labels.
        num_factors: R, from 0 to units; None is min(15, units).
        link: "sigmoid" for labels that are not exclusive, "softmax" for the classes of a pixel.
        temperature: tau > 0, or a `LearnedTemperature`.
        kwargs: other arguments of `HeteroscedasticDense`; `integrator` is that of the predictions of each label by
            itself.
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
        self,
        units: int,
        num_factors: int | None = None,
        *,
        link: str | links.Link = "sigmoid",
        temperature: Any = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, num_factors, link=link, temperature=temperature, **kwargs)
        if self.covariance.noise_of != "logits":
            rule = "have noise of the logits: noise of the features has no standard deviations of its own"
            raise ValueError(f"`covariance` must {rule}. Received: a {type(self.covariance).__name__}")

    def call(self, inputs: Tensor, training: bool = False) -> Any:
        normal = self.logit_distribution(inputs).standardized(self.link.center, self._temperature_now())
        return pack(normal, self.clock.tick()[1] if training else None)

    def predictions(self, outputs: Tensor) -> Any:
        """The probabilities of each label by itself, `(..., K)`, of outputs of this head, `(..., K (2 + R) + 1)`."""
        return self.link.probabilities(self.integrator.integrate(self.link, unpack(outputs, self.units).normal))

    def probabilities(self, x: Tensor) -> Any:
        """The probabilities of each label by itself at inference, `(..., K)`.

        Args:
            x: inputs, `(..., D)`.
        """
        return self.predictions(self.call(x))

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (*input_shape[:-1], packed_width(*self.covariance.size))
