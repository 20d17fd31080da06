"""Does a model give the same numbers on JAX, TensorFlow and PyTorch? Record it on each backend, then compare."""

from keras_het.parity.comparison import Comparison
from keras_het.parity.judge import compare
from keras_het.parity.processes import assert_parity
from keras_het.parity.recording import Recording
from keras_het.parity.run import record

__all__ = ["Comparison", "Recording", "assert_parity", "compare", "record"]
