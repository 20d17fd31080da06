"""The log of the mean, over nodes, of a function of each logit.

The links with a closed form are checked against it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from keras_het.ops.log_space import log_ndtr


class LogMean(NamedTuple):
    """log P_k = log mean_s a(u_sk), for a function a with values in (0, 1).

        d log P_k / d u_sk = a'(u_sk) / (P_k S)

    Args:
        log_value: log a.
        log_slope: log a'.
        num_terms: how many values for each logit are averaged; here one, a(u).
    """

    log_value: Callable[[Any], Any]
    log_slope: Callable[[Any], Any]
    num_terms: int = 1

    def terms(self, logits):
        """a(u)."""
        return (ops.exp(self.log_value(logits)),)

    def log_terms(self, logits, axis):
        """log a(u)."""
        return (self.log_value(logits),)

    def result(self, log_means):
        """log P."""
        return log_means[0]

    def pivot(self, log_p):
        """Zeros: nothing is subtracted from the logits."""
        return ops.zeros_like(log_p)

    def sensitivity(self, logits, log_p, upstream):
        """Derivative by the logits of every node, times S."""
        return upstream[..., None] * ops.exp(self.log_slope(logits) - log_p[..., None])


def log_sigmoid_slope(logits):
    """log of the derivative of the sigmoid."""
    return ops.log_sigmoid(logits) + ops.log_sigmoid(-logits)


def log_normal_density(logits):
    """log of the derivative of the standard normal distribution function."""
    return -0.5 * ops.square(logits) - 0.5 * math.log(2.0 * math.pi)


LOG_SIGMOID_MEAN = LogMean(ops.log_sigmoid, log_sigmoid_slope)
LOG_NORMAL_CDF_MEAN = LogMean(log_ndtr, log_normal_density)
