import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose

from keras_het.ops.sigmoid import expected_sigmoid_logit, log_expected_sigmoid
from tests import reference
from tests.common import assert_finite, to_numpy
from tests.gradients import value_and_gradients

MEANS = np.concatenate([np.linspace(-100, 100, 21), np.linspace(-6, 6, 13), [-1e-3, 1e-3]])
SCALES = np.concatenate([[0.0, 1e-3, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0], np.linspace(4, 30, 5)])
GRID = np.array(np.meshgrid(MEANS, SCALES)).reshape(2, -1).astype("float32")


@pytest.fixture(scope="module")
def integrals():
    """Computes log E[sigmoid] and its derivatives by mean and scale over the grid, at a and at -a."""
    mean, scale = np.float64(GRID)
    return [
        np.array([reference.expected_sigmoid(sign * a, s) for a, s in zip(mean, scale, strict=True)])
        for sign in (1, -1)
    ]


@pytest.mark.once
def test_closed_form_against_integration(integrals):
    mean, scale = GRID
    for computed, expected in zip(log_expected_sigmoid(mean, scale**2), integrals, strict=True):
        assert_allclose(to_numpy(computed), expected[:, 0], rtol=0, atol=1e-4)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("tail", [0, 1], ids=["p", "1 - p"])
def test_gradients_of_the_closed_form_against_integration(integrals, tail):
    _, computed = value_and_gradients(
        lambda tensors: ops.sum(log_expected_sigmoid(tensors[0], tensors[1] ** 2)[tail]), list(GRID)
    )
    expected = integrals[tail][:, 1:] * [1 - 2 * tail, 1]
    for i in range(2):
        assert_allclose(computed[i], expected[:, i], rtol=1e-3, atol=1e-6)


def test_logit_is_odd_has_a_slope_at_zero_and_survives_extremes():
    mean = np.array([0.0, 1e4, -1e4, 50.0, -50.0], "float32")
    variance = np.array([1.0, 1e6, 1e6, 0.0, 0.0], "float32")
    value, (by_mean, by_variance) = value_and_gradients(
        lambda tensors: ops.sum(expected_sigmoid_logit(*tensors)), [mean, variance]
    )
    logit = to_numpy(expected_sigmoid_logit(mean, variance))
    assert_finite(value, [by_mean, by_variance])
    assert_allclose(logit[[1, 3]], -logit[[2, 4]], rtol=1e-6)
    assert_allclose(logit[3], 50.0, rtol=1e-4)
    assert by_mean[0] > 0.5
    # logit p = logit E[sigmoid] of N(1e4, 1e6): log q = log Phi(-10) to the accuracy of the smoothing, which is 1e-3
    # standard deviations
    assert_allclose(logit[1], 53.2, rtol=1e-2)
