"""The benchmark of the truth: its population, its redraws, and its tables."""

import numpy as np
import pytest

from benchmarks.labels import truth
from benchmarks.lib import results
from benchmarks.lib.views.labels import TRUTH
from benchmarks.lib.views.rows import picked

pytestmark = pytest.mark.once


class Small:
    """A population that needs no training: the model has three classes of four right."""

    def __init__(self, by_example=False):
        rng = np.random.default_rng(0)
        self.size, self.y = 4, rng.integers(4, size=800)
        said = np.where(rng.random(800) < 0.75, self.y, (self.y + 1) % 4)
        self.p = 0.6 * np.eye(4)[said] + 0.1
        self.transition = 0.6 * np.eye(4) + 0.1
        self.rows = np.where(by_example, 0.6 * np.eye(4)[self.y] + 0.4 * np.eye(4)[said], self.transition[self.y])
        self.transition = np.stack([self.rows[self.y == k].mean(axis=0) for k in range(4)])
        self.raters, self.learned, self.right = np.stack([self.transition] * 3), self.transition, said == self.y

    sample, clean = truth.Population.sample, truth.Population.clean


def test_labels_are_drawn_by_their_rows():
    rows = np.array([[0.7, 0.3, 0.0], [0.0, 0.0, 1.0]]).repeat(20_000, axis=0)
    labels = truth.draw(rows, np.random.default_rng(0))
    assert abs(np.mean(labels[:20_000] == 1) - 0.3) < 5 * np.sqrt(0.21 / 20_000)
    assert (labels[:20_000] != 2).all()
    assert (labels[20_000:] == 2).all()


@pytest.mark.parametrize("way", [truth.KNOWN, "20 clean labels a class", "3 annotators, Dawid and Skene"])
def test_every_way_to_a_t_gives_figures_near_the_truth(way):
    row = truth.performance(Small(), way, 0, redraws=4, draws=5)
    assert abs(row["value"] - row["true"]) < 0.15
    assert (row["redraws"], row["refused"]) == (4, 0)
    assert abs(row["true"] - 0.75) < 0.06


def test_sets_and_checks_have_figures():
    row = truth.sets(Small(), "known T, LAC", 0, redraws=3)
    assert 0.7 < row["cover"] <= 1.0
    assert "promised, dependence" not in truth.checks(Small(), 0, 4)
    found = truth.checks(Small(by_example=True), 0, 6)
    assert found["bias"] > 0.01
    assert 0 < found["promised, dependence"] < 200
    assert found["says no"] == 1.0


def test_tables_have_the_means_over_the_seeds():
    base = {"task": "digits", "redraws": 2, "refused": 0}
    rows = [base | {"seed": seed, "kind": "accuracy", "way": truth.KNOWN, "holds": 0.9 + 0.1 * seed} for seed in (0, 1)]
    rows += [base | {"seed": 0, "kind": "sets", "way": "ordinary", "cover": 1.0, "deviation": 0.0, "size": 7.0}]
    rows += [base | {"seed": 0, "kind": "check", "way": "", "bias": 0.2, "promised, dependence": 60}]
    made = list(truth.tables(rows).values())
    assert made[0][1][:3] == ["digits", "known", "0.950"]
    assert made[1][1] == ["digits", "ordinary", "1.000", "0.000", "7.00", "2", "0"]
    assert made[2][1][:4] == ["digits", "0.200", "", "60"]


def test_with_t_known_intervals_hold_the_truth_and_sets_reach_their_level():
    """What the page says, by the results that are committed."""
    tables = results.read(results.FOLDER / "truth.json").tables
    rows = picked(tables[TRUTH], "task", "T", "95% interval holds it")
    known = [float(holds) for task, t, holds in rows if t == truth.KNOWN and task != truth.BY_EXAMPLE]
    assert known
    assert all(0.93 <= holds <= 0.97 for holds in known)
    rows = picked(tables["sets that shall hold the true class in 90%"], "task", "sets", "mean cover")
    with_margin = [float(cover) for task, rule, cover in rows if rule == "known T, LAC" and task != truth.BY_EXAMPLE]
    assert all(cover >= 0.9 for cover in with_margin)
