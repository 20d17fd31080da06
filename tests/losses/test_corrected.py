"""Losses that are given T."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from keras_het import label_noise
from keras_het.layers import NoiseTransition
from keras_het.losses import BackwardCorrectedCrossentropy, ForwardCorrectedCrossentropy
from tests.losses.cases import EXAMPLES, LABELS, LOGITS, UNITS, T


def number(tensor):
    return float(ops.convert_to_numpy(tensor))


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_the_identity_is_the_plain_crossentropy(kind):
    plain = special.logsumexp(LOGITS, axis=-1) - LOGITS[np.arange(EXAMPLES), LABELS]
    loss = {"forward": ForwardCorrectedCrossentropy, "backward": BackwardCorrectedCrossentropy}[kind]
    assert number(loss(np.eye(UNITS), from_logits=True)(LABELS, LOGITS)) == pytest.approx(plain.mean(), rel=1e-5)


def test_the_forward_correction_is_the_layer_with_a_fixed_t():
    layer = NoiseTransition(UNITS, transition=T, trainable=False)
    noisy = layer(ops.log_softmax(LOGITS), training=True)
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(LABELS, noisy)
    assert number(ForwardCorrectedCrossentropy(T, from_logits=True)(LABELS, LOGITS)) == pytest.approx(
        number(theirs), rel=1e-5
    )


@pytest.mark.planted
def test_the_backward_correction_is_unbiased_and_its_transpose_would_not_be():
    clean = special.logsumexp(LOGITS, axis=-1)[:, None] - LOGITS

    def mean_over_noise(matrix):
        loss = BackwardCorrectedCrossentropy(matrix, from_logits=True, reduction="none")
        each = np.stack([ops.convert_to_numpy(loss(np.full(EXAMPLES, j), LOGITS)) for j in range(UNITS)], axis=-1)
        return each @ T.T

    np.testing.assert_allclose(mean_over_noise(T), clean, rtol=1e-4, atol=1e-5)
    assert np.abs(mean_over_noise(T.T / T.T.sum(axis=1, keepdims=True)) - clean).max() > 0.05


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ForwardCorrectedCrossentropy(np.ones((2, 3))),
            "`transition` must be a square matrix. Received: shape (2, 3)",
        ),
        (
            lambda: BackwardCorrectedCrossentropy([[1.1, -0.1], [0, 1]]),
            "must not be negative. Received: -0.1 at [0, 1]",
        ),
        (lambda: BackwardCorrectedCrossentropy([[1, 0], [0.5, 0.4]]), "Received: row 1 sums to 0.9"),
        (
            lambda: BackwardCorrectedCrossentropy([[0.5, 0.5]] * 2),
            "condition number of at most 100 to be inverted. Received: inf",
        ),
        (lambda: BackwardCorrectedCrossentropy(label_noise.pair_flip(4, 0.499)), "Received: 500"),
        (
            lambda: ForwardCorrectedCrossentropy(np.eye(3))(LABELS, LOGITS),
            "`transition` must have shape (4, 4). Received: shape (3, 3)",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)


def test_a_larger_condition_number_can_be_allowed():
    assert BackwardCorrectedCrossentropy(label_noise.pair_flip(4, 0.499), max_condition=1e3).max_condition == 1e3
