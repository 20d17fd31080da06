"""A head that predicts classes by a regression on their log-ratios."""

from typing import Any

import keras
from keras import ops

from benchmarks.baselines.log_ratios import logits_of
from benchmarks.baselines.unit_diagonal import UnitDiagonal
from keras_het import links
from keras_het.base.precision import FullPrecision, check_dtype
from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, check_integer
from keras_het.layers import HeteroscedasticNormal


@keras.saving.register_keras_serializable("benchmarks")
class LogisticNormal(FullPrecision):
    """The head of `ShiftedGaussianNLL` (SGN), and as little use: K classes whose log-ratios are Gaussian.

        ilr(p) ~ N(mu(x), I + V(x) V(x)') in K - 1 dimensions,     prediction: ilr^-1(mu) = softmax(H mu)

    ilr are the isometric log-ratios, H' log p with a K x (K - 1) matrix H of orthonormal columns that are orthogonal to
    the vector of ones. mu is an affine map of the input, and V another one, reshaped to `(K - 1, R)`. The prediction
    needs no sampling: it is the median of the probabilities in these coordinates, not their mean.

    The output is one tensor, `(..., (K - 1) (2 + R) + 1)`, for `ShiftedGaussianNLL`. A `models.DistributionModel` that
    ends in this head trains on it and predicts probabilities, so that the metrics of Keras see these.

    The variances of `HeteroscedasticNormal` are learned, here they are 1: the log-ratios of labels take only K values,
    so a learned variance can shrink to nothing around a label that the network knows by heart.

    Args:
        units: K, the number of classes, from 2.
        num_factors: R, from 0 (the identity, which is the squared error) to K - 1; the paper's covariance has 1.
        seed: of the initial weights of V, in [0, 2^31). None draws one from Python's `random`.
        dtype: "float32", whatever the global policy, or "float64" on a backend that computes in it.
        kwargs: as for any Keras layer.
    Input shape: `(..., D)`, with at least one leading axis.
    Output shape: `(..., (K - 1) (2 + R) + 1)`.
    Raises:
        ValueError: for arguments outside these ranges.
    Source: Englesson and Azizpour, ICLR 2024.

    Example:
        >>> import numpy as np
        >>> head = LogisticNormal(10)
        >>> outputs = head(np.zeros((2, 8)))
        >>> tuple(outputs.shape), tuple(head.predictions(outputs).shape)
        ((2, 28), (2, 10))
    """

    def __init__(
        self, units: int, num_factors: int = 1, *, seed: int | None = None, dtype: Any = "float32", **kwargs: Any
    ) -> None:
        super().__init__(dtype=check_dtype(dtype), **kwargs)
        self.units = check_integer("units", units, 2, MAX_CLASSES)
        self.supports_masking = True
        self.normal = HeteroscedasticNormal(
            self.units - 1,
            covariance=UnitDiagonal(num_factors),
            seed=seed,
            trainable=self.trainable,
            dtype=self.dtype_policy,
            name="normal",
        )

    @property
    def link(self) -> links.Link:
        """The link of its predictions: the softmax."""
        return links.get("softmax")

    @property
    def num_factors(self) -> int:
        """R, the number of factors of the covariance."""
        return self.normal.num_factors

    def build(self, input_shape: Any) -> None:
        self.normal.build(input_shape)

    def call(self, inputs: Tensor) -> Any:
        return self.normal(inputs)

    def predictions(self, outputs: Tensor) -> Any:
        """The probabilities softmax(H mu), `(..., K)`, of outputs of this head.

        Args:
            outputs: `(..., (K - 1) (2 + R) + 1)`.
        """
        return ops.softmax(logits_of(self.normal.predictions(outputs)), axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return self.normal.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "num_factors": self.num_factors,
            "seed": self.normal.seed,
        }
