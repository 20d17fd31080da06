"""Expected outputs of a head with nodes, from its parts."""

import numpy as np
from numpy.testing import assert_allclose

from keras_het.ops.sigmoid import SigmoidMean
from keras_het.ops.softmax import SoftmaxMean, remove_shift
from keras_het.ops.streaming import expectation
from tests.common import low_rank_normal

PLAIN = {"chunk_size": 1 << 20, "streamed": False}  # all nodes at once, and no gradient of its own


def log_expected_softmax(
    loc, scale_diag, factor, nodes, temperature=1.0, row_scale=None, chunk_size=None, streamed=True
):
    """Computes log E[softmax(u / temperature)], u = loc + scale_diag * e_K + row_scale * (factor e_R), `(..., K)`."""
    normal = low_rank_normal(loc, scale_diag, factor, row_scale).standardized(remove_shift, temperature)
    return expectation(SoftmaxMean(), normal, nodes, chunk_size, streamed)


def sampled_expected_sigmoid_logit(
    loc, scale_diag, factor, nodes, temperature=1.0, row_scale=None, chunk_size=None, streamed=True
):
    """Computes the logit of E[sigmoid(u / temperature)] for the same u."""
    normal = low_rank_normal(loc, scale_diag, factor, row_scale).standardized(temperature=temperature)
    return expectation(SigmoidMean(), normal, nodes, chunk_size, streamed)


def assert_same_gradients(result, expected):
    """Gradients, dicts by name, agree to 1e-5 of the largest entry of each."""
    assert list(result) == list(expected)
    for name, gradient in expected.items():
        largest = np.abs(gradient).max(initial=0)
        assert_allclose(result[name], gradient, rtol=1e-5, atol=1e-5 * largest + 1e-6, err_msg=name)
