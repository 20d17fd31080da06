"""Classification under noisy labels in Keras 3: heteroscedastic heads for JAX, TensorFlow and PyTorch."""

from keras_het import integrators, layers, ops

__all__ = ["integrators", "layers", "ops"]
__version__ = "0.1.0"
