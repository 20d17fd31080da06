"""Losses for noisy labels, for models that have no layer for the noise.

They take integer labels of shape `(...)` or `(..., 1)`, or label vectors `(..., K)`, and probabilities or logits
`(..., K)`. Labels with the value `ignore_class` are left out of the loss and of the mean. Any other label outside [0,
K) makes the loss nan, on every backend. A logit of -inf says that a class is impossible: the losses are what their
formulas give over the possible classes; a crossentropy is infinite for a label that is impossible. Logits need
`from_logits=True`: without it they are taken for probabilities, and the loss hardly changes in training.
"""

from keras_het.losses.annotators_loss import AnnotatorsLoss
from keras_het.losses.distribution_loss import MultivariateNormalNLL
from keras_het.losses.joint import JointMultiLabelCrossentropy, JointSegmentationCrossentropy
from keras_het.losses.robust import (
    ForwardCorrectedCrossentropy,
    GeneralizedCrossentropy,
    LogRatioSquaredError,
    SmoothedCrossentropy,
    SymmetricCrossentropy,
)

__all__ = [
    "AnnotatorsLoss",
    "ForwardCorrectedCrossentropy",
    "GeneralizedCrossentropy",
    "JointMultiLabelCrossentropy",
    "JointSegmentationCrossentropy",
    "LogRatioSquaredError",
    "MultivariateNormalNLL",
    "SmoothedCrossentropy",
    "SymmetricCrossentropy",
]
