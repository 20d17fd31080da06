"""Benchmarks of labels: their data, and the scores and tables that they make of predictions."""

import keras
import numpy as np
import pytest

from benchmarks.labels import regression
from benchmarks.lib.views.rows import bold

pytestmark = pytest.mark.once


def test_gains_and_losses_beyond_two_standard_errors_are_bold():
    cells = ["+4.2 +- 0.9", "-3.0 +- 1.0", "+2.0 +- 1.0"]
    assert [bold(cell) for cell in cells] == ["**+4.2 +- 0.9**", "**-3.0 +- 1.0**", "+2.0 +- 1.0"]


def test_the_folds_of_linnerud_have_every_example_once():
    parts = [regression.splits("linnerud", 0, fold)[0] for fold in range(4)]
    assert {len(part[0]) for fold in parts for part in fold} == {11, 4, 5}
    whole = [np.concatenate([x for x, _ in fold]) * 1.0 for fold in parts]
    assert all(len(np.unique(x, axis=0)) == len(np.unique(whole[0], axis=0)) for x in whole)
    order = [np.roll(np.random.default_rng(0).permutation(20), 5 * fold)[15:] for fold in range(4)]
    assert sorted(np.concatenate(order)) == list(range(20))


def test_the_planted_covariance_is_that_of_the_noise_and_is_recovered_from_itself():
    x, y, covariance, _ = regression.planted(np.random.default_rng(0), count=20_000)
    rows = np.abs(x).max(1) < 0.4  # where the covariance hardly changes
    centred = (
        y[rows]
        - np.concatenate([x[rows], np.ones((rows.sum(), 1))], 1)
        @ np.linalg.lstsq(np.concatenate([x[rows], np.ones((rows.sum(), 1))], 1), y[rows], rcond=None)[0]
    )
    np.testing.assert_allclose(centred.T @ centred / rows.sum(), covariance[rows].mean(0), atol=0.35)
    factor = np.linalg.cholesky(covariance - 1e-6 * np.eye(5))
    packed = np.concatenate([y, np.full_like(y, 1e-3), factor.reshape(len(y), -1), -np.ones((len(y), 1))], axis=1)
    assert regression.recovered(packed, covariance) == pytest.approx((1.0, 0.0), abs=1e-6)


def test_the_natural_head_has_the_mean_and_the_variance_of_its_parameters():
    head = regression.natural_head(2)
    outputs = keras.ops.convert_to_numpy(head(np.ones((1, 3), "float32")))[0]
    first, second = np.split(np.ones(3) @ keras.ops.convert_to_numpy(head.maps.kernel), 2)
    precision = np.log1p(np.exp(second))
    np.testing.assert_allclose(outputs, [*(first / precision), *precision**-0.5, -1.0], rtol=1e-4)
