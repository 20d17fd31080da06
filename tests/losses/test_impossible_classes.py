"""A logit of -inf makes a class impossible: losses follow their formulas over the possible classes."""

import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from keras_het.losses import AnnotatorsLoss
from tests.common import assert_finite, to_numpy
from tests.gradients import value_and_gradients
from tests.losses.cases import CASES, LOGITS, RNG, UNITS, VECTORS, T
from tests.marks import grid

POSSIBLE = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 0], [1, 0, 0, 1]])
POSSIBLE = POSSIBLE.astype(bool)
INFINITE = np.where(POSSIBLE, LOGITS, -np.inf).astype("float32")
LABELS = np.array([RNG.choice(np.flatnonzero(row)) for row in POSSIBLE])
SHARES = VECTORS * POSSIBLE / (VECTORS * POSSIBLE).sum(-1, keepdims=True)


def of_possible(name, targets):
    """Returns the oracle of a loss for each example, on its possible classes only; noisy labels are of all classes."""
    losses = []
    for t, logits, kept in zip(targets.astype("float64"), LOGITS, POSSIBLE, strict=True):
        log_p = special.log_softmax(logits[kept].astype("float64"))
        forward = -(t * np.log(np.exp(log_p) @ T[kept])).sum(-1)
        losses.append(forward if name == "forward" else CASES[name].oracle(t[kept], log_p))
    return losses


def gradient_of(loss, labels, logits):
    value, (gradient,) = value_and_gradients(lambda tensors: loss(labels, tensors[0]), [logits])
    assert_finite(value, [gradient])
    return gradient


every_loss = pytest.mark.parametrize("name", grid(CASES, span=["forward", "symmetric"]))


@every_loss
def test_values_over_the_possible_classes_and_finite_gradients(name):
    for labels, targets in ((LABELS, np.eye(UNITS)[LABELS]), (SHARES, SHARES)):
        loss = CASES[name].make(from_logits=True, reduction="none")
        assert_allclose(to_numpy(loss(labels, INFINITE)), of_possible(name, targets), rtol=2e-6, atol=1e-6)
        assert_array_equal(gradient_of(CASES[name].make(from_logits=True), labels, INFINITE)[~POSSIBLE], 0.0)
    certain = np.where(np.arange(UNITS) == LABELS[:, None], LOGITS, -np.inf).astype("float32")
    gradient_of(CASES[name].make(from_logits=True), LABELS, certain)


@pytest.mark.once
@pytest.mark.parametrize("name", ["symmetric", "smoothed"])
def test_a_label_that_is_impossible_has_an_infinite_loss(name):
    loss = CASES[name].make(from_logits=True, reduction="none")(POSSIBLE.argmin(-1)[1:], INFINITE[1:])
    assert_array_equal(to_numpy(loss), np.inf)
    if name == "smoothed":
        of_annotators = AnnotatorsLoss(CASES[name].make(from_logits=True, ignore_class=-1))
        value = of_annotators(LABELS[:, None], ops.convert_to_tensor(INFINITE))
        assert float(to_numpy(value)) == pytest.approx(np.mean(of_possible(name, np.eye(UNITS)[LABELS])), rel=1e-6)
