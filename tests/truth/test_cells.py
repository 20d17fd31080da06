"""Fractions by cells of a few verified examples: by other formulas, by SciPy's distributions, by bisection."""

import numpy as np
import pytest
from scipy.stats import beta, hypergeom, mannwhitneyu

from keras_het.truth.cells import Counted, Part, cells_of, fraction, jeffreys, odds, part
from keras_het.truth.verified_sample import _of_classes, _of_ranks

pytestmark = pytest.mark.once


def test_interval_of_jeffreys_is_of_the_beta_distribution():
    a, n = np.array([0.0, 0.3, 1.0, 0.5]), np.array([10.0, 20.0, 7.0, 0.0])
    low, high = jeffreys(a, n)
    own = beta(n * a + 0.5, n * (1 - a) + 0.5)
    assert low == pytest.approx([0.0, own.ppf(0.025)[1], own.ppf(0.025)[2], 0.0])
    assert high == pytest.approx([own.ppf(0.975)[0], own.ppf(0.975)[1], 1.0, 1.0])


@pytest.mark.parametrize("seed", range(5))
def test_two_cells_are_prediction_powered_inference_of_the_best_power(seed):
    """Mean of y and l times the difference of the means of f, with l = cov(y, f) / var(f)."""
    rng = np.random.default_rng(seed)
    agrees = (rng.random(1000) < 0.6).astype(float)
    rows = rng.choice(1000, 100, replace=False)
    y = (rng.random(100) < 0.2 + 0.7 * agrees[rows]).astype(float)
    f = agrees[rows]
    power = np.cov(y, f)[0, 1] / f.var(ddof=1)
    found = fraction(y, np.ones(100), agrees.astype(int), rows)
    assert found.value == pytest.approx(y.mean() + power * (agrees.mean() - f.mean()))


def test_weights_are_those_of_horvitz_and_thompson_within_a_cell():
    y, weights = np.array([1.0, 0.0, 1.0]), np.array([1.0, 2.0, 3.0])
    found = fraction(y, weights, np.zeros(30, int), np.array([3, 5, 7]))
    assert found.value == pytest.approx(4 / 6)
    low, high = jeffreys(np.array([4 / 6]), np.array([36 / 14]))
    between = 0.0  # one cell
    assert (found.low, found.high) == pytest.approx((low[0] - between, high[0]))


def test_cuts_go_by_what_is_known_of_all_and_leave_cells_filled():
    rng = np.random.default_rng(0)
    agrees, sure = (rng.random(5000) < 0.7).astype(float), rng.random(5000)
    rows = rng.choice(5000, 200, replace=False)
    cells = cells_of([agrees, sure], rows)
    seen = np.bincount(cells[rows])
    assert 4 <= len(seen) <= 8
    assert seen.min() >= 25  # an eighth
    for cell in range(len(seen)):
        assert np.ptp(agrees[cells == cell]) == 0
    few = rows[:5]
    assert set(cells_of([agrees, sure], few)) == {0, 1}  # the first cut is always made


def test_a_cell_of_which_nothing_was_verified_may_be_anything():
    found = fraction(np.ones(4), np.ones(4), np.arange(100) % 2, np.array([0, 2, 4, 6]))
    assert found.value == 1.0
    assert found.low < 0.5


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.1), (0.0, 0.2), (0.2, 0.0), (0.01, 0.3)])
def test_a_ratio_holds_what_the_sum_of_squared_distances_does_not_speak_against(a, b):
    """By trying ratios, as in Donner and Zou."""
    over, under = (part(Counted(1.0, each * 200, 200.0, 200.0)) for each in (a, b))
    found = odds(over, under, 10**9)
    a_below, a_above, b_below, b_above = np.square([*over.distances(10**9), *under.distances(10**9)])
    q = np.linspace(1e-6, 1 - 1e-6, 200_001)
    distance = a * (1 - q) - b * q
    room = np.where(distance > 0, a_below * (1 - q) ** 2 + b_above * q**2, a_above * (1 - q) ** 2 + b_below * q**2)
    inside = q[distance**2 <= room]
    assert found.value == pytest.approx(a / (a + b))
    assert (found.low, found.high) == pytest.approx((inside.min(), inside.max()), abs=2e-5)


def test_no_ratio_of_nothing():
    nothing = Part(0.0, 0.0, 0.1, 0.0)
    found = odds(nothing, nothing, 100)
    assert np.isnan(found.value)
    assert (found.low, found.high) == (0.0, 1.0)


def test_chances_of_a_random_sample_are_those_of_scipy():
    rng = np.random.default_rng(0)
    values, rows = rng.integers(4, size=300), rng.choice(300, 60, replace=False)
    counts, own = np.bincount(values), np.bincount(values[rows], minlength=4)
    for k, chance in enumerate(_of_classes(values, rows)):
        of = hypergeom(300, counts[k], 60)
        assert chance == pytest.approx(min(1.0, 2 * min(of.cdf(own[k]), of.sf(own[k] - 1))))
    inside = np.isin(np.arange(300), rows)
    of = mannwhitneyu(values[inside], values[~inside], use_continuity=False, method="asymptotic")
    assert _of_ranks(values, rows) == pytest.approx(of.pvalue)
