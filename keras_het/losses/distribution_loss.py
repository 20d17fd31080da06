"""Losses for heads that return a distribution in one tensor: their base classes, and that of a regression."""

import math
from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.validation import check_choice, check_integer, check_number
from keras_het.losses.crossentropy import ConfiguredLoss
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.ops.packed import Unpacked, packed_sizes, unpack_sized

FORMS = ("nll", "beta", "faithful")  # of the loss of a regression


class DistributionLoss(ConfiguredLoss):
    """Base class of losses of the distribution that a head returns; they compute in float32 or more."""

    def read(self, y_true: Any, y_pred: Any, can_have_flips: bool = False) -> tuple[Any, Unpacked]:
        """The labels in the rank of the predictions, `(..., K)`, and the distribution of these K labels.

        By its width alone a tensor may be the distribution of other labels: 21 numbers are five labels with two
        factors, or one with 18. So no more factors than labels are taken, as no head of these losses has more.

        Args:
            y_true: labels, `(..., K)`, or `(...)` for one.
            y_pred: the distribution that a head returns, `(..., K (2 + R) + 1)`.
            can_have_flips: boolean, whether rates of wrong labels may stand in it.
        Raises:
            ValueError: for labels of other shapes.
        """
        labels = in_last_axis(y_true, y_pred)
        units = labels.shape[-1]
        sizes = packed_sizes(y_pred.shape[-1], units, can_have_flips)
        if sizes is None or sizes[0] > units or not shapes_fit(labels.shape[:-1], y_pred.shape[:-1]):
            rule = "have shape (..., K), with K the units of the head, whose output `y_pred` has K (2 + R) + 1 numbers"
            flips = ", or K (4 + R) + 2," if can_have_flips else ""
            rule = f"{rule}{flips} of R factors, K at most"
            raise refusal("y_true", rule, f"shape {tuple(y_true.shape)}, with `y_pred` of shape {tuple(y_pred.shape)}")
        return labels, unpack_sized(y_pred, units, *sizes)


def in_last_axis(labels: Any, outputs: Any) -> Any:
    """Labels in the rank of the outputs: one label of each gets an axis, and an axis of 1 behind all others goes."""
    if len(labels.shape) < len(outputs.shape):
        return labels[..., None]
    return labels[..., 0] if len(labels.shape) > len(outputs.shape) and labels.shape[-1] == 1 else labels


def shapes_fit(shape: Any, expected: Any) -> bool:
    """Whether two shapes are equal as far as they are known."""
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(size == other or None in (size, other) for size, other in pairs)


class JointLoss(DistributionLoss):
    """Base class of losses that average over quasi-random nodes of the factors.

    Args:
        num_samples: S, the number of nodes.
        seed: seed of the nodes, in [0, 2^31).
        kwargs: arguments of any Keras loss.
    """

    def __init__(self, num_samples: int, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_samples = check_integer("num_samples", num_samples, 1, 1 << 20)
        self.seed = check_integer("seed", seed, 0, (1 << 31) - 1)

    def nodes(self, found: Unpacked) -> Nodes:
        """The nodes of the training step that the outputs of the head name; one if there are no factors."""
        factors = found.normal.size[1]
        return quasi_random((self.seed, found.step), self.num_samples if factors else 1, 0, factors)


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
        kwargs: arguments of any Keras loss.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
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
