"""Losses for noisy labels.

The labels are integers, `(...)` or `(..., 1)`, or label vectors, `(..., K)`. The predictions are probabilities or
logits, `(..., K)`. Pass `from_logits=True` for logits: otherwise they are read as probabilities, and the loss hardly
changes in training.

A label equal to `ignore_class` counts neither in the loss nor in the mean. Any other label outside [0, K) makes the
loss nan, on every backend. A logit of -inf excludes a class: the formulas then cover the possible classes. A
crossentropy is infinite for an excluded label.
"""

from keras_het.losses.annotators_loss import AnnotatorsLoss
from keras_het.losses.distribution_loss import MultivariateNormalNLL
from keras_het.losses.joint import JointMultiLabelCrossentropy, JointSegmentationCrossentropy
from keras_het.losses.robust import (
    ForwardCorrectedCrossentropy,
    GeneralizedCrossentropy,
    SmoothedCrossentropy,
    SymmetricCrossentropy,
)

__all__ = [
    "AnnotatorsLoss",
    "ForwardCorrectedCrossentropy",
    "GeneralizedCrossentropy",
    "JointMultiLabelCrossentropy",
    "JointSegmentationCrossentropy",
    "MultivariateNormalNLL",
    "SmoothedCrossentropy",
    "SymmetricCrossentropy",
]
