"""Benchmark of the recipe: its tasks, its scores by hand, a run, and the choices of its report."""

import numpy as np
import pytest

from benchmarks.labels import recipe, recipe_report
from benchmarks.lib import lines, tasks

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("make", "rate"), [("digits", 0.4), ("images", 0.2)])
def test_training_and_validation_labels_are_noisy_and_the_test_labels_clean(make, rate):
    noisy, clean = (getattr(tasks, make)(level, 3) for level in (rate, 0.0))
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(noisy, part).x, getattr(clean, part).x)
        wrong = np.mean(getattr(noisy, part).y != getattr(clean, part).y)
        assert wrong == (0 if part == "test" else pytest.approx(rate, abs=0.08)), part
    assert np.any(noisy.train.x != getattr(tasks, make)(rate, 4).train.x)


def test_labels_of_groups_stay_in_their_group():
    task = tasks.grouped(20, 50, 0.4, 0)
    centers = np.stack([task.test.x[task.test.y == k].mean(0) for k in range(20)])
    nearest = np.square(task.train.x[:, None] - centers).sum(-1).argmin(-1)
    assert np.mean(nearest == task.train.y) == pytest.approx(0.6, abs=0.1)
    assert np.mean(nearest // tasks.GROUP == task.train.y // tasks.GROUP) > 0.97


def test_scores_by_hand():
    p = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    result = recipe.scores(np.log(p), np.array([0, 0, 0, 2]))
    assert result["accuracy"] == 0.75
    assert result["NLL"] == pytest.approx(-np.log([0.5, 0.25, 0.5, 0.8]).mean())
    assert result["ECE"] == pytest.approx((abs(3 * 0.5 - 2) + abs(0.8 - 1)) / 4)
    assert result["absolute error"] == pytest.approx(1 - np.mean([0.5, 0.25, 0.5, 0.8]))
    assert result["GCE"] == pytest.approx(np.mean(1 - np.array([0.5, 0.25, 0.5, 0.8]) ** 0.7) / 0.7)
    powers = [p**t / (p**t).sum(axis=1, keepdims=True) for t in np.geomspace(0.1, 10, 2001)]
    assert result["scaled NLL"] == pytest.approx(
        min(-np.log(q[range(4), [0, 0, 0, 2]]).mean() for q in powers), abs=1e-4
    )


@pytest.mark.parametrize("method", ["Dense", "parameter-efficient"])
def test_a_run_has_the_scores_of_every_epoch_and_is_known_by_its_setting(method, monkeypatch, tmp_path):
    monkeypatch.setitem(tasks.TASKS, "small", lambda seed: tasks.digits(0.4, seed)._replace(epochs=3))
    key = {"task": "small", "seed": 1, **recipe.Setting(method, 3.0, l2=1e-3, num_samples=8)._asdict()}
    (line,) = lines.completed(tmp_path / "recipe.jsonl", [key], recipe.run)
    assert lines.completed(tmp_path / "recipe.jsonl", [key], None) == [line]
    first, _, last = line["epochs"]
    assert last["clean accuracy"] > 0.25
    assert last["training loss"] < first["training loss"]


def test_symmetric_flips_name_any_other_class():
    clean, noisy = (tasks.digits(rate, 3, at_random=True).train.y for rate in (0.0, 0.4))
    flipped = noisy != clean
    assert np.mean(flipped) == pytest.approx(0.4, abs=0.05)
    counts = np.bincount((noisy - clean)[flipped] % 10, minlength=10)[1:]
    assert counts.min() > flipped.sum() / 9 / 2  # look-alikes would name few


def test_the_report_takes_the_best_epoch_and_the_correlation_of_ranks():
    def epoch(noisy, clean):
        figures = {name: sign * noisy for name, sign in recipe_report.CRITERIA.items()}
        return {
            **figures,
            "noisy ECE": 0.0,
            "clean accuracy": clean,
            "clean NLL": -clean,
            "clean ECE": clean,
            "clean scaled NLL": -clean,
        }

    runs = [
        {
            "task": "t",
            "seed": seed,
            "method": "Dense",
            "temperature": temperature,
            "l2": 0.0,
            "epochs": [epoch(*e) for e in epochs],
        }
        for seed in (0, 1)
        for temperature, epochs in ((1.5, [(1, 0.1), (4, 0.4)]), (5.0, [(2, 0.2), (3, 0.3)]))
    ]
    for criterion in recipe_report.CRITERIA:
        assert [(run["temperature"], best) for run, best in recipe_report.chosen(runs, criterion)] == [
            (1.5, 1),
            (1.5, 1),
        ]
    tables = recipe_report.describe(runs)
    for criterion in recipe_report.CRITERIA:
        assert tables[f"t: chosen by {criterion}"][1][:3] == ["Dense", "0.400 +- 0.000", "-0.400 +- 0.000"]
    for title in ("mean rank correlation over the tasks", "t: rank correlation over all epochs of all runs"):
        assert all(row[1:5] == ["1.00", "1.00", "-1.00", "1.00"] for row in tables[title][1:])
        assert len(tables[title][1:]) == len(recipe_report.CRITERIA)


def test_gains_are_over_dense_with_the_same_seed():
    def run(method, seed, figure):
        epochs = [{**dict.fromkeys((*recipe_report.CRITERIA, *recipe_report.GAINS), 0.0), "clean accuracy": figure}]
        return {"task": "t", "seed": seed, "method": method, "temperature": 5.0, "l2": 0.0, "epochs": epochs}

    rows = recipe_report.gains(
        [run("Dense", 0, 0.5), run("Dense", 1, 0.7), run("full", 0, 0.6), run("full", 1, 0.8)], "noisy NLL"
    )
    assert [row[:3] for row in rows[1:]] == [["t", "Dense", "0.600 +- 0.100"], ["", "full", "+0.100 +- 0.000"]]
    assert [row[-1] for row in rows] == ["seeds", "2", "2"]


def test_variations_are_named_by_what_they_change():
    epochs = [dict.fromkeys((*recipe_report.CRITERIA, *recipe_report.GAINS), 0.5)]
    runs = [
        {"task": "t", "seed": seed, "method": "full", "temperature": 5.0, "l2": 0.0, "rate": rate, "epochs": epochs}
        for seed in (0, 1)
        for rate in (1.0, 0.2)
    ]
    rows = recipe_report.variations(runs, ("temperature", "rate"))[1:]
    assert [row[1] for row in rows] == ["nothing", "rate 0.2"]
    assert all(set(row[2:]) == {"0.500 +- 0.000"} for row in rows)


def test_the_covariance_has_a_learning_rate_of_its_own():
    task = tasks.digits(0.4, 0)
    kernels = {}
    for rate in (0.0, 1.0):
        model = recipe.make_model(task, recipe.Setting("full", rate=rate, num_samples=8), 0)
        head = model.layers[-1]
        before = [layer.kernel.numpy() for layer in (head.loc_layer, head.covariance.factor_layer)]
        model.fit(task.train.x[:64], task.train.y[:64], verbose=0)
        kernels[rate] = [
            np.abs(layer.kernel.numpy() - start).max()
            for layer, start in zip((head.loc_layer, head.covariance.factor_layer), before, strict=True)
        ]
    assert kernels[0.0][0] > 0
    assert kernels[0.0][1] == 0
    assert min(kernels[1.0]) > 0
