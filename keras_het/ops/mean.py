"""Means over nodes: the function that an expectation averages, and the gradient of its result for a node's logits."""

import abc
import math
from collections.abc import Callable

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.log_space import log_ndtr

# Above the log of any a'(u) / P, because a / P is at most S = 2^20, and a' / a grows with |u|. Without the bound, the
# rounding error of a log of -5e9 would make exp infinite.
MAX_LOG_RATIO = 40.0


class Mean(abc.ABC):
    """Base class of means over nodes.

    Logits are `(B, K, C)`, nodes last, or `(..., C, K)` for `log_terms` with `axis=-1`. Results are `(B, K)`.

    Attributes:
        num_terms: number of averaged values for each logit.
    """

    num_terms = 1

    @abc.abstractmethod
    def terms(self, logits: Tensor) -> tuple[Tensor, ...]:
        """Returns the values to average, each in the shape of the logits."""

    @abc.abstractmethod
    def log_terms(self, logits: Tensor, axis: int) -> tuple[Tensor, ...]:
        """Returns the logarithms of the terms; the classes are on `axis`."""

    def result(self, log_means: list[Tensor]) -> Tensor:
        """Returns the result from the logs of the averages, `(B, K)` each; by default the first."""
        return log_means[0]

    def pivot(self, value: Tensor) -> Tensor:
        """Returns the number to subtract from the mean logits before `cotangent`, `(B, K)`; by default 0."""
        return ops.zeros_like(value)

    @abc.abstractmethod
    def cotangent(self, logits: Tensor, value: Tensor, upstream: Tensor) -> Tensor:
        """Returns S times the gradient of the logits of every node.

        Args:
            logits: logits of every node, minus `pivot(value)`.
            value: result, `(B, K)`.
            upstream: gradient of the result, `(B, K)`.
        """


class LogMean(Mean):
    """Log of a mean, log P_k = log mean_s a(u_sk), for a function a with values in (0, 1).

        d log P_k / d u_sk = a'(u_sk) / (P_k S)

    Args:
        log_value: log a.
        log_slope: log a'.
    """

    def __init__(self, log_value: Callable[[Tensor], Tensor], log_slope: Callable[[Tensor], Tensor]) -> None:
        self.log_value, self.log_slope = log_value, log_slope

    def terms(self, logits: Tensor) -> tuple[Tensor, ...]:
        """Returns a(u)."""
        return (ops.exp(self.log_value(logits)),)

    def log_terms(self, logits: Tensor, axis: int) -> tuple[Tensor, ...]:
        """Returns log a(u)."""
        return (self.log_value(logits),)

    def cotangent(self, logits: Tensor, value: Tensor, upstream: Tensor) -> Tensor:
        return upstream[..., None] * ops.exp(ops.minimum(self.log_slope(logits) - value[..., None], MAX_LOG_RATIO))


def log_normal_density(logits: Tensor) -> Tensor:
    """Returns the log of the standard normal density."""
    return -0.5 * ops.square(logits) - 0.5 * math.log(2.0 * math.pi)


LOG_NORMAL_CDF_MEAN = LogMean(log_ndtr, log_normal_density)
