"""Benchmarks of costs: the floor, growth along a size, the sizes of a sweep."""

import json
import sys

import keras
import numpy as np
import pytest

from benchmarks.cost import devices, gpu, speed
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


def test_the_memory_of_a_prediction_is_read_before_a_step(monkeypatch):
    used = []
    monkeypatch.setattr(speed.harness, "peak_device_memory", lambda: len(used))
    calls = {mode: lambda mode=mode: used.append(mode) for mode in speed.MODES}
    assert speed.measure_memory(calls) == {"predict": {"peak_mib": 2}, "train": {"peak_mib": 4}}


def test_every_head_is_measured_along_the_sizes_that_it_has():
    rows = list(speed.grid(speed.BASE, speed.SWEEPS))
    assert {head for head, _ in rows} == set(speed.HEADS)
    assert {sizes["K"] for head, sizes in rows if head == "parameter-efficient"} == {10, 100, 1000, 21_843}
    assert all(sizes["R"] == 0 for head, sizes in rows if head == "diagonal")
    assert all(sizes["S"] == 0 for head, sizes in rows if head.startswith("sigmoid"))


def test_the_base_alone_is_one_row_a_head():
    rows = list(speed.grid(speed.BASE, {"B": [speed.BASE["B"]]}, ["full", "narrow"]))
    assert rows == [("full", speed.BASE), ("narrow", speed.BASE)]


AGREES = [
    ["head", "TF32", *gpu.LIMITS],
    ["full", "off", "0", "9.5e-07", "3.6e-06"],
    ["full", "on", "0", "2e-04", "6e-04"],
]


@pytest.mark.parametrize(
    ("place", "figure", "name"),
    [(2, "1", "noise"), (3, "2.0e-05", "outputs"), (4, "1.1e-04", "gradients"), (4, "nan", "gradients")],
)
def test_an_accelerator_that_differs_from_the_processor_is_named(place, figure, name):
    assert gpu.above_limits(AGREES) == []
    head, float32, tf32 = AGREES
    differs = [*float32[:place], figure, *float32[place + 1 :]]
    (line,) = gpu.above_limits([head, differs, tf32])
    assert line.startswith(f"full: {name} differ by {figure} ")


def test_distances_of_two_steps(tmp_path):
    files = [tmp_path / "accelerator.npz", tmp_path / "processor.npz"]
    step = {"outputs": [0, 1, 0], "noise 0": [0, 1, 2, 3], "gradient 0": [10, 10], "gradient 1": [1, 1]}
    other = {"outputs": [0, 0.5, 0], "noise 0": [-0.0, 1, 2, 4], "gradient 0": [10, 11], "gradient 1": [1, 1.25]}
    for file, arrays in zip(files, (other, step), strict=True):
        np.savez(file, **{name: np.array(values, "float32") for name, values in arrays.items()})
    assert gpu.distances(*files) == (2, 0.5, 0.25)


PARTS = [("agreement", AGREES), ("speed", [["head"], ["full"]])]


@pytest.mark.parametrize("accelerator", [None, "a card"])
def test_only_an_accelerator_has_a_result_file(accelerator, tmp_path, monkeypatch, capsys):
    asked, active = [], keras.config.backend()
    monkeypatch.setattr(gpu, "fresh", lambda backend, what: accelerator)
    monkeypatch.setattr(gpu, "measure", lambda *arguments: asked.append(arguments) or PARTS)
    monkeypatch.setattr(sys, "argv", ["gpu", "--backends", active, "--output", str(tmp_path)])
    gpu.main()
    ((backend, _, is_quick),) = asked
    assert (backend, is_quick) == (active, accelerator is None)
    assert (f"{active} has no accelerator here" in capsys.readouterr().out) == (accelerator is None)
    found = {path.stem: results.read(path).machine for path in tmp_path.glob("*.json")}
    names = [f"gpu_agreement_{active}", f"gpu_speed_{active}"]
    assert found == (dict.fromkeys(names, accelerator) if accelerator else {})


def test_the_estimates_are_within_thirty_percent_of_the_memory_that_was_measured(monkeypatch):
    """On one device and on four: the file of results has what XLA said, and the estimates are of this version."""
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    published = results.read(results.FOLDER / "devices.json").tables
    _, *rows = published[f"MiB of each device, {json.dumps(devices.SIZES)}"]
    assert len(rows) == len(devices.HEADS)
    for row in rows:
        for count, cell in zip(devices.DEVICES, row[1:3], strict=True):
            result = devices.estimated(count, devices.SIZES)[row[0]]["train_bytes"] / 2**20
            assert result == pytest.approx(float(cell.split()[0]), rel=0.3)
