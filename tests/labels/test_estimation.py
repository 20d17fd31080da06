"""Which classes are taken for which: no more false alarms than is said, and what is planted is found."""

import numpy as np
import pytest
from scipy.stats import binom

from keras_het.labels.estimation import flip_p_values, systematic_flips
from tests.checks import FALSE_ALARM, refusals

pytestmark = pytest.mark.once


def alarms(tables, shares, seed):
    """In how many tables any flip is called systematic.

    A table has 200 flips of each of five classes, with these shares of the four others.
    """
    rng = np.random.default_rng(seed)
    others = ~np.eye(5, dtype=bool)
    count = 0
    for _ in range(tables):
        counts = np.diag(np.full(5, 900.0))
        counts[others] = np.concatenate([rng.multinomial(200, shares) for _ in range(5)])
        count += systematic_flips(counts).any()
    return count


@pytest.mark.statistical
@pytest.mark.planted
def test_flips_to_any_class_are_rarely_called_systematic_and_others_are(base_seed, redraws):
    """At most one table of a hundred, by Bonferroni; the same check catches a class that gets a third of the flips."""
    tables = redraws(2000)
    limit = binom.isf(FALSE_ALARM, tables, 0.01)
    assert alarms(tables, [0.25] * 4, base_seed) <= limit
    assert alarms(tables, [0.34, 0.22, 0.22, 0.22], base_seed) > limit


def test_p_values_are_those_of_the_binomial_distribution_and_two_classes_tell_nothing():
    assert not systematic_flips([[50, 50], [90, 10]]).any()
    assert systematic_flips([[7.0]]).tolist() == [[False]]
    counts = np.array([[90, 30, 3, 2], [2, 95, 0, 1], [4, 2, 90, 3], [0, 0, 0, 96]])
    found = flip_p_values(counts)
    assert found[0, 1] == pytest.approx(binom.sf(29, 35, 1 / 3), rel=1e-9)
    assert found[1, 0] == pytest.approx(binom.sf(1, 3, 1 / 3), rel=1e-9)
    assert found[3].tolist() == [1.0] * 4
    assert found[1, 2] == found[0, 0] == 1.0


test_wrong_counts = refusals([
    (lambda: systematic_flips([[1.0, 2.0]]), "must be a square matrix"),
    (lambda: systematic_flips([[1, -1], [0, 1]]), "must not be negative"),
])  # fmt: skip
