"""Checks of refusals, and of a sample against a distribution with a stated probability of a false alarm."""

import numpy as np
import pytest
from scipy.stats import norm

FALSE_ALARM = 1e-6


def z_limit(count):
    """Returns the limit that any of `count` standard normals exceeds with probability FALSE_ALARM (Bonferroni)."""
    return norm.isf(FALSE_ALARM / (2 * count))


def check_moments(samples, mean, covariance):
    """Asserts that Gaussian samples, (S, K), have this mean and this covariance, every off-diagonal included.

    Under the hypothesis the entries of the empirical moments are normal to first order, with variances Sigma_ii / S and
    (Sigma_ii Sigma_jj + Sigma_ij^2) / S.
    """
    samples, covariance = np.float64(samples) - mean, np.float64(covariance)
    count, units = samples.shape
    limit, variance = z_limit(units + units * (units + 1) / 2), np.diag(covariance)
    z = samples.mean(0) / np.sqrt(variance / count)
    assert np.abs(z).max() < limit, f"mean off by {np.abs(z).max():.1f} standard errors (limit {limit:.1f})"
    z = (samples.T @ samples / count - covariance) / np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    worst = np.unravel_index(np.abs(z).argmax(), z.shape)
    assert np.abs(z).max() < limit, (
        f"covariance {worst} off by {np.abs(z).max():.1f} standard errors (limit {limit:.1f})"
    )


def check_independent(first, second):
    """Asserts that two sets of standard normals, (S, K) and (S, R), are uncorrelated, and so are their squares."""
    count = len(first)
    for power, spread in ((1, 1.0), (2, 2.0)):
        a, b = np.float64(first) ** power - (power == 2), np.float64(second) ** power - (power == 2)
        z = a.T @ b / (spread * np.sqrt(count))
        limit = z_limit(2 * z.size)
        assert np.abs(z).max() < limit, (
            f"correlation of powers {power} is {np.abs(z).max():.1f} standard errors (limit {limit:.1f})"
        )


def check_standard_normal(samples):
    """Asserts by a Kolmogorov-Smirnov test that the samples (any shape) are independent standard normals."""
    ordered = norm.cdf(np.sort(np.float64(samples).ravel()))
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1]))
    limit = np.sqrt(np.log(2 / FALSE_ALARM) / (2 * len(ordered)))  # Dvoretzky-Kiefer-Wolfowitz-Massart
    assert distance < limit, f"distribution function off by {distance:.2e} (limit {limit:.2e})"


def refusals(table, whole=False):
    """Returns a test that each call of a table, pairs of a call and a text, raises a ValueError with this text.

    Args:
        table: pairs of a function without arguments and a text.
        whole: boolean, whether the text is the whole error, or a part of it.
    """

    @pytest.mark.parametrize(("call", "text"), table)
    def test(call, text):
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == text if whole else text in str(error.value)

    return test
