"""Pure functions of tensors, written against `keras.ops`; noise is always an argument."""

from keras_het.ops.diagonal import DiagonalNormal
from keras_het.ops.latent import LatentNormal
from keras_het.ops.log_space import log1mexp, log_mean_exp, log_ndtr
from keras_het.ops.low_rank import LowRankNormal, ScaledLowRankNormal, low_rank_normal
from keras_het.ops.nodes import Nodes, antithetic, pseudo_random, quasi_random
from keras_het.ops.sigmoid import expected_sigmoid_logit, log_expected_sigmoid, sampled_expected_sigmoid_logit
from keras_het.ops.softmax import log_expected_softmax, second_order_log_softmax
from keras_het.ops.transition import apply_transition, project_to_simplex

__all__ = [
    "DiagonalNormal",
    "LatentNormal",
    "LowRankNormal",
    "Nodes",
    "ScaledLowRankNormal",
    "antithetic",
    "apply_transition",
    "expected_sigmoid_logit",
    "log1mexp",
    "log_expected_sigmoid",
    "log_expected_softmax",
    "log_mean_exp",
    "log_ndtr",
    "low_rank_normal",
    "project_to_simplex",
    "pseudo_random",
    "quasi_random",
    "sampled_expected_sigmoid_logit",
    "second_order_log_softmax",
]
