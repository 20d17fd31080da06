"""Links: the maps from the Gaussian of the logits to what a head returns.

They are small serialisable objects, like those of `keras.initializers`.
"""

from keras_het.links.link import Link
from keras_het.links.lookup import get
from keras_het.links.normalized import NormalCDF, NormalizedSigmoid
from keras_het.links.sigmoid import Sigmoid
from keras_het.links.softmax import Softmax

__all__ = ["Link", "NormalCDF", "NormalizedSigmoid", "Sigmoid", "Softmax", "get"]
