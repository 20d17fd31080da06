"""Crossentropy of epsilon-softmax: its limits, what is left out, and its digits. The formula is in test_contract.py."""

import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import EpsilonSoftmaxCrossentropy
from benchmarks.tests.baselines.test_contract import epsilon_softmax
from tests.gradients import value_and_gradients
from tests.losses.cases import EXAMPLES, LABELS, LOGITS, UNITS

LOG_P = special.log_softmax(LOGITS.astype("float64"), axis=-1)
LARGEST = LOGITS.argmax(axis=-1)
LIMITS = [(0.0, 1.0, 0.0), (1e3, 0.02, 5.0), (1e5, 0.01, 5.0)]


def each(*arguments, labels=LABELS, logits=LOGITS, **kwargs):
    loss = EpsilonSoftmaxCrossentropy(*arguments, from_logits=True, reduction="none", **kwargs)
    return ops.convert_to_numpy(loss(labels, logits))


def gradient(labels, *arguments, logits=LOGITS, **kwargs):
    loss = EpsilonSoftmaxCrossentropy(*arguments, from_logits=True, reduction="sum", **kwargs)
    return value_and_gradients(lambda tensors: loss(labels, tensors[0]), [logits])[1][0]


@pytest.mark.parametrize("arguments", LIMITS)
def test_strengths_of_the_paper_against_numpy(arguments):
    for labels in (LABELS, LARGEST):
        exact = epsilon_softmax(np.eye(UNITS)[labels], LOG_P, *arguments)
        np.testing.assert_allclose(each(*arguments, labels=labels), exact, rtol=1e-5, atol=1e-6)


def test_a_label_that_is_predicted_has_hardly_a_gradient_and_another_that_of_crossentropy():
    p, m = np.exp(LOG_P), 1e3
    slope = p[np.arange(EXAMPLES), LARGEST] / (p[np.arange(EXAMPLES), LARGEST] + m)
    agreeing = slope[:, None] * (p - np.eye(UNITS)[LARGEST])
    # 1e-3 of that of crossentropy, and still right to five digits.
    np.testing.assert_allclose(gradient(LARGEST, m, 1.0, 0.0), agreeing, rtol=1e-5, atol=1e-9)
    other = LOGITS.argmin(axis=-1)
    np.testing.assert_allclose(gradient(other, m, 1.0, 0.0), p - np.eye(UNITS)[other], rtol=1e-5, atol=1e-6)


def test_labels_below_the_smallest_have_no_crossentropy_to_learn_from():
    logits = np.array([[12.0, 0.0, 2.0, 1.0]], "float32")
    for label, is_left_out in ((1, True), (0, False)):
        found = gradient(np.array([label]), 1e5, 1.0, 0.0, logits=logits)
        assert np.all(found == 0) == is_left_out
    assert each(1e5, 1.0, 0.0, labels=[1], logits=logits)[0] == pytest.approx(-np.log(1e-8), rel=1e-6)
    assert np.any(gradient(np.array([1]), 1e5, 1.0, 0.0, logits=logits, smallest=0.0) != 0)
    impossible = np.array([[1.0, -np.inf, 0.0, 0.0]], "float32")
    assert each(1.0, 1.0, 0.0, 0.0, labels=[1], logits=impossible)[0] == np.inf


@pytest.mark.planted
@pytest.mark.parametrize("bug", [{"m": 1.02e5}, {"alpha": 0.01001}, {"beta": 5.001}, {"smallest": 1e-3}])
def test_a_planted_bug_is_caught(bug):
    for labels in (LABELS, LARGEST):
        wrong = epsilon_softmax(np.eye(UNITS)[labels], LOG_P, **({"m": 1e5, "alpha": 0.01, "beta": 5.0} | bug))
        if not np.allclose(each(1e5, 0.01, 5.0, labels=labels), wrong, rtol=1e-5, atol=1e-6):
            return
    raise AssertionError(f"{bug} was not seen")


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"m": -1.0}, "`m` must be a finite float32 number at least 0. Received: m=-1.0"),
        ({"smallest": 1.0}, "`smallest` must be in [0, 1). Received: smallest=1.0"),
    ],
)
def test_errors_say_what_is_wrong(arguments, text):
    with pytest.raises(ValueError) as error:
        EpsilonSoftmaxCrossentropy(**arguments)
    assert str(error.value) == text
