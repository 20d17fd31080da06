"""Kinds of noise: answers of weak raters, and flips with a random pattern."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits

from benchmarks.lib import noises

pytestmark = pytest.mark.once


def test_raters_err_where_it_is_hard_and_together():
    x, y = load_digits(return_X_y=True)
    six, one, again = (noises.answers(x / 16.0, y, count, seed=0) for count in (6, 1, 1))
    np.testing.assert_array_equal(one, again)
    wrong = six != y[:, None]
    rates = np.array([wrong[k == y].mean() for k in range(10)])
    assert 0.15 < wrong.mean() < 0.3
    assert rates.max() > 3 * rates.min()  # some classes are harder than others
    assert wrong.all(axis=1).mean() > 5 * np.prod(wrong.mean(axis=0))  # not independent
    assert np.mean(one != y[:, None]) > 1.5 * wrong.mean()


def test_random_flips_are_row_stochastic_and_of_a_seed():
    flips = noises.random_flip(6, 0.3, seed=1)
    np.testing.assert_allclose(flips.diagonal(), 0.7)
    np.testing.assert_allclose(flips.sum(axis=1), 1)
    assert not np.allclose(flips, noises.random_flip(6, 0.3, seed=2))
    np.testing.assert_array_equal(flips, noises.random_flip(6, 0.3, seed=1))
