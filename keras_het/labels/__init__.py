"""Label errors: a method for noisy labels, a model without wrong labels, and the methods themselves."""

from keras_het.labels import methods
from keras_het.labels.choose import choose
from keras_het.labels.clean import clean
from keras_het.labels.methods import METHODS, Method

__all__ = ["METHODS", "Method", "choose", "clean", "methods"]
