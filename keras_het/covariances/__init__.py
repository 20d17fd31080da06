"""Covariances: the noise of the logits, as layers that a head owns."""

from typing import Any

from keras_het.base.serializable import resolve
from keras_het.covariances.covariance import Covariance, Diagonal
from keras_het.covariances.latent import Latent
from keras_het.covariances.low_rank import LowRank
from keras_het.covariances.narrow import Narrow
from keras_het.covariances.parameter_efficient import ParameterEfficient

__all__ = ["Covariance", "Diagonal", "Latent", "LowRank", "Narrow", "ParameterEfficient", "get"]


def get(identifier: Any) -> Covariance:
    """Returns the covariance of an instance or a serialised dict.

    Args:
        identifier: a `Covariance`, or a serialised dict.
    Raises:
        ValueError: for any other value.

    Example:
        >>> get(LowRank(3)).num_factors
        3
    """
    return resolve("covariance", identifier, Covariance, ())
