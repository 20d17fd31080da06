"""Heads with noise of the features: against a head with the factor W'V', number of weights, and refusals."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose

import keras_het
from keras_het.base.serializable import resolve
from keras_het.covariances import Latent
from keras_het.layers import HeteroscedasticDense
from keras_het.ops.latent import LatentNormal
from keras_het.ops.low_rank import LowRankNormal
from keras_het.ops.nodes import Nodes
from keras_het.ops.softmax import SoftmaxMean
from keras_het.ops.streaming import expectation
from tests.common import built, refuses, to_numpy
from tests.gradients import value_and_gradients
from tests.layers.heads import FEATURES, UNITS, X, make_model
from tests.ops.expected import PLAIN

pytestmark = pytest.mark.once

FACTORS, SAMPLES = 2, 40
LINKS = ["softmax", "sigmoid"]


def latent_head(units, num_factors=None, **arguments):
    return HeteroscedasticDense(units, covariance=Latent(num_factors), **arguments)


def problem(batch=5):
    rng = np.random.default_rng(0)
    shapes = (batch, UNITS), (batch, FEATURES), (batch, FEATURES, FACTORS), (FEATURES, UNITS)
    loc, scale_diag, factor, kernel = (0.5 * rng.normal(size=shape) for shape in shapes)
    return [x.astype("float32") for x in (loc, np.abs(scale_diag), factor, kernel)]


def nodes(count=SAMPLES):
    rng = np.random.default_rng(1)
    return Nodes(*(rng.normal(size=(count, size)).astype("float32") for size in (FEATURES, FACTORS)))


def dense(loc, scale_diag, factor, kernel):
    """Returns the same distribution with all noise in a factor W'[diag(d'), V'] of the logits."""
    of_features = ops.concatenate([scale_diag[..., None] * ops.eye(FEATURES), factor], axis=-1)
    return LowRankNormal(loc, ops.zeros_like(loc), ops.matmul(ops.transpose(kernel), of_features))


@pytest.mark.smoke
@pytest.mark.parametrize("options", [{"chunk_size": 8}, PLAIN, {"chunk_size": 8, "streamed": False}], ids=str)
def test_values_and_gradients_are_those_of_the_dense_head(options):
    points = nodes()
    plain = Nodes(np.zeros((SAMPLES, UNITS), "float32"), np.concatenate(points, axis=1))
    upstream = ops.convert_to_tensor(np.random.default_rng(2).normal(size=(5, UNITS)).astype("float32"))

    def latent(tensors):
        return ops.sum(upstream * expectation(SoftmaxMean(), LatentNormal(*tensors), points, **options))

    def expected(tensors):
        return ops.sum(upstream * expectation(SoftmaxMean(), dense(*tensors), plain, **PLAIN))

    (value, result), (other, slopes) = (value_and_gradients(function, problem()) for function in (latent, expected))
    assert_allclose(value, other, rtol=1e-5, atol=1e-5)
    for gradient, slope in zip(result, slopes, strict=True):
        assert_allclose(gradient, slope, rtol=1e-5, atol=1e-5 * np.abs(slope).max())


@pytest.mark.parametrize("link", LINKS)
def test_closed_forms_are_those_of_the_dense_head(link):
    tensors = [ops.convert_to_tensor(x) for x in problem()]
    link = resolve(keras_het.links.Link, link)
    latent, other = LatentNormal(*tensors), dense(*tensors)
    assert_allclose(*to_numpy(latent.variance(), other.variance()), rtol=1e-5)
    if link.closed_form is not None:
        assert_allclose(*to_numpy(link.closed_form(latent), link.closed_form(other)), rtol=1e-5, atol=1e-5)
    if link.second_order is not None:
        assert_allclose(*to_numpy(link.second_order(latent), link.second_order(other)), rtol=1e-4, atol=1e-5)
    for centered in (True, False):
        result, expected = to_numpy(latent.covariance(centered=centered), other.covariance(centered=centered))
        assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 5.0])
def test_the_noise_starts_at_initial_scale_temperatures(temperature):
    head = latent_head(200, 5, temperature=temperature, seed=0)
    variance = to_numpy(head.logit_distribution(np.zeros((1, 50), "float32")).variance())
    assert np.sqrt(variance.mean()) == pytest.approx(0.15 * temperature, rel=0.1)


@pytest.mark.parametrize("size", [0.0, 0.01, 1.0])
def test_conversion_starts_the_noise_beside_the_kernel_that_it_takes_over(size):
    """A kernel that has learned nothing does not make the noise explode."""
    old = keras.Sequential([keras.Input((50,)), keras.layers.Dense(40)])
    old.layers[-1].kernel.assign(size * np.random.default_rng(0).normal(size=(50, 40)))
    new = keras_het.heteroscedastic(old, covariance=Latent(4), seed=0)
    x, head = np.random.default_rng(1).normal(size=(20, 50)).astype("float32"), new.layers[-1]
    if size == 0.0:
        assert to_numpy(head.covariance.standard_deviations(0 * x)).max() < 2.0
        return
    deviation = np.sqrt(to_numpy(head.logit_distribution(x).variance()).mean())
    assert deviation == pytest.approx(0.15 * head.temperature, rel=0.2)
    assert np.abs(np.exp(new.predict(x, verbose=0)) - to_numpy(ops.softmax(old.predict(x, verbose=0)))).max() < 0.03


def test_pairs_of_classes_need_noise_of_the_logits_and_factors_are_at_most_the_features():
    model = make_model(latent_head(UNITS, 2, temperature=2.0, seed=0))
    with refuses(r"`model` must have a head with noise in the logits.*Received: covariance=Latent"):
        keras_het.explain.confused_pairs(model, X)
    assert [built(latent_head(3), (None, features)).num_factors for features in (6, 40)] == [6, 15]
