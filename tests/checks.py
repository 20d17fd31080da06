"""Checks of refusals, and of a sample against a distribution with a stated probability of a false alarm."""

import functools
import re

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


def refused_arguments(function, rules, **others):
    """Returns refusals, `{text: call}`, of single arguments: `{"argument": [(rule, *values)]}`.

    The text of each is "`argument` must <rule>", with "Received: argument=<value>" behind it.
    """
    return {
        f"`{name}` must {rule}...Received: {name}={value!r}": functools.partial(function, **{**others, name: value})
        for name, cases in rules.items()
        for rule, *values in cases
        for value in values
    }


def refusals(*tables, whole=False, errors=ValueError):
    """Returns a test that each call of some tables raises an error with its text. "..." stands for any characters.

    Args:
        tables: pairs of a function without arguments and a text, or `{text: function}`.
        whole: boolean, whether the text is the whole error, or a part of it.
        errors: class of the errors, or several.
    """
    pairs = [
        pair for table in tables for pair in ([(b, a) for a, b in table.items()] if isinstance(table, dict) else table)
    ]

    @pytest.mark.parametrize(("call", "text"), pairs, ids=[text[:80] for _, text in pairs])
    def test(call, text):
        with pytest.raises(errors) as error:
            call()
        pattern = ".*".join(re.escape(part) for part in text.split("..."))
        match = re.fullmatch if whole else re.search
        assert match(pattern, str(error.value), re.DOTALL), str(error.value)

    return test
