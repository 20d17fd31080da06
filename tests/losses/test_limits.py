"""Losses for noisy labels at their limits, and against the losses of Keras."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from keras_het.labels import symmetric
from keras_het.losses import GeneralizedCrossentropy, SmoothedCrossentropy
from tests.common import number, session, sparse_crossentropy, to_numpy
from tests.gradients import value_and_gradients
from tests.losses.cases import EXAMPLES, LABELS, LOGITS, UNITS, WEIGHTS

PROBABILITIES = special.softmax(LOGITS.astype("float64"), axis=-1)
OF_LABEL = PROBABILITIES[np.arange(EXAMPLES), LABELS]


def each(q):
    return to_numpy(GeneralizedCrossentropy(q, from_logits=True, reduction="none")(LABELS, LOGITS))


def test_a_vanishing_q_is_crossentropy_and_a_q_of_one_half_the_absolute_error():
    for q in (1e-8, 1e-30):
        assert_allclose(each(q), -np.log(OF_LABEL), rtol=1e-6)
    assert_allclose(each(1.0), np.abs(np.eye(UNITS)[LABELS] - PROBABILITIES).sum(-1) / 2, rtol=1e-6)


def test_the_gradient_is_finite_at_zero_where_that_of_keras_is_not():
    labels, p = np.array([0]), np.array([[0.0, 0.75, 0.25]], "float32")
    for kind in (GeneralizedCrossentropy, keras.losses.CategoricalGeneralizedCrossEntropy):
        _, (gradient,) = value_and_gradients(lambda tensors, kind=kind: kind(0.7)(labels, tensors[0]), [p])
        assert np.isfinite(gradient).all() == (kind is GeneralizedCrossentropy)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_a_negative_smoothing_is_the_backward_correction_of_symmetric_flips(share):
    smoothing = 1.0 - 1.0 / (1.0 - share * UNITS / (UNITS - 1))
    assert smoothing < 0
    inverse = np.linalg.inv(symmetric(UNITS, share))
    corrected = -(inverse[LABELS] * special.log_softmax(LOGITS.astype("float64"), axis=-1)).sum(-1)
    ours = SmoothedCrossentropy(smoothing, from_logits=True, reduction="none")(LABELS, LOGITS)
    assert_allclose(to_numpy(ours), corrected, rtol=2e-6, atol=2e-6)
    loss = SmoothedCrossentropy(-0.5, from_logits=True)  # without a lower bound, but with a bounded gradient
    sure = [np.array([[scale, 0.0, 0.0]], "float32") for scale in (10.0, 1e2, 1e4)]
    results = [value_and_gradients(lambda tensors: loss([0], tensors[0]), [logits]) for logits in sure]
    assert results[0][0] > results[1][0] > results[2][0]
    assert_allclose(results[2][0], -1e4 / 3, rtol=1e-5)  # s / K for each of the two other classes
    assert all(np.abs(gradient).sum() <= 2 * 1.5 for _, (gradient,) in results)


def test_ignoring_agrees_with_keras():
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, -1, LABELS)
    for reduction in ("sum_over_batch_size", "sum", "mean_with_sample_weight"):
        ours = SmoothedCrossentropy(0.0, from_logits=True, ignore_class=-1, reduction=reduction)
        theirs = sparse_crossentropy(ignore_class=-1, reduction=reduction)
        for weights in (None, WEIGHTS, WEIGHTS[:, None]):
            values = [number(loss(labels, LOGITS, weights)) for loss in (ours, theirs)]
            assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize(("dtype", "units"), [("bfloat16", 1000), ("float16", 3000)])
@pytest.mark.parametrize("way", ["dtype", "floatx"])
def test_labels_stay_integers_in_half_precision(dtype, units, way):
    """bfloat16 has no integers between 256 and 258, float16 none between 2048 and 2050."""
    label = units - 699  # 301 and 2301: neither is a number of its dtype
    logits = 40.0 * np.eye(units, dtype="float32")[[label]]
    with session(dtype if way == "floatx" else None):
        for ignored in (None, label - 1, label + 1):
            own = dtype if way == "dtype" else None
            loss = SmoothedCrossentropy(0.0, from_logits=True, ignore_class=ignored, dtype=own)
            for y in ([label], [[label]]):
                value = loss(np.array(y), logits)
                assert number(ops.cast(value, "float32")) < 1e-3
                assert keras.backend.standardize_dtype(value.dtype) == dtype
        assert np.isnan(number(ops.cast(loss(np.array([units]), logits), "float32")))


@pytest.mark.once
def test_a_symbolic_loss_ignores_too():
    """In a functional graph, where a layer keeps every call; twice, so that one graph does not see the other's."""
    for _ in range(2):
        y, logits = keras.Input((), dtype="int32"), keras.Input((UNITS,))
        outputs = SmoothedCrossentropy(0.0, from_logits=True, ignore_class=2, reduction="none")(y, logits)
        each = keras.Model([y, logits], outputs)([LABELS, LOGITS])
        assert_array_equal(to_numpy(each)[LABELS == 2], 0.0)
        assert np.all(to_numpy(each)[LABELS != 2] > 0)
