"""Regression head: predictions, intervals and files."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.stats import norm

from keras_het.layers import HeteroscedasticNormal
from tests import reference
from tests.common import built, to_numpy
from tests.gradients import layer_gradients
from tests.layers.heads import numpy_distribution

pytestmark = pytest.mark.once

FEATURES, UNITS = 4, 3
X = np.random.default_rng(0).normal(size=(5, FEATURES)).astype("float32")


def head_of(num_factors=2, **arguments):
    head = built(HeteroscedasticNormal(UNITS, num_factors, seed=0, **arguments), X.shape)
    rng = np.random.default_rng(1)
    head.set_weights([0.3 * rng.normal(size=weight.shape) for weight in head.get_weights()])
    return head


def expected(head):
    """Means and covariances by the definition, in float64."""
    mean, scale_diag, factor, _ = numpy_distribution(head, X)
    factors = [None] * len(X) if factor is None else factor
    return mean, np.stack([*map(reference.noise_covariance, scale_diag, factors)])


@pytest.mark.smoke
@pytest.mark.parametrize("num_factors", [0, 2])
def test_mean_covariance_and_intervals_are_those_of_the_weights(num_factors):
    head = head_of(num_factors)
    mean, covariance = expected(head)
    outputs = head(X)
    assert tuple(outputs.shape) == head.compute_output_shape(X.shape) == (5, UNITS * (2 + num_factors) + 1)
    assert_allclose(to_numpy(head.predictions(outputs)), mean, rtol=1e-5, atol=1e-6)
    assert_allclose(to_numpy(head.distribution(X).covariance()), covariance, rtol=1e-5, atol=1e-6)
    ends = norm.interval(0.8, mean, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)))
    for end, right in zip(head.interval(outputs, 0.8), ends, strict=True):
        assert_allclose(to_numpy(end), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arguments", [{}, {"num_factors": 2}, {"num_factors": 2, "parameter_efficient": True}])
def test_the_noise_starts_at_the_initial_scale_for_all_inputs(arguments):
    for scale in (None, 0.2):
        head = HeteroscedasticNormal(UNITS, initial_scale=scale, seed=0, **arguments)
        assert_allclose(to_numpy(head.distribution(X).variance()), (scale or 1.0) ** 2, rtol=1e-4)


def test_stopped_features_get_no_gradient_from_the_noise():
    of_noise, of_mean = (lambda out: ops.sum(out[:, UNITS:])), (lambda out: ops.sum(out[:, :UNITS]))

    def largest(loss, **arguments):
        """Returns the largest slope of each weight; PyTorch and TensorFlow have no gradient of a weight without one."""
        body = keras.layers.Dense(FEATURES, name="body")
        model = keras.Sequential([keras.Input((FEATURES,)), body, head_of(**arguments)])
        slopes = layer_gradients(model, loss, X)[1]
        return {name: 0.0 if slope is None else np.abs(slope).max() for name, slope in slopes.items()}

    assert largest(of_noise)["body/kernel"] > 0
    assert largest(of_mean, stop_features=True)["body/kernel"] > 0
    assert largest(of_noise, stop_features=True)["body/kernel"] == 0
    assert max(largest(of_noise, stop_features=True).values()) > 0
