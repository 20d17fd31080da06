import numpy as np
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from keras_het.ops import log_space
from tests.common import to_numpy


def test_log_mean_exp_does_not_overflow():
    x = np.array([[1e4, 1e4 + 1], [-1e4, -1e4 - 3]], "float32")
    assert_allclose(to_numpy(log_space.log_mean_exp(x)), logsumexp(np.float64(x), axis=1) - np.log(2), rtol=1e-6)
    assert_allclose(to_numpy(log_space.log_mean_exp(x, axis=0)), x[0] - np.log(2), rtol=1e-6)
