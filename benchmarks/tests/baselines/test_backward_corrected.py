"""The backward correction: unbiased, and refused for a T that can hardly be inverted."""

import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import BackwardCorrectedCrossentropy
from keras_het.labels import pair_flip
from tests.losses import test_corrected as corrected
from tests.losses.cases import EXAMPLES, LOGITS, UNITS, T

pytestmark = pytest.mark.once


def test_the_identity_is_the_plain_crossentropy():
    corrected.test_the_identity_is_the_plain_crossentropy(BackwardCorrectedCrossentropy)


@pytest.mark.planted
def test_the_backward_correction_is_unbiased_and_its_transpose_would_not_be():
    clean = special.logsumexp(LOGITS, axis=-1)[:, None] - LOGITS

    def mean_over_noise(matrix):
        loss = BackwardCorrectedCrossentropy(matrix, from_logits=True, reduction="none")
        each = np.stack([ops.convert_to_numpy(loss(np.full(EXAMPLES, j), LOGITS)) for j in range(UNITS)], axis=-1)
        return each @ T.T

    np.testing.assert_allclose(mean_over_noise(T), clean, rtol=1e-4, atol=1e-5)
    assert np.abs(mean_over_noise(T.T / T.T.sum(axis=1, keepdims=True)) - clean).max() > 0.05


@pytest.mark.parametrize(
    ("transition", "text"),
    [
        ([[0.5, 0.5]] * 2, "condition number of at most 100 to be inverted. Received: inf"),
        (pair_flip(4, 0.499), "Received: 500"),
    ],
)
def test_a_t_that_can_hardly_be_inverted_is_refused(transition, text):
    with pytest.raises(ValueError) as error:
        BackwardCorrectedCrossentropy(transition)
    assert text in str(error.value)


def test_a_larger_condition_number_can_be_allowed():
    assert BackwardCorrectedCrossentropy(pair_flip(4, 0.499), max_condition=1e3).max_condition == 1e3
