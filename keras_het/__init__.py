"""Classification under noisy labels in Keras 3: heteroscedastic heads for JAX, TensorFlow and PyTorch."""

from keras_het import integrators, layers, models, ops
from keras_het.models import heteroscedastic, homoscedastic

__all__ = ["heteroscedastic", "homoscedastic", "integrators", "layers", "models", "ops"]
__version__ = "0.1.0"
