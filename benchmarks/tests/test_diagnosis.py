"""Benchmarks of the diagnosis and of cleaning: their data and tables."""

import numpy as np
import pytest

from benchmarks.labels import cleaning, diagnosis
from benchmarks.lib import noises

pytestmark = pytest.mark.once


def row(noise, kind, seed=0, data="digits"):
    numbers = ("share", "wrong", "class", "most probable label", "T", "T, confident joint")
    result = {"data": data, "noise": noise, "seed": seed, "kind": kind, "p_value": 0.001 if seed else float("nan")}
    return result | dict.fromkeys(numbers, 0.25)


def test_what_is_said_is_counted_and_seeds_of_the_choice_stand_apart():
    rows = [
        row("pair", "class-dependent"),
        row("pair", "instance-dependent", 1),
        row("none", "none", 12),
        row("none", "none", 12, "mnist"),
    ]
    result = diagnosis.tables(rows)
    assert list(result)[:3] == ["digits, the seeds of the choice", "digits, other seeds", "mnist"]
    table = result["digits, other seeds"]
    cells = dict(zip(table[0], table[1], strict=True))
    assert (cells["class-dependent"], cells["instance-dependent"], cells["p < .05"]) == ("**1**", "1", "1 of 2")
    assert len(result["digits, the seeds of the choice"]) == 2


def test_planted_labels_are_those_of_the_shared_task():
    for noise in ("pair", "random", "outliers"):
        x, true, labels, *_ = diagnosis.planted("digits", noise, 3)
        task = noises.make("digits", noise, 3)
        np.testing.assert_array_equal(x[: len(task.train.y)], task.train.x)
        np.testing.assert_array_equal(labels[: len(task.train.y)], task.train.y)
        np.testing.assert_array_equal(true[: len(task.train.y)], task.truth.labels)
    assert diagnosis.planted("12 pixels", "none", 0)[0].shape == (1280, 12)


def test_the_table_of_cleaning_has_paired_differences_in_points():
    base = {"noise": "pair", "wrong": 0.4, "issues": 0.3, "drop all": 0.7, "correct certain": 0.5, "correct all": 0.5}
    rows = [base | {"plain": 0.5 + 0.1 * seed, "drop certain": 0.6 + 0.1 * seed} for seed in range(2)]
    assert cleaning.table(rows)[1] == [
        *("pair", "0.400", "0.300", "0.550", "**+10.0 +- 0.0**", "**+15.0 +- 5.0**", "-5.0 +- 5.0", "-5.0 +- 5.0")
    ]
