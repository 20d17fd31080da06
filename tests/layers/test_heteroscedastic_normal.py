"""Regression head: predictions, intervals and files."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.stats import norm

from keras_het.layers import HeteroscedasticNormal
from tests.common import built, to_numpy
from tests.gradients import layer_gradients

pytestmark = pytest.mark.once

FEATURES, UNITS = 4, 3
X = np.random.default_rng(0).normal(size=(5, FEATURES)).astype("float32")


def head_of(num_factors=2, **arguments):
    head = built(HeteroscedasticNormal(UNITS, num_factors, seed=0, **arguments), X.shape)
    rng = np.random.default_rng(1)
    head.set_weights([0.3 * rng.normal(size=weight.shape) for weight in head.get_weights()])
    return head


def expected(head):
    """Means and covariances by the definition, in float64, of the weights in the order of their making."""
    kernel, bias, *rest = (np.asarray(weight, "float64") for weight in head.get_weights())
    maps = [X @ kernel + bias for kernel, bias in zip(rest[::2], rest[1::2], strict=True)]
    unit = head.covariance.scale_unit
    covariance = np.stack([np.diag(d**2) for d in (unit * np.log1p(np.exp(maps[0] / unit)) + 1e-3)])
    if len(maps) > 1:
        factor = maps[1].reshape(len(X), UNITS, -1)
        factor /= np.sqrt(factor.shape[-1])
        covariance += factor @ factor.swapaxes(1, 2)
    return X @ kernel + bias, covariance


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
    head = head_of(stop_features=True)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(FEATURES, name="body"), head])

    def gradient(loss):
        return layer_gradients(model, loss, X)[1]

    of_noise, of_mean = gradient(lambda out: ops.sum(out[:, UNITS:])), gradient(lambda out: ops.sum(out[:, :UNITS]))
    body = next(name for name in of_mean if name.endswith("kernel") and of_mean[name] is not None)
    kernels = [name for name in of_noise if of_noise[name] is not None and np.abs(of_noise[name]).max() > 0]
    assert body not in kernels
    assert kernels
    assert np.abs(of_mean[body]).max() > 0
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(FEATURES, name="body"), head_of()])
    assert np.abs(gradient(lambda out: ops.sum(out[:, UNITS:]))[body]).max() > 0
