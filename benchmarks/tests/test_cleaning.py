"""Benchmark of cleaning: its data and tables."""

import numpy as np
import pytest

from benchmarks.labels import cleaning
from benchmarks.lib import noises

pytestmark = pytest.mark.once


def test_planted_labels_are_those_of_the_shared_task():
    for noise in ("pair", "random", "outliers"):
        x, _, labels = cleaning.planted(noise, 3)
        task = noises.make(noise, 3)
        np.testing.assert_array_equal(x[: len(task.train.y)], task.train.x)
        np.testing.assert_array_equal(labels[: len(task.train.y)], task.train.y)


def test_the_table_of_cleaning_has_paired_differences_in_points():
    base = {"noise": "pair", "wrong": 0.4, "issues": 0.3, "drop all": 0.7, "correct certain": 0.5, "correct all": 0.5}
    rows = [base | {"plain": 0.5 + 0.1 * seed, "drop certain": 0.6 + 0.1 * seed} for seed in range(2)]
    assert cleaning.table(rows)[1] == [
        *("pair", "0.400", "0.300", "0.550", "**+10.0 +- 0.0**", "**+15.0 +- 5.0**", "-5.0 +- 5.0", "-5.0 +- 5.0")
    ]
