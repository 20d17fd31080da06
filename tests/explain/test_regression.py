"""Scores of a regression against SciPy's densities and integrals, and wrong targets that are planted."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from keras_het.explain import find_target_issues, regression_scores
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


def planted(seed, count=1000, wrong=0.05):
    """Outputs, targets of which some are exchanged with those of other examples, and where."""
    outputs, y = predicted(count, 2, 1, seed)
    rng, is_wrong = np.random.default_rng(seed + 100), np.zeros(count, bool)
    is_wrong[rng.choice(count, int(wrong * count), replace=False)] = True
    y[is_wrong] += 12.0 * rng.choice([-1, 1], size=(is_wrong.sum(), 2))
    return outputs, y, is_wrong


@pytest.mark.parametrize("factor", [1.0, 0.5, 2.0])
def test_planted_wrong_targets_are_found_whether_the_variances_are_right_or_not(factor):
    outputs, y, is_wrong = planted(0)
    outputs[:, 2:-1] *= factor
    found = find_target_issues(outputs, y)
    named = np.zeros(len(y), bool)
    named[found.index[found.is_issue]] = True
    assert (named & is_wrong).sum() / named.sum() > 0.9
    assert (named & is_wrong).sum() / is_wrong.sum() > 0.9
    assert found.scale == pytest.approx(factor**-2, rel=0.25)
    assert (np.diff(found.p_value) >= 0).all()
    np.testing.assert_allclose(found.given[0], y[found.index[0], found.target[0]])
    assert str(found).splitlines()[-1].startswith(f"{named.sum()} of 1000 examples")


def test_a_level_may_be_a_number_of_numpy_and_the_frame_has_no_scale():
    outputs, y = predicted(20, 2, 1)
    of_numpy, of_python = (find_target_issues(outputs, y, level=kind(0.25)) for kind in (np.float32, float))
    np.testing.assert_array_equal(of_numpy.is_issue, of_python.is_issue)
    columns = ["index", "target", "given", "predicted", "p_value", "is_issue"]
    assert list(of_numpy.to_frame()) == columns


def test_right_targets_are_seldom_named():
    """At level .05 a data set without wrong targets has an issue in at most one of twenty; two hundred are drawn."""
    with_issue = 0
    for seed in range(200):
        outputs, y = predicted(100, 2, 1, seed)
        with_issue += find_target_issues(outputs, y).is_issue.any()
    assert with_issue <= 24  # above that with probability below 1e-4, if one of twenty has, and the median is known


def test_a_target_that_is_usual_alone_is_found_beside_another():
    """Two targets that are always equal, and a pair that is not."""
    outputs = np.tile([0.0, 0.0, 0.1, 0.1, 1.0, 1.0, -1.0], (400, 1))
    shared = np.random.default_rng(0).normal(size=(400, 1))
    y = shared + 0.1 * np.random.default_rng(1).normal(size=(400, 2))
    y[7] = [1.0, -1.0]
    found = find_target_issues(outputs, y)
    assert found.index[0] == 7
    assert found.is_issue[0]
    independent = outputs.copy()
    independent[:, 2:-1] = [1.01**0.5, 1.01**0.5, 0.0, 0.0]  # the same variances, without the correlation
    assert find_target_issues(independent, y).index[0] != 7


OUTPUTS, Y = predicted(4, 2, 1)


test_refusals = refusals([
    (lambda: regression_scores(OUTPUTS, np.where(Y > 0, Y, np.nan)), "`targets` must be finite. Received: nan at"),
    (lambda: regression_scores(OUTPUTS * np.inf, Y), "`outputs` must be finite"),
    (lambda: regression_scores(OUTPUTS, Y[:3]), "`targets` must have shape"),
    (lambda: regression_scores(OUTPUTS[:0], Y[:0]), "`targets` must have shape"),
    (lambda: regression_scores(OUTPUTS, Y[:, :1]), "`outputs` must have 1"),
    (lambda: regression_scores(OUTPUTS[:, :-1], Y), "`outputs` must have 2"),
    (lambda: regression_scores(OUTPUTS, Y, levels=[0.9, 1.0]), "`levels` must be in"),
    (lambda: find_target_issues(OUTPUTS, Y * np.nan), "`targets` must be finite"),
    (lambda: find_target_issues(OUTPUTS, Y, level=0), "`level` must be a number in (0, 1)"),
])  # fmt: skip
