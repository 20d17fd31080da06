"""Scores of a regression against SciPy's densities and integrals."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from keras_het.explain import regression_scores
from tests.checks import refusals

pytestmark = pytest.mark.once


def predicted(count, units, factors, seed=0):
    """Packed outputs, and targets that are drawn from them."""
    rng = np.random.default_rng(seed)
    mean, scale = rng.normal(size=(count, units)), np.exp(0.5 * rng.normal(size=(count, units)))
    factor = rng.normal(size=(count, units, factors))
    noise = scale * rng.normal(size=mean.shape) + np.einsum("nkr,nr->nk", factor, rng.normal(size=(count, factors)))
    outputs = np.concatenate([mean, scale, factor.reshape(count, -1), np.full((count, 1), -1.0)], axis=1)
    return outputs.astype("float32"), mean + noise


def oracle(outputs, y):
    """Means and covariances by the definition."""
    units = y.shape[1]
    mean, scale, factor = np.split(outputs[:, :-1].astype("float64"), [units, 2 * units], axis=1)
    factor = factor.reshape(len(y), units, -1)
    return mean, np.stack([np.diag(d**2) + v @ v.T for d, v in zip(scale, factor, strict=True)])


def test_the_scores_of_drawn_targets_are_those_of_scipy():
    outputs, y = predicted(20, 3, 2)
    mean, covariance = oracle(outputs, y)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    found = regression_scores(outputs, y)
    nll = [-multivariate_normal.logpdf(*row) for row in zip(y, mean, covariance, strict=True)]
    assert found.nll == pytest.approx(np.mean(nll), rel=1e-5)
    np.testing.assert_allclose(found.rmse, np.sqrt(np.square(y - mean).mean(0)), rtol=1e-5)
    np.testing.assert_allclose(found.mae, np.abs(y - mean).mean(0), rtol=1e-5)
    crps = np.empty_like(y)
    for place in np.ndindex(y.shape):
        law, value = norm(mean[place], scale[place]), y[place]
        below = quad(lambda t, law=law: law.cdf(t) ** 2, value - 30, value)[0]
        crps[place] = below + quad(lambda t, law=law: law.sf(t) ** 2, value, value + 30)[0]
    np.testing.assert_allclose(found.crps, crps.mean(0), rtol=1e-5)
    low, high = norm.interval(0.9, mean, scale)
    np.testing.assert_allclose(found.coverage[1], ((low < y) & (y < high)).mean(0))
    np.testing.assert_allclose(found.width[1], (high - low).mean(0), rtol=1e-5)
    assert "inside 90%" in str(found)


@pytest.mark.parametrize("factors", [0, 2])
def test_outputs_in_float64_are_judged_in_float64(factors):
    """Means of 1e8, of which float32 holds no neighbour nearer than 8; the scores are those of the errors alone."""
    outputs, y = predicted(20, 3, factors)
    far = outputs.astype("float64") + np.where(np.arange(outputs.shape[1]) < 3, 1e8, 0.0)
    found, expected = regression_scores(far, y + 1e8), regression_scores(outputs, y)
    for name in ("nll", "distance", "rmse", "mae", "crps", "width"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6)
    mean, covariance = oracle(outputs, y)
    nll = [-multivariate_normal.logpdf(*row) for row in zip(y, mean, covariance, strict=True)]
    assert expected.nll == pytest.approx(np.mean(nll), rel=1e-12)


def test_coverage_and_distance_of_many_draws_are_right_and_those_of_half_the_noise_are_not():
    outputs, y = predicted(20_000, 2, 1)
    found = regression_scores(outputs, y)
    np.testing.assert_allclose(found.coverage, np.broadcast_to([[0.5], [0.9], [0.95]], (3, 2)), atol=0.015)
    assert found.distance == pytest.approx(1.0, abs=0.03)
    outputs[:, 2:-1] /= 2.0
    halved = regression_scores(outputs, y)
    assert halved.distance == pytest.approx(4.0, abs=0.12)
    assert (halved.coverage[1] < 0.65).all()
    assert halved.nll > found.nll
    assert (halved.crps > found.crps).all()
    np.testing.assert_array_equal(halved.rmse, found.rmse)


OUTPUTS, Y = predicted(4, 2, 1)


test_refusals = refusals([
    (lambda: regression_scores(OUTPUTS, np.where(Y > 0, Y, np.nan)), "`targets` must be finite. Received: nan at"),
    (lambda: regression_scores(OUTPUTS * np.inf, Y), "`outputs` must be finite"),
    (lambda: regression_scores(OUTPUTS, Y[:3]), "`targets` must have shape"),
    (lambda: regression_scores(OUTPUTS[:0], Y[:0]), "`targets` must have shape"),
    (lambda: regression_scores(OUTPUTS, Y[:, :1]), "`outputs` must have 1"),
    (lambda: regression_scores(OUTPUTS, Y, levels=[0.9, 1.0]), "`levels` must be in"),
])  # fmt: skip
