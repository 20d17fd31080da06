"""The benchmark of epochs: its task, a run, and what its rules choose by hand."""

import numpy as np
import pytest

from benchmarks.labels import epochs, epochs_report
from benchmarks.lib import tasks

pytestmark = pytest.mark.once

# Two labels in ten are a standard error apart: of differences of 1, 1 and eight zeros the mean is 0.2, the error 0.13.
RIGHT = np.array([[1] * 5 + [0] * 5, [1] * 8 + [0] * 2, [1] * 7 + [0] * 3, [1] * 8 + [0] * 2, [1] * 6 + [0] * 4], bool)
LOSSES = (
    np.array([1.0, 1.2, 1.21, 1.3, 2.0])[:, None] + np.linspace(-0.1, 0.1, 10) * np.array([1, 1, -1, 1, 1])[:, None]
)


def test_rules_by_hand():
    found = {name: int(rule(LOSSES, RIGHT)) for name, rule in epochs_report.RULES.items()}
    assert found == {
        "noisy NLL": 0,
        "noisy accuracy": 1,
        "accuracy, NLL within 1 s.e.": 0,
        "NLL, accuracy within 1 s.e.": 1,
        "accuracy, latest of equals": 3,
        "latest, accuracy within 1 s.e.": 3,
        "last epoch": 4,
    }
    wide = LOSSES + np.array([[0], [8], [0], [0], [0]]) * np.eye(10)[9]  # one example alone is worse: no clear loss
    assert epochs_report.RULES["accuracy, NLL within 1 s.e."](wide, RIGHT) == 0
    assert epochs_report.RULES["accuracy, NLL within 1 s.e."](wide - [[0], [0.3], [0], [0], [0]], RIGHT) == 1


def test_a_missed_epoch_is_better_by_two_standard_errors():
    first, later = np.array([1] * 50 + [0] * 50, bool), np.array([1] * 60 + [0] * 40, bool)
    assert epochs_report.misses(np.stack([first, later]), 0)
    assert not epochs_report.misses(np.stack([first, later]), 1)
    assert not epochs_report.misses(np.stack([first[:60], np.roll(first[:60], 1)]), 0)


def run(task, method, seed, accuracies):
    return {
        "task": task,
        "method": method,
        "seed": seed,
        "epochs": 5,
        "noisy losses": LOSSES,
        "noisy right": RIGHT,
        "clean accuracy": np.array(accuracies),
        "clean NLL": -np.array(accuracies),
    }


def test_the_tables_have_the_figures_of_the_chosen_epochs():
    runs = [run("t", "full", seed, [0.5 + 0.1 * seed, 0.7 + 0.1 * seed, 0, 0, 0.2]) for seed in (0, 1)]
    tables = epochs_report.describe([*runs, run("u", "full", 0, [0.5] * 5)], {"one half": ["t"], "another": ["u"]})
    (row,) = tables["one half: clean accuracy"][1:]
    assert row[:6] == ["full", "t", "5", "2", "0.550 +- 0.050", "0.750 +- 0.050"]
    assert tables["one half: clean NLL"][1][5] == "-0.750 +- 0.050"
    added = tables["one half: clean accuracy added to the epoch of the least noisy NLL"]
    assert added[1] == ["full", "noisy accuracy", "+0.200 (1 larger, 0 smaller)", "", ""]
    assert added[-1] == ["full", "last epoch", "-0.350 (0 larger, 1 smaller)", "", ""]
    assert tables["a later epoch is clearly better by noisy accuracy"][1][:4] == ["full", "x1", "3", "0"]


def test_late_epochs_are_counted_beside_twice_as_many():
    best = np.full((10, 10), 2.0)
    best[4], best[9] = 1.0, 0.5  # the last of five epochs, and of ten
    runs = [
        {
            **run("t", "full", seed, [0.1 * epoch + seed for epoch in range(10)]),
            "noisy losses": best if seed else np.roll(best, -2, axis=0),
            "noisy right": np.zeros((10, 10), bool),
        }
        for seed in (0, 1)
    ]
    # Of seed 0 the best epochs are 2 of 5 and 7 of 10, counted from 0, of seed 1 4 and 9.
    assert epochs_report.late(runs)[1] == ["full", "x1", "2", "1", "0.500", "0.500"]


def test_a_run_is_read_back_and_has_every_epoch(tmp_path, monkeypatch):
    monkeypatch.setitem(epochs.TASKS, "small", lambda seed: tasks.swapped_digits(seed)._replace(epochs=2))
    key = epochs.Key("small", "full", 1)
    np.savez(key.path(tmp_path), **epochs.run(key, 2))
    (found,) = epochs.read(tmp_path)
    assert (found["task"], found["method"], found["seed"], found["epochs"]) == ("small", "full", 1, 2)
    assert found["temperature"] == 5.0
    assert found["noisy losses"].shape == found["noisy right"].shape == (4, 350)
    assert found["clean accuracy"].shape == found["clean NLL"].shape == (4,)
    assert found["clean accuracy"][-1] > 0.2
    assert found["clean NLL"][-1] < found["clean NLL"][0]


def test_look_alikes_are_swapped_and_a_few_labels_are_any_class():
    task = tasks.swapped_digits(0)
    assert [len(part.y) for part in (task.train, task.validation, task.test)] == [997, 350, 450]
    x, y = (np.concatenate([getattr(part, name) for part in (task.train, task.validation)]) for name in "xy")
    clean = tasks.digits(0.0, 0)  # the same order
    true = np.concatenate([clean.train.y, clean.validation.y, clean.test.y])[: len(y)]
    np.testing.assert_array_equal(clean.train.x, x[: len(clean.train.x)])
    for i, j in ((1, 7), (3, 8), (4, 9)):
        assert np.mean(y[true == i] == j) == pytest.approx(0.29, abs=0.13)
    assert np.mean(y[np.isin(true, [0, 2, 5, 6])] == true[np.isin(true, [0, 2, 5, 6])]) > 0.9


def test_every_task_is_in_one_half():
    assert sorted(name for half in epochs.HALVES.values() for name in half) == sorted(epochs.TASKS)
