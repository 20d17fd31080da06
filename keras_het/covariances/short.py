"""The short spelling of a covariance, with the paper's words: arguments of the head instead of an object."""

import numbers
from typing import Any

from keras_het.covariances.covariance import Covariance
from keras_het.covariances.diagonal import Diagonal
from keras_het.covariances.low_rank import LowRank
from keras_het.covariances.parameter_efficient import ParameterEfficient


def from_short(num_factors: int | None = None, parameter_efficient: bool = False, **arguments: Any) -> Covariance:
    """The covariance of a head's arguments: `Diagonal`, `LowRank` or `ParameterEfficient`.

    Args:
        num_factors: R; 0 is a diagonal covariance.
        parameter_efficient: whether all inputs share V.
        arguments: all others of a covariance.
    Raises:
        ValueError: for a shared V without factors.
    """
    is_zero = isinstance(num_factors, numbers.Integral) and not isinstance(num_factors, bool) and num_factors == 0
    if not is_zero:
        kind = ParameterEfficient if parameter_efficient else LowRank
        return kind(num_factors, **arguments)
    if parameter_efficient:
        raise ValueError(
            "`parameter_efficient` must be False without factors. Received: parameter_efficient=True, num_factors=0"
        )
    return Diagonal(**arguments)
