"""The benchmarks of costs: the floor, growth along a size, the sizes of a sweep, the table of estimates."""

import json

import keras
import numpy as np
import pytest

from benchmarks.cost import devices, estimate, memory_map, neighbors, speed
from benchmarks.lib import results

pytestmark = pytest.mark.once

SIZES = {"B": 2, "D": 3, "K": 5, "R": 1, "S": 7}


def test_the_work_of_the_floor_by_hand():
    # Three maps of 3 x 5; 7 nodes for 2 x 5 logits, two exponentials and three products of one factor each.
    assert speed.work("full", "train", **SIZES) == (2 * 7 * 10, 4 * 3 * (2 * 3 * 5) + 6 * 7 * 10, 20 * 3 * 15)
    # Narrow: two maps of 3 x 5, one of 3 x 16 and one of 16 x 5.
    maps = 2 * (3 * 5) + 3 * 16 + 16 * 5
    assert speed.work("narrow", "train", **SIZES) == pytest.approx((2 * 7 * 10, 4 * 2 * maps + 6 * 7 * 10, 20 * maps))
    assert speed.work("diagonal", "predict", **SIZES) == (7 * 10, 2 * 2 * (2 * 3 * 5), 4 * 2 * 15)
    assert speed.work("Dense", "train", **SIZES) == (0, 4 * (2 * 3 * 5), 20 * 15)


@pytest.mark.parametrize(
    ("rates", "expected"), [((1e9, 10.0, 1e9), 7.0), ((40.0, 1e9, 1e9), 3.0), ((1e9, 1e9, 12.0), 10.0)]
)
def test_the_floor_is_bound_by_what_is_slowest(rates, expected):
    assert speed.floor("diagonal", "predict", SIZES, rates) == pytest.approx(expected)


def test_growth_is_fitted_along_one_size_alone():
    base = {"B": 128, "D": 64, "K": 10, "R": 5, "S": 256}
    rows = [{**base, "S": s, "mode": "train", "seconds": 0.1 * s**1.5} for s in (16, 64, 256)]
    others = [
        {**base, "S": 16, "B": 1, "mode": "train", "seconds": 9.0},
        {**base, "S": 16, "mode": "predict", "seconds": 9.0},
    ]
    assert speed.exponent(rows + others, "train", "S", base, "seconds") == "1.50"
    assert speed.exponent(rows[:1], "train", "S", base, "seconds") == ""


def test_every_head_is_measured_along_the_sizes_that_it_has():
    rows = list(speed.grid(speed.BASE, speed.SWEEPS))
    assert {head for head, _ in rows} == set(speed.HEADS)
    assert {sizes["K"] for head, sizes in rows if head == "parameter-efficient"} == {10, 100, 1000, 21_843}
    assert all(sizes["R"] == 0 for head, sizes in rows if head == "diagonal")
    assert all(sizes["S"] == 0 for head, sizes in rows if head.startswith("sigmoid"))


def test_the_base_alone_is_one_row_a_head():
    rows = list(speed.grid(speed.BASE, {"B": [speed.BASE["B"]]}, ["full", "narrow"]))
    assert rows == [("full", speed.BASE), ("narrow", speed.BASE)]


def test_the_table_of_estimates_has_a_column_for_each_backend():
    def line(backend, integrator, planned, measured):
        head = {"covariance": "low_rank", "link": "softmax", "integrator": integrator}
        costs = {"train_time": planned, "predict_time": 2 * planned, "train_bytes": 3 * 2**20}
        found = {"train": measured, "predict": 2 * measured, "memory": 4.0}
        return {"backend": backend, "sizes": {"units": 5}, "estimate": head | costs, "measured": found}

    lines = [line("jax", "Taylor", 2.0, 2.5), line("torch", "Taylor", 3.0, 3.5), line("jax", "OwnNoise", 4.0, 4.5)]
    (table,) = estimate.report(lines).values()
    assert table[0][3:5] == ["step: jax", "step: torch"]
    assert table[1] == [
        "low_rank",
        "softmax",
        "Taylor",
        "2.0 (2.5)",
        "3.0 (3.5)",
        "4.0 (5.0)",
        "6.0 (7.0)",
        *["3 (4)"] * 2,
    ]
    assert table[2][3:] == ["4.0 (4.5)", "", "8.0 (9.0)", "", "3 (4)", ""]


def test_every_estimated_row_is_a_head_that_can_be_made():
    rows = estimate.estimated({"units": 4, "features": 6, "batch": 2, "num_samples": 8})
    assert len(rows) > 10
    for row in rows:
        model = estimate.make_model(row, 4, 6)
        assert type(model.layers[-1].integrator).__name__ == row["integrator"]


def test_the_estimates_are_within_thirty_percent_of_the_memory_that_was_measured(monkeypatch):
    """On one device and on four: the file of results has what XLA said, and the estimates are of this version."""
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    published = results.read(results.FOLDER / "devices.json").tables
    _, *rows = published[f"MiB of each device, {json.dumps(devices.SIZES)}"]
    assert len(rows) == len(devices.HEADS)
    for row in rows:
        for count, cell in zip(devices.DEVICES, row[1:3], strict=True):
            found = devices.estimated(count, devices.SIZES)[row[0]]["train_bytes"] / 2**20
            assert found == pytest.approx(float(cell.split()[0]), rel=0.3)


def test_growth_of_the_search_is_the_power_of_the_number_of_examples():
    rows = [
        {"examples": n, "features": 4, "processor": 1e-4 * n**1.2, "seconds": 1.0, "memory": 0.0, "recall": 0.96}
        for n in (1000, 50_000)
    ]
    assert [line[-1] for line in neighbors.table(rows)] == ["growth", "", "1.20"]


def test_probabilities_of_the_memory_map_are_those_of_labels_that_are_mostly_right(tmp_path):
    memory_map.write(tmp_path, 9000, 5)
    p, labels = np.load(tmp_path / "p.npy"), np.load(tmp_path / "labels.npy")
    assert p.dtype == "float32"
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
    assert 0.6 < np.mean(p.argmax(axis=1) == labels) < 0.9
