"""The loss of a regression whose last layer returns a mean and a covariance."""

import math
from typing import Any

import keras
from keras import ops

from keras_het.base.validation import check_choice, check_number
from keras_het.losses.distribution_loss import DistributionLoss

FORMS = ("nll", "beta", "faithful")


@keras.saving.register_keras_serializable("keras_het")
class MultivariateNormalNLL(DistributionLoss):
    """-log N(y; mu, Sigma) of K targets, for `layers.HeteroscedasticNormal`; Sigma = diag(d^2) + V V'.

        nll       ((y - mu)' Sigma^-1 (y - mu) + log det Sigma + K log(2 pi)) / 2
        beta      stop(det(Sigma)^(beta / K)) nll                          (Seitzer et al. 2022, for K = 1)
        faithful  |y - mu|^2 / 2 + nll with stop(mu)                       (Stirn et al. 2023, here for any Sigma)

    In "nll" an example whose variance is large gives the mean little gradient, so an example that is hard to predict at
    the start may stay so. "beta" gives some of the gradient back: beta = 1 leaves the mean that of the squared error,
    if the targets are independent with equal variances. The paper has one target; here the weight is a power of the
    geometric mean of the variances along the axes of Sigma, one for all targets. "faithful" leaves the mean exactly
    that of the squared error if the head has `stop_features=True`; without it d and V also move the layers before the
    head. The values of the three cannot be compared with each other, and that of "beta" is no score: a variance that is
    too small also lowers it, so do not stop training by it.

    `models.heteroscedastic_regression` is the other road: the mean first, by the squared error.

    It costs O(K R^2) for each example, and no K by K matrix is made.

    Args:
        form: "nll", "beta" or "faithful".
        beta: the power of "beta", at least 0; 0 is "nll".
        name: as for any Keras loss.
        reduction: as for any Keras loss.
        dtype: as for any Keras loss.
    Input shape: targets `(..., K)`, or `(...)` for one. A target that is nan makes the loss nan: leave such examples
        out. Predictions `(..., K (2 + R) + 1)`.
    Raises:
        ValueError: for arguments outside these ranges, or predictions that are no distribution of K targets.
    Source: Seitzer, Tavakoli, Antic and Martius, ICLR 2022; Stirn, Wessels, Schertzer, Pereira, Sanjana and Knowles,
        AISTATS 2023; Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Eq. 4, for one target.

    Example:
        >>> outputs = ops.array([[1.0, 2.0, -1.0]])  # mu = 1 and d = 2 of one target, at inference
        >>> round(float(MultivariateNormalNLL()(ops.array([[3.0]]), outputs)), 4)  # (1 + log 4 + log(2 pi)) / 2
        2.1121
    """

    def __init__(
        self,
        form: str = "nll",
        beta: float = 0.5,
        name: str = "multivariate_normal_nll",
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.form = check_choice("form", form, FORMS)
        self.beta = check_number("beta", beta, low=0.0)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of every example, `(...)`."""
        y_true, found = self.read(y_true, y_pred)
        normal, units = found.normal, found.normal.size[0]
        if self.form == "faithful":
            of_mean = 0.5 * ops.sum(ops.square(y_true - normal.loc), axis=-1)
            fixed = normal.maker()(ops.stop_gradient(normal.loc), *normal.tensors[1:])
            return of_mean - fixed.log_prob(y_true)
        distance, log_det = normal.distance_and_log_det(y_true)
        losses = 0.5 * (distance + log_det + units * math.log(2.0 * math.pi))
        return losses * ops.stop_gradient(ops.exp(self.beta / units * log_det)) if self.form == "beta" else losses

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "form": self.form, "beta": self.beta}
