"""Covariances: layers inside a head that compute the noise of its logits."""

from keras_het.covariances.covariance import Covariance, Diagonal
from keras_het.covariances.latent import Latent
from keras_het.covariances.low_rank import LowRank
from keras_het.covariances.narrow import Narrow
from keras_het.covariances.parameter_efficient import ParameterEfficient

__all__ = ["Covariance", "Diagonal", "Latent", "LowRank", "Narrow", "ParameterEfficient"]
