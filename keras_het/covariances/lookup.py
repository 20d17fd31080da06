"""From what is given as an argument to a covariance."""

from typing import Any

from keras_het.choices import find_choice
from keras_het.covariances.covariance import Covariance
from keras_het.covariances.diagonal import Diagonal
from keras_het.covariances.latent import Latent
from keras_het.covariances.low_rank import LowRank
from keras_het.covariances.parameter_efficient import ParameterEfficient


def get(identifier: Any) -> Covariance:
    """A covariance from an instance, a name ("diagonal", "low_rank", "parameter_efficient", "latent"), or a serialised
    dict.

    Raises:
        ValueError: if it is none of these.

    Example:
        >>> get("low_rank").num_factors is None
        True
    """
    return find_choice("covariance", identifier, Covariance, (Diagonal, LowRank, ParameterEfficient, Latent))
