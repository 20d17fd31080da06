"""Symmetric crossentropy: its parts, and several labels at once."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from keras_het.losses import SymmetricCrossentropy
from tests.common import assert_finite, finite_differences, to_numpy
from tests.gradients import value_and_gradients
from tests.losses.cases import EXAMPLES, LOGITS, UNITS, WEIGHTS

pytestmark = pytest.mark.once

ANSWERS = (np.random.default_rng(1).random((EXAMPLES, UNITS)) < 0.4).astype("float32")
SOFT = np.random.default_rng(2).random((EXAMPLES, UNITS)).astype("float32")


def oracle(answers, logits, alpha=0.3, beta=0.8, log_of_zero=-4.0):
    """Returns the loss of every example with several labels, float64."""
    p = special.expit(np.asarray(logits, "float64"))
    t, p = np.stack([answers, 1.0 - answers]).astype("float64"), np.stack([p, 1.0 - p])
    with np.errstate(divide="ignore"):
        both = alpha * t * np.log(p) + beta * p * np.maximum(np.log(t), log_of_zero)
    return -both.sum(0).mean(-1)


def make(**kwargs):
    return SymmetricCrossentropy(0.3, 0.8, multi_label=True, **kwargs)


@pytest.mark.planted
@pytest.mark.parametrize("answers", [ANSWERS, SOFT], ids=["0 and 1", "soft"])
def test_values_of_several_labels(answers):
    exact = oracle(answers, LOGITS)
    of_logits = make(from_logits=True, reduction="none")(answers, LOGITS)
    for each in (of_logits, make(reduction="none")(answers, special.expit(LOGITS))):
        assert_allclose(to_numpy(each), exact, rtol=1e-6, atol=1e-6)
    assert float(make(from_logits=True)(answers, LOGITS, WEIGHTS)) == pytest.approx(np.mean(WEIGHTS * exact), rel=1e-6)
    with pytest.raises(AssertionError):  # a sum over the classes in place of the mean
        assert_allclose(to_numpy(of_logits), UNITS * exact, rtol=1e-6, atol=1e-6)


def test_several_labels_with_leading_axes_and_with_one_class():
    images = make(from_logits=True, reduction="none")(np.stack([ANSWERS, SOFT]), np.stack([LOGITS, LOGITS]))
    assert_allclose(to_numpy(images), [oracle(ANSWERS, LOGITS), oracle(SOFT, LOGITS)], rtol=1e-6)
    one = make(from_logits=True, reduction="none")(ANSWERS[:, :1], LOGITS[:, :1])
    assert_allclose(to_numpy(one), oracle(ANSWERS[:, :1], LOGITS[:, :1]), rtol=1e-6)


@pytest.mark.smoke
def test_gradients_of_several_labels_are_finite_differences_of_the_oracle():
    _, (gradient,) = value_and_gradients(lambda tensors: make(from_logits=True)(SOFT, tensors[0]), [LOGITS])
    slopes = finite_differences(lambda logits: oracle(SOFT, logits).mean(), LOGITS)
    assert gradient == pytest.approx(slopes, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("from_logits", [True, False])
def test_several_labels_with_certain_predictions_are_finite(from_logits):
    outputs = 1e4 * LOGITS if from_logits else (LOGITS > 0).astype("float32")
    value, (gradient,) = value_and_gradients(
        lambda tensors: make(from_logits=from_logits)(ANSWERS, tensors[0]), [outputs]
    )
    assert_finite(value, [gradient])


@pytest.mark.parametrize("wrong", [-1.0, 2.0, np.nan])
def test_an_answer_that_is_none_is_not_taken_for_one(wrong):
    answers = ANSWERS.copy()
    answers[2, 1] = wrong
    each = to_numpy(make(from_logits=True, reduction="none")(answers, LOGITS))
    assert_array_equal(np.isnan(each), np.arange(EXAMPLES) == 2)


def test_the_config_tells_several_labels_from_one():
    loss = make(from_logits=True)
    again = SymmetricCrossentropy.from_config(loss.get_config())
    assert again.get_config() == loss.get_config()
    assert float(again(ANSWERS, LOGITS)) == float(loss(ANSWERS, LOGITS))
