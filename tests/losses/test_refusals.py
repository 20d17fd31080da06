"""Every refusal of a loss names the argument, the rule and the value received."""

import keras
import numpy as np
import pytest

from keras_het.losses import (
    AnnotatorsLoss,
    ForwardCorrectedCrossentropy,
    GeneralizedCrossentropy,
    JointSegmentationCrossentropy,
    MultivariateNormalNLL,
    SmoothedCrossentropy,
    SymmetricCrossentropy,
)
from keras_het.losses.crossentropy import Crossentropy
from keras_het.metrics import AnnotatorsMetric
from tests.checks import refusals, refused_arguments
from tests.common import sparse_crossentropy
from tests.losses import test_annotators_loss as annotators
from tests.losses.cases import LABELS, LOGITS, VECTORS

pytestmark = pytest.mark.refusal

WEIGHT = "be a finite float32 number at least 0"
SYMMETRIC = {"alpha": [(WEIGHT, -1.0)], "beta": [(WEIGHT, -1.0)], "log_of_zero": [("be less than 0", 0.0)]}
SMOOTHED = {"label_smoothing": [("be less than 1", 1.0), ("be a finite float32 number greater than -inf", np.inf)]}
GENERALIZED = {"q": [("be a finite float32 number greater than 0", 0.0), ("be in (0, 1]", 1.5)]}


def forward(transition):
    return lambda: ForwardCorrectedCrossentropy(transition)(LABELS, LOGITS)


def normal(y_true, y_pred):
    return lambda: MultivariateNormalNLL()(np.zeros(y_true, "float32"), np.ones(y_pred, "float32"))


REFUSED = {
    **refused_arguments(SymmetricCrossentropy, SYMMETRIC),
    **refused_arguments(SmoothedCrossentropy, SMOOTHED),
    **refused_arguments(GeneralizedCrossentropy, GENERALIZED),
    **refused_arguments(MultivariateNormalNLL, {"form": [("be one of 'nll', 'beta', 'faithful'", "mse")]}),
    **refused_arguments(MultivariateNormalNLL, {"beta": [("be a finite", -1.0)]}, form="beta"),
    **refused_arguments(SmoothedCrossentropy, {"from_logits": [("be True or False", "yes")]}),
    **refused_arguments(SmoothedCrossentropy, {"ignore_class": [("be an integer in [-16777216, 16777216]", 1.5)]}),
    "`ignore_class` must be None for label vectors. Received: ignore_class=1":
        lambda: SmoothedCrossentropy(ignore_class=1)(VECTORS, VECTORS),
    "`transition` must be a square matrix. Received: shape (2, 3)": forward(np.ones((2, 3))),
    "Received: row 1 sums to 0.9": forward([[1, 0], [0.5, 0.4]]),
    "`transition` must have shape (4, 4). Received: shape (3, 3)": forward(np.eye(3)),
    "`loss` must be a loss of Keras or of this package with ignore_class=-1": lambda: AnnotatorsLoss("mse"),
    "with ignore_class=-1. Received: loss=<": lambda: AnnotatorsLoss(sparse_crossentropy(from_logits=False)),
    "`metric` must be a metric object, such as keras.metrics.SparseCategoricalAccuracy(). Received: metric=":
        lambda: (AnnotatorsMetric("accuracy")),
    "`y_true` must have shape (N, 3), a label of each annotator, or -1. Received: shape (9, 2)":
        lambda: (AnnotatorsLoss()(annotators.LABELS[:, :2], annotators.LOGITS)),
    "`y_pred` must have no Keras mask: give masked pixels the label":
        lambda: (JointSegmentationCrossentropy(3)(np.zeros((1, 2), int), keras.layers.Masking()(np.zeros((1, 2, 7))))),
    "Crossentropy must define crossentropy(targets, log_probs)": lambda: Crossentropy()(LABELS, LOGITS),
    "`y_true` must have shape": normal((2, 3), (2, 8)),
    "numbers, R <= K. Received: shape": normal((2, 1), (2, 7)),
    "R <= K. Received: shape (2,), with `y_pred` of": normal(2, (2, 7)),
    "R <= K. Received: shape (2, 3)": normal((2, 3), (3, 7)),
}  # fmt: skip


test_refusals = refusals(REFUSED, errors=(ValueError, TypeError, NotImplementedError))
