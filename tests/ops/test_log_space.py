import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from keras_het.ops import log_space
from tests.common import to_numpy
from tests.gradients import value_and_gradients


def test_log_mean_exp_does_not_overflow():
    x = np.array([[1e4, 1e4 + 1], [-1e4, -1e4 - 3]], "float32")
    assert_allclose(to_numpy(log_space.log_mean_exp(x)), logsumexp(np.float64(x), axis=1) - np.log(2), rtol=1e-6)
    assert_allclose(to_numpy(log_space.log_mean_exp(x, axis=0)), x[0] - np.log(2), rtol=1e-6)


@pytest.mark.parametrize("low", [-1e4, -100, -1])
def test_log_ndtr_and_its_gradient(low):
    x = np.linspace(low, -low, 2001).astype("float32")
    expected = log_ndtr(np.float64(x))
    assert_allclose(to_numpy(log_space.log_ndtr(x)), expected, rtol=4e-7, atol=5e-7)
    _, (gradient,) = value_and_gradients(lambda tensors: ops.sum(log_space.log_ndtr(*tensors)), [x])
    assert_allclose(gradient, np.exp(norm.logpdf(np.float64(x)) - expected), rtol=2e-5, atol=1e-6)
