"""Smoothed labels: Keras' own for a positive number, the backward correction for a negative one."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from keras_het.labels import symmetric
from keras_het.losses import SmoothedCrossentropy
from tests.common import to_numpy
from tests.gradients import value_and_gradients
from tests.losses.cases import LABELS, LOGITS, UNITS, VECTORS


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_it_agrees_with_keras(smoothing):
    theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    ours = SmoothedCrossentropy(smoothing, from_logits=True)
    assert float(ours(VECTORS, LOGITS)) == pytest.approx(float(theirs(VECTORS, LOGITS)), rel=1e-6)
    assert float(ours(LABELS, LOGITS)) == pytest.approx(float(theirs(np.eye(UNITS)[LABELS], LOGITS)), rel=1e-6)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_a_negative_number_is_the_backward_correction_of_symmetric_flips(share):
    smoothing = 1.0 - 1.0 / (1.0 - share * UNITS / (UNITS - 1))
    assert smoothing < 0
    inverse = np.linalg.inv(symmetric(UNITS, share))
    corrected = -(inverse[LABELS] * special.log_softmax(LOGITS.astype("float64"), axis=-1)).sum(-1)
    ours = SmoothedCrossentropy(smoothing, from_logits=True, reduction="none")(LABELS, LOGITS)
    assert_allclose(to_numpy(ours), corrected, rtol=2e-6, atol=2e-6)


def test_a_negative_number_has_no_lower_bound_but_a_bounded_gradient():
    loss = SmoothedCrossentropy(-0.5, from_logits=True)
    sure = [np.array([[scale, 0.0, 0.0]], "float32") for scale in (10.0, 1e2, 1e4)]
    values, gradients = zip(
        *(value_and_gradients(lambda tensors: loss([0], tensors[0]), [logits]) for logits in sure), strict=True
    )
    assert values[0] > values[1] > values[2]
    assert_allclose(values[2], -1e4 / 3, rtol=1e-5)  # s / K for each of the two other classes
    assert all(np.abs(gradient).sum() <= 2 * 1.5 for (gradient,) in gradients)
