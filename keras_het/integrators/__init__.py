"""Integrators: the ways in which a head averages its link over the Gaussian logits.

They are small serialisable objects, like the initializers of `keras.initializers`.
"""

from typing import Any

from keras_het.base.choices import find_choice
from keras_het.integrators.integrator import Integrator
from keras_het.integrators.sampled import MonteCarlo, QuasiMonteCarlo
from keras_het.integrators.without_nodes import ClosedForm, Taylor

__all__ = [
    "ClosedForm",
    "Integrator",
    "MonteCarlo",
    "QuasiMonteCarlo",
    "Taylor",
    "get",
]


def get(identifier: Any) -> Integrator:
    """The integrator of an instance, a name or a serialised dict.

    Args:
        identifier: an `Integrator`, the name of one of this package ("QuasiMonteCarlo" or "quasi_monte_carlo"), or a
            serialised dict.
    Returns:
        the integrator; an instance as it is.
    Raises:
        ValueError: if it is none of these.

    Example:
        >>> get("monte_carlo")
        MonteCarlo(num_samples=1000, inference_samples=None, chunk_size='auto', antithetic=False)
    """
    return find_choice("integrator", identifier, Integrator, (MonteCarlo, QuasiMonteCarlo, ClosedForm, Taylor))
