"""Generalised, smoothed and forward-corrected crossentropy: their limits, and what Keras has of them."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy import special

from keras_het.labels import symmetric
from keras_het.layers import NoiseTransition
from keras_het.losses import ForwardCorrectedCrossentropy, GeneralizedCrossentropy, SmoothedCrossentropy
from tests.common import number, sparse_crossentropy, to_numpy
from tests.gradients import value_and_gradients
from tests.losses.cases import EXAMPLES, LABELS, LOGITS, UNITS, VECTORS, T

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


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_smoothing_agrees_with_keras(smoothing):
    theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    ours = SmoothedCrossentropy(smoothing, from_logits=True)
    assert float(ours(VECTORS, LOGITS)) == pytest.approx(float(theirs(VECTORS, LOGITS)), rel=1e-6)
    assert float(ours(LABELS, LOGITS)) == pytest.approx(float(theirs(np.eye(UNITS)[LABELS], LOGITS)), rel=1e-6)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_a_negative_smoothing_is_the_backward_correction_of_symmetric_flips(share):
    smoothing = 1.0 - 1.0 / (1.0 - share * UNITS / (UNITS - 1))
    assert smoothing < 0
    inverse = np.linalg.inv(symmetric(UNITS, share))
    corrected = -(inverse[LABELS] * special.log_softmax(LOGITS.astype("float64"), axis=-1)).sum(-1)
    ours = SmoothedCrossentropy(smoothing, from_logits=True, reduction="none")(LABELS, LOGITS)
    assert_allclose(to_numpy(ours), corrected, rtol=2e-6, atol=2e-6)


def test_a_negative_smoothing_has_no_lower_bound_but_a_bounded_gradient():
    loss = SmoothedCrossentropy(-0.5, from_logits=True)
    sure = [np.array([[scale, 0.0, 0.0]], "float32") for scale in (10.0, 1e2, 1e4)]
    values, gradients = zip(
        *(value_and_gradients(lambda tensors: loss([0], tensors[0]), [logits]) for logits in sure), strict=True
    )
    assert values[0] > values[1] > values[2]
    assert_allclose(values[2], -1e4 / 3, rtol=1e-5)  # s / K for each of the two other classes
    assert all(np.abs(gradient).sum() <= 2 * 1.5 for (gradient,) in gradients)


def test_a_correction_by_the_identity_is_the_plain_crossentropy():
    plain = special.logsumexp(LOGITS, axis=-1) - LOGITS[np.arange(EXAMPLES), LABELS]
    assert number(ForwardCorrectedCrossentropy(np.eye(UNITS), from_logits=True)(LABELS, LOGITS)) == pytest.approx(
        plain.mean(), rel=1e-5
    )


def test_the_forward_correction_is_the_layer_with_a_fixed_t():
    layer = NoiseTransition(UNITS, transition=T, trainable=False)
    noisy = layer(ops.log_softmax(LOGITS), training=True)
    theirs = sparse_crossentropy()(LABELS, noisy)
    assert number(ForwardCorrectedCrossentropy(T, from_logits=True)(LABELS, LOGITS)) == pytest.approx(
        number(theirs), rel=1e-5
    )
