"""The normalised links against integration in float64, by closed form and by nodes; and what the formula of their paper errs by."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import log_ndtr, log_softmax

import keras_het
from keras_het import links
from keras_het.integrators import MonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import low_rank_normal, nodes
from keras_het.ops.log_mean import LOG_SIGMOID_MEAN
from keras_het.ops.streaming import expectation
from tests import reference
from tests.gradients import value_and_gradients

MEANS, SCALES = np.linspace(-20, 8, 29), np.array([0.0, 0.3, 1.0, 2.0, 5.0])
GRID = np.array(np.meshgrid(MEANS, SCALES)).reshape(2, -1).astype("float32")


def exact(name, mean, scale):
    """log E[a(u)] in float64."""
    if name == "normal_cdf":
        return log_ndtr(mean / np.sqrt(1 + np.float64(scale) ** 2))
    return np.array([reference.expected_sigmoid(a, s)[0] for a, s in zip(mean.ravel(), scale.ravel(), strict=True)]).reshape(mean.shape)


@pytest.mark.parametrize("name", ["normalized_sigmoid", "normal_cdf"])
def test_closed_form_against_integration(name):
    mean, scale = GRID.reshape(2, 5, 29)  # 29 classes an example, of one scale each
    found = links.get(name).closed_form(low_rank_normal(mean, scale))
    np.testing.assert_allclose(ops.convert_to_numpy(found), log_softmax(exact(name, mean, scale), axis=-1), rtol=1e-6, atol=2e-4)


@pytest.mark.parametrize("name", ["normalized_sigmoid", "normal_cdf"])
def test_nodes_and_their_gradient_converge_to_the_closed_form(name):
    rng = np.random.default_rng(0)
    arrays = [x.astype("float32") for x in (rng.normal(size=(3, 4)), rng.uniform(0.3, 1, size=(3, 4)), rng.normal(size=(3, 4, 2)))]
    link, points = links.get(name), nodes.quasi_random((0, 0), 1 << 13, 4, 2, np)

    def closed(tensors):
        return ops.sum(ops.square(link.closed_form(low_rank_normal(*tensors))))

    def sampled(tensors):
        return ops.sum(ops.square(link.from_mean(expectation(link.mean, low_rank_normal(*tensors), points, 1 << 11))))

    (value, slopes), (other, others) = (value_and_gradients(function, arrays) for function in (closed, sampled))
    np.testing.assert_allclose(other, value, rtol=5e-3)
    for found, expected in zip(others, slopes, strict=True):
        np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())


def test_a_planted_slope_is_caught(monkeypatch):
    monkeypatch.setattr(links.NormalizedSigmoid, "mean", LOG_SIGMOID_MEAN._replace(log_slope=ops.log_sigmoid))
    with pytest.raises(AssertionError):
        test_nodes_and_their_gradient_converge_to_the_closed_form("normalized_sigmoid")


@pytest.mark.parametrize("name", ["normalized_sigmoid", "normal_cdf"])
def test_extremes_are_finite(name):
    loc = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [0.0, 1.0, 2.0]], "float32")
    scale = np.array([[1.0, 1.0, 1.0], [1e3, 1.0, 1e-3], [1e3, 1e3, 1e3]], "float32")
    value, slopes = value_and_gradients(lambda tensors: ops.sum(links.get(name).closed_form(low_rank_normal(*tensors))), [loc, scale])
    assert np.isfinite(value)
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_there_is_no_integrator_but_the_closed_form_and_nodes():
    head = HeteroscedasticDense(3, link="normalized_sigmoid")
    assert type(head.integrator).__name__ == "ClosedForm"
    assert HeteroscedasticDense(3, link=links.NormalCDF(), integrator=MonteCarlo(8)).link.returns == "log-probabilities"


def test_a_conversion_starts_fresh_or_is_refused():
    old = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    for model in (old, keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])):
        with pytest.raises(ValueError, match="unless mu starts fresh by `warm_start=False`"):
            keras_het.heteroscedastic(model, link="normalized_sigmoid")
    new = keras_het.heteroscedastic(old, link="normalized_sigmoid", warm_start=False)
    assert isinstance(new.layers[-1].link, links.NormalizedSigmoid)
    with pytest.raises(ValueError, match="have a head whose link a Dense layer can have"):
        keras_het.homoscedastic(new)
    assert keras_het.homoscedastic(new, units=5).layers[-1].units == 5
