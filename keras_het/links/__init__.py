"""Links: the maps from the Gaussian of the logits to the outputs of a head.

They are small serialisable objects, like the initializers of `keras.initializers`.
"""

from typing import Any

from keras_het.base.choices import find_choice
from keras_het.links.link import Link
from keras_het.links.normalized import NormalCDF, NormalizedSigmoid
from keras_het.links.softmax import Sigmoid, Softmax

__all__ = ["Link", "NormalCDF", "NormalizedSigmoid", "Sigmoid", "Softmax", "get"]


def get(identifier: Any) -> Link:
    """The link of an instance, a name or a serialised dict.

    Args:
        identifier: a `Link`, the name of one of this package ("softmax" or "Softmax"), or a serialised dict.
    Returns:
        the link; an instance as it is.
    Raises:
        ValueError: if it is none of these.

    Example:
        >>> get("softmax")
        Softmax()
    """
    return find_choice("link", identifier, Link, (Softmax, Sigmoid, NormalizedSigmoid, NormalCDF))
