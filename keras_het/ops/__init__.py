"""Pure functions of tensors, written against `keras.ops`; noise is always an argument."""

from keras_het.ops.low_rank import low_rank_normal
from keras_het.ops.nodes import Nodes, pseudo_random, quasi_random
from keras_het.ops.sigmoid import log_expected_sigmoid
from keras_het.ops.softmax import log_expected_softmax, second_order_log_softmax

__all__ = [
    "Nodes",
    "log_expected_sigmoid",
    "log_expected_softmax",
    "low_rank_normal",
    "pseudo_random",
    "quasi_random",
    "second_order_log_softmax",
]
