import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from keras_het.ops.nodes import Nodes
from tests import reference
from tests.common import low_rank_normal, refuses, to_numpy

BATCH, UNITS, FACTORS = 4, 5, 2


def parameters(kind):
    rng = np.random.default_rng(0)
    loc, row_scale = rng.normal(size=(2, BATCH, UNITS)).astype("float32")
    scale_diag = rng.uniform(0.5, 2.0, size=(BATCH, UNITS)).astype("float32")
    factor = rng.normal(size=(BATCH, UNITS, FACTORS)).astype("float32")
    return {
        "diagonal": (loc, scale_diag, None, None),
        "full": (loc, scale_diag, factor, None),
        "shared": (loc, scale_diag, factor[0], None),
        "parameter_efficient": (loc, scale_diag, factor[0], row_scale),
    }[kind]


def dense(kind):
    _, scale_diag, factor, row_scale = parameters(kind)
    factors = [None] * BATCH if factor is None else np.broadcast_to(factor, (BATCH, UNITS, FACTORS))
    row_scales = [None] * BATCH if row_scale is None else row_scale
    return np.stack([*map(reference.noise_covariance, scale_diag, factors, row_scales)])


def normal(kind):
    return low_rank_normal(*parameters(kind))


@pytest.fixture(params=["diagonal", "full", "shared", "parameter_efficient"])
def kind(request):
    return request.param


def test_covariance_and_variance(kind):
    covariance = to_numpy(ops.broadcast_to(normal(kind).covariance(), (BATCH, UNITS, UNITS)))
    assert_allclose(covariance, dense(kind), rtol=1e-5, atol=1e-5)
    assert_allclose(to_numpy(normal(kind).variance()), np.diagonal(dense(kind), axis1=1, axis2=2), rtol=1e-5)
    centering = np.eye(UNITS) - 1 / UNITS
    covariance = to_numpy(normal(kind).covariance(centered=True))
    assert_allclose(covariance, centering @ dense(kind) @ centering, rtol=1e-4, atol=1e-5)
    assert_allclose(covariance.sum(-1), 0.0, atol=1e-5)


def log_densities(kind, values):
    return np.stack(
        [
            multivariate_normal(*each).logpdf(x)
            for *each, x in zip(parameters(kind)[0], dense(kind), values, strict=True)
        ]
    )


def test_log_prob(kind):
    value = np.random.default_rng(1).normal(size=(BATCH, UNITS)).astype("float32") * 3
    assert_allclose(to_numpy(normal(kind).log_prob(value)), log_densities(kind, value), rtol=1e-4)


@pytest.mark.once
@pytest.mark.parametrize("num_values", [3, BATCH])
def test_log_prob_of_several_values_of_each_example(kind, num_values):
    rng, one = np.random.default_rng(2), normal(kind)
    nodes = Nodes(*(ops.convert_to_tensor(rng.normal(size=(num_values, size)), "float32") for size in one.size))
    values = to_numpy(one.logits(nodes))
    assert_allclose(to_numpy(one.log_prob(values)), log_densities(kind, values), rtol=1e-4)
    rule = r"`value` must have shape \(4, 5\), or \(..., S, 5\) for S values per example. Received: shape "
    for wrong in (values[None], values[:3]):
        with refuses(rule):
            one.log_prob(wrong)
    alone = low_rank_normal(*(None if x is None else x[0] for x in parameters("full")))  # without leading axes
    assert tuple(alone.logits(Nodes(ops.ones((3, UNITS)), ops.ones((3, FACTORS)))).shape) == (3, UNITS)


def check_log_prob(factor, scale, value):
    normal = low_rank_normal(np.zeros((1, 10), "float32"), np.full((1, 10), scale, "float32"), factor[None])
    covariance = np.float64(factor) @ np.float64(factor).T + np.eye(10) * np.float64(np.float32(scale)) ** 2
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), np.float64(value))
    expected = -0.5 * (np.sum(whitened**2) + np.linalg.slogdet(covariance)[1] + 10 * np.log(2 * np.pi))
    assert_allclose(to_numpy(normal.log_prob(value[None]))[0], expected, atol=0.05)


@pytest.mark.once
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("scale", "size"), [(1e-3, 10.0), (1e-2, 10.0), (1e-3, 1.0)])
def test_log_prob_of_a_factor_ten_thousand_times_the_diagonal(scale, size, seed):
    """The quadratic form is a difference of numbers near 1e8 unless it is summed as squares."""
    rng = np.random.default_rng(seed)
    factor = (size * rng.normal(size=(10, 3))).astype("float32")
    check_log_prob(factor, scale, (factor @ rng.normal(size=3) + scale * rng.normal(size=10)).astype("float32"))


def test_log_prob_of_equal_columns():
    """I + w' w is singular in float32 here, where w' w is 10^8."""
    factor = np.repeat(10 * np.random.default_rng(0).normal(size=(10, 1)), 2, axis=1).astype("float32")
    value = (0.7 * factor[:, 0] + 1e-3 * np.random.default_rng(1).normal(size=10)).astype("float32")
    check_log_prob(factor, 1e-3, value)
