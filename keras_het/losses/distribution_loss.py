"""Losses for heads that return a distribution in one tensor: base classes, and the loss of a regression."""

import math
from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.validation import check_choice, check_integer, check_number
from keras_het.losses.crossentropy import ConfiguredLoss
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.ops.packed import Unpacked, packed_factors, unpack_sized

REGRESSION_FORMS = ("nll", "beta", "faithful")


class DistributionLoss(ConfiguredLoss):
    """Base class of losses for the distribution that a head returns, computed in float32 or float64."""

    def read(self, y_true: Any, y_pred: Any) -> tuple[Any, Unpacked]:
        """Returns the labels in the rank of the predictions, `(..., K)`, and the distribution of these K labels.

        The width of a tensor is ambiguous: 21 numbers can be five labels with two factors, or one label with 18. So
        R <= K is required, which holds for all heads of these losses. Raises ValueError for labels of other shapes.
        """
        labels = align_labels(y_true, y_pred)
        units = labels.shape[-1]
        num_factors = packed_factors(y_pred.shape[-1], units)
        if num_factors is None or num_factors > units or not shapes_fit(labels.shape[:-1], y_pred.shape[:-1]):
            rule = "have shape (..., K) for a head of K units, whose `y_pred` has K (2 + R) + 1 numbers, R <= K"
            raise refusal("y_true", rule, f"shape {tuple(y_true.shape)}, with `y_pred` of shape {tuple(y_pred.shape)}")
        return labels, unpack_sized(y_pred, units, num_factors)


def align_labels(labels: Any, outputs: Any) -> Any:
    """Returns labels in the rank of the outputs: adds a last axis, or drops a last axis of length 1."""
    if len(labels.shape) < len(outputs.shape):
        return labels[..., None]
    return labels[..., 0] if len(labels.shape) > len(outputs.shape) and labels.shape[-1] == 1 else labels


def shapes_fit(shape: Any, expected: Any) -> bool:
    """True if two shapes are equal as far as they are known."""
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(size == other or None in (size, other) for size, other in pairs)


class JointLoss(DistributionLoss):
    """Base class of losses that average over quasi-random nodes of the factors."""

    def __init__(self, num_samples: int, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_samples = check_integer("num_samples", num_samples, 1, 1 << 20)
        self.seed = check_integer("seed", seed, 0, (1 << 31) - 1)

    def nodes(self, output: Unpacked) -> Nodes:
        """Returns the nodes for the training step in the head's output; one node without factors."""
        factors = output.normal.size[1]
        return quasi_random((self.seed, output.step), self.num_samples if factors else 1, 0, factors)


@keras.saving.register_keras_serializable("keras_het")
class MultivariateNormalNLL(DistributionLoss):
    """Negative log-likelihood -log N(y; mu, Sigma), Sigma = diag(d^2) + V V', for `layers.HeteroscedasticNormal`.

        nll       ((y - mu)' Sigma^-1 (y - mu) + log det Sigma + K log(2 pi)) / 2
        beta      stop(det(Sigma)^(beta / K)) nll                          (Seitzer et al. 2022, for K = 1)
        faithful  |y - mu|^2 / 2 + nll with stop(mu)                       (Stirn et al. 2023, here for any Sigma)

    In "nll", an example with a large variance gives the mean little gradient, so an example that is hard to predict at
    the start can stay hard. "beta" restores part of the gradient. With beta = 1, the mean has the gradient of the
    squared error, if the targets are independent with equal variances. The paper has one target. Here one weight serves
    all targets, a power of the geometric mean of the variances along the axes of Sigma.

    "faithful" gives the mean exactly the gradient of the squared error if the head has `stop_features=True`. Without
    it, d and V also change the layers before the head. Do not compare the values of the three forms. Do not stop
    training by the value of "beta": a variance that is too small lowers it.

    Alternatively, `models.heteroscedastic_regression` first trains the mean by the squared error.

    The loss costs O(K R^2) for each example, without a K by K matrix.

    Args:
        form: "nll", "beta" or "faithful".
        beta: power in "beta", at least 0; 0 is "nll".
        kwargs: arguments of any Keras loss.
    Input shape: targets `(..., K)`, or `(...)` for one target. A nan target makes the loss nan: drop these examples.
        Predictions `(..., K (2 + R) + 1)`.
    Raises:
        ValueError: for arguments outside these ranges, or predictions that are no distribution of K targets.
    Source: Seitzer, Tavakoli, Antic and Martius, ICLR 2022; Stirn, Wessels, Schertzer, Pereira, Sanjana and Knowles,
        AISTATS 2023; Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Eq. 4, for one target.

    Example:
        >>> outputs = ops.array([[1.0, 2.0, -1.0]])  # mu = 1 and d = 2 of one target, at inference
        >>> round(float(MultivariateNormalNLL()(ops.array([[3.0]]), outputs)), 4)  # (1 + log 4 + log(2 pi)) / 2
        2.1121
    """

    def __init__(self, form: str = "nll", beta: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.form = check_choice("form", form, REGRESSION_FORMS)
        self.beta = check_number("beta", beta, low=0.0)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        y_true, output = self.read(y_true, y_pred)
        normal, units = output.normal, output.normal.size[0]
        if self.form == "faithful":
            squared_error = 0.5 * ops.sum(ops.square(y_true - normal.loc), axis=-1)
            constant_mean = normal.maker()(ops.stop_gradient(normal.loc), *normal.tensors[1:])
            return squared_error - constant_mean.log_prob(y_true)
        distance, log_det = normal.distance_and_log_det(y_true)
        losses = 0.5 * (distance + log_det + units * math.log(2.0 * math.pi))
        return losses * ops.stop_gradient(ops.exp(self.beta / units * log_det)) if self.form == "beta" else losses
