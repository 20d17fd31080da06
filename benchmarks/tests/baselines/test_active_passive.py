"""Normalised and reverse crossentropy: the bounds that make them robust, and the share of K."""

import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import ActivePassiveCrossentropy
from tests.losses.cases import EXAMPLES, LOGITS, UNITS


def over_labels(alpha, beta, logits=LOGITS):
    """The loss of every example for every label, `(N, K)`."""
    loss = ActivePassiveCrossentropy(alpha, beta, from_logits=True, reduction="none")
    return np.stack(
        [ops.convert_to_numpy(loss(np.full(len(logits), k), logits)) for k in range(logits.shape[-1])], axis=-1
    )


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_the_sum_over_all_labels_is_a_constant(scale):
    """The property that both parts are robust by: symmetric flips add a constant (Ma et al. 2020, Section 3)."""
    np.testing.assert_allclose(over_labels(1.0, 0.0, scale * LOGITS).sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(over_labels(0.0, 1.0, scale * LOGITS).sum(-1), 4.0 * (UNITS - 1), rtol=1e-6)


@pytest.mark.parametrize("units", [2, 10, 100])
def test_of_equally_probable_classes_it_is_one_over_their_number(units):
    np.testing.assert_allclose(over_labels(1.0, 0.0, np.zeros((1, units), "float32")), 1.0 / units, rtol=1e-6)


def test_the_reverse_part_is_the_absolute_error():
    p = special.softmax(LOGITS.astype("float64"), axis=-1)
    np.testing.assert_allclose(over_labels(0.0, 0.5), 0.5 * 4.0 * (1.0 - p), rtol=1e-6)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ActivePassiveCrossentropy(-1.0),
            "`alpha` must be a finite float32 number at least 0. Received: alpha=-1.0",
        ),
        (
            lambda: ActivePassiveCrossentropy(beta="1"),
            "`beta` must be a finite float32 number at least 0. Received: beta='1'",
        ),
        (
            lambda: ActivePassiveCrossentropy(log_of_zero=1),
            "`log_of_zero` must be less than 0. Received: log_of_zero=1",
        ),
        (
            lambda: ActivePassiveCrossentropy()(np.zeros(EXAMPLES), np.ones((EXAMPLES, 1))),
            "`y_pred` must have at least two classes. Received: shape (7, 1)",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == text
