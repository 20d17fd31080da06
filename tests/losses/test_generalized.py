"""Generalised crossentropy: its limits, where its probability is zero, and what Keras has."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from keras_het.losses import GeneralizedCrossentropy
from tests.common import to_numpy
from tests.gradients import value_and_gradients
from tests.losses.cases import EXAMPLES, LABELS, LOGITS, UNITS, VECTORS

PROBABILITIES = special.softmax(LOGITS.astype("float64"), axis=-1)
OF_LABEL = PROBABILITIES[np.arange(EXAMPLES), LABELS]


def each(q, labels=LABELS, logits=LOGITS):
    return to_numpy(GeneralizedCrossentropy(q, from_logits=True, reduction="none")(labels, logits))


@pytest.mark.parametrize("q", [1e-8, 1e-30])
def test_a_vanishing_q_is_crossentropy(q):
    assert_allclose(each(q), -np.log(OF_LABEL), rtol=1e-6)


def test_q_of_one_is_half_the_absolute_error():
    assert_allclose(each(1.0), np.abs(np.eye(UNITS)[LABELS] - PROBABILITIES).sum(-1) / 2, rtol=1e-6)


def test_a_label_vector_is_the_mean_over_its_labels():
    of_classes = np.stack([each(0.7, np.full(EXAMPLES, k)) for k in range(UNITS)], axis=-1)
    assert_allclose(each(0.7, VECTORS), (VECTORS * of_classes).sum(-1), rtol=1e-6)


def test_it_agrees_with_keras_where_no_probability_is_zero():
    theirs = keras.losses.CategoricalGeneralizedCrossEntropy(0.6)(LABELS, PROBABILITIES)
    assert_allclose(each(0.6).mean(), float(theirs), rtol=1e-6)


def test_the_gradient_is_finite_at_zero_where_that_of_keras_is_not():
    labels, p = np.array([0]), np.array([[0.0, 0.75, 0.25]], "float32")
    for loss, finite in (
        (GeneralizedCrossentropy(0.7), True),
        (keras.losses.CategoricalGeneralizedCrossEntropy(0.7), False),
    ):
        _, (gradient,) = value_and_gradients(lambda tensors, loss=loss: loss(labels, tensors[0]), [p])
        assert np.isfinite(gradient).all() == finite
