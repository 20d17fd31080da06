"""Integrators: the ways in which a head averages its link over the Gaussian logits.

They are small serialisable objects, like those of `keras.initializers`.
"""

from keras_het.integrators.closed_form import ClosedForm
from keras_het.integrators.integrator import Integrator
from keras_het.integrators.lookup import get
from keras_het.integrators.own_noise import OwnNoise
from keras_het.integrators.quadrature import Quadrature
from keras_het.integrators.sampled import MonteCarlo, QuasiMonteCarlo, Sampler
from keras_het.integrators.taylor import Taylor

__all__ = [
    "ClosedForm",
    "Integrator",
    "MonteCarlo",
    "OwnNoise",
    "Quadrature",
    "QuasiMonteCarlo",
    "Sampler",
    "Taylor",
    "get",
]
