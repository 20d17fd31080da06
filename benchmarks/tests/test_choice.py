"""Benchmark of the choice of a method: its tables by hand, and lines that are computed once."""

import types

import numpy as np
import pytest

from benchmarks.labels import choice
from benchmarks.lib import experiments, tasks
from benchmarks.lib.views import real

pytestmark = pytest.mark.once

FIRST, SECOND = choice.REFERENCE, "choose"


def line(row, seed, accuracy, noise="pair", **other):
    key = {"data": "digits", "noise": noise, "seed": seed, "row": row}
    return {**key, "clean accuracy": accuracy, "trainings": 3, "name": row, "processor": 6.0, **other}


LINES = [
    line(FIRST, 0, 0.5),
    line(FIRST, 1, 0.7),
    line(SECOND, 0, 0.6, processor=40.0, trainings=20),
    line(SECOND, 1, 0.6, processor=44.0, trainings=22),
    line(SECOND, 2, 0.9),  # without a reference
    line(FIRST, 0, 0.5, noise="none"),
    line(SECOND, 0, 0.5, noise="none"),
]


def test_points_are_of_the_seeds_that_both_have():
    np.testing.assert_allclose(choice.points(LINES[:5], SECOND), [10.0, -10.0])


def test_the_table_has_a_row_for_each_noise_and_their_mean():
    head, pair, none, mean = choice.gains(LINES, "digits")
    place = head.index(SECOND)
    assert pair[:2] == ["pair", "0.600"]
    assert (pair[place], none[place], mean[place]) == ("+0.0 +- 10.0", "+0.0", "+0.0")


def test_costs_are_beside_one_training_of_early_stopping():
    rows = choice.costs(LINES[:4])
    assert rows[1] == ["digits", FIRST, "3.0", "6.0", "3.0"]
    assert rows[2] == ["digits", SECOND, "21.0", "42.0", "21.0"]


def test_a_line_is_not_computed_twice(tmp_path, monkeypatch):
    calls = []

    def count(task, seed):
        calls.append(seed)
        return {"clean accuracy": 0.5, "trainings": 3, "name": "early stopping"}

    monkeypatch.setattr(choice, "ROWS", {FIRST: count})
    monkeypatch.setattr(choice, "task_of", lambda *key: tasks.table(0.3, 0))
    values = {"data": ["digits"], "noises": ["pair"], "rows": [FIRST], "seeds": 2, "epochs": None}
    options = types.SimpleNamespace(output=tmp_path, render=False, **values)
    for _ in range(2):
        experiments.completed(options, "choice", choice.keys(options), choice.measured)
    assert calls == [0, 1]


def test_the_table_of_breast_cancer_has_wrong_labels_of_one_class():
    task = tasks.table(0.3, 0)
    assert task.train.x.shape == (300, 30)
    assert len(task.test.y) == 169
    assert 0.5 < np.mean(np.concatenate([task.train.y, task.validation.y]) == 0) < 0.7  # .37 of them are malignant


def test_the_view_has_a_row_for_each_noise_of_the_digits_and_for_other_data():
    def of(name, title):
        noises = ("pair", "mean") if title.startswith("digits") else ("its own",)
        rows = [[noise, title[:5], "", "+3.0 +- 1.0", "a"] for noise in noises]
        return [["noise", FIRST, "other", SECOND, "chosen"], *rows]

    rows = real.choice(of)[1:]
    assert [row[1] for row in rows] == ["digit", "table", "words", "MNIST", "image"]
    assert rows[0] == ["digits, pair", "digit", "**+3.0 +- 1.0**", "a"]
