"""Means over nodes: the function that an expectation averages, and the gradient of its result for a node's logits."""

import abc

from keras import ops

from keras_het.base.tensor import Tensor


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
        """Returns S times the gradient of the logits of every node, which are `logits` minus `pivot(value)`.

        `value` is the result, `(B, K)`, and `upstream` its gradient.
        """
