"""Benchmarks of costs: the floor, growth along a size, the sizes of a sweep, answers."""

import json
import pathlib
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from benchmarks.cost import answer, devices, gpu, memory_map, speed
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
    asked = []
    monkeypatch.setattr(gpu, "fresh", lambda backend, what: accelerator)
    monkeypatch.setattr(gpu, "measure", lambda *arguments: asked.append(arguments) or PARTS)
    monkeypatch.setattr(sys, "argv", ["gpu", "--backends", "torch", "--output", str(tmp_path)])
    gpu.main()
    ((backend, _, is_quick),) = asked
    assert (backend, is_quick) == ("torch", accelerator is None)
    assert ("torch has no accelerator here" in capsys.readouterr().out) == (accelerator is None)
    found = {path.stem: results.read(path).machine for path in tmp_path.glob("*.json")}
    assert found == (dict.fromkeys(["gpu_agreement_torch", "gpu_speed_torch"], accelerator) if accelerator else {})


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


def test_probabilities_of_the_memory_map_are_those_of_labels_that_are_mostly_right(tmp_path):
    memory_map.write(tmp_path, 9000, 5)
    p, labels = np.load(tmp_path / "p.npy"), np.load(tmp_path / "labels.npy")
    assert p.dtype == "float32"
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
    assert 0.6 < np.mean(p.argmax(axis=1) == labels) < 0.9


@pytest.fixture(name="folder", scope="module")
def small_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    answer.draw(folder, 200, 6, 3)
    return folder


@pytest.mark.parametrize("classes", [3, 10, 1000])
def test_classes_overlap_alike_and_half_of_the_wrong_labels_name_the_nearest_centre(classes):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(classes, answer.LATENT)) * answer.SPREAD * np.sqrt(np.log(classes))
    truth = rng.integers(classes, size=8000)
    basis = np.eye(answer.LATENT)
    x, p, labels = answer._block(np.random.default_rng(1), centers, basis, truth)
    assert 0.83 < np.mean(p.argmax(axis=1) == truth) < 0.93
    # The features are the latent ones, of variance 1, and noise of variance 1/4.
    assert np.var(x - centers[truth]) == pytest.approx(1.25, rel=0.02)
    wrong = labels != truth
    assert wrong.mean() == pytest.approx(0.2, abs=0.02)
    others = np.where(np.arange(classes) == truth[:, None], -1.0, p)
    nearest = np.mean(others.argmax(axis=1)[wrong] == labels[wrong])
    assert nearest == pytest.approx(0.5 + 0.5 / (classes - 1), abs=0.05)


@pytest.mark.filterwarnings("ignore::FutureWarning:sklearn")  # of arguments that its older versions do not know
@pytest.mark.parametrize("method", [name for name in answer.METHODS if name != "choose"])
def test_every_method_answers(method, folder):
    if method in answer.NEEDED:
        pytest.importorskip({"scikit-learn": "sklearn"}.get(answer.NEEDED[method], answer.NEEDED[method]))
    result = answer.measure(method, folder)
    assert result["seconds"] > 0.0
    assert result["memory"] >= 0.0
    predicts = method in {"clean", "LogisticRegressionCV", "CleanLearning"}
    assert result["right"] > 0.5 if predicts else result["right"] is None


HOLDING = """
import pathlib, sys, numpy as np
from benchmarks.cost import answer
{change}
def holding(data):
    def answer():
        held = np.ones(25 << 20)
        data.x.sum()
        return lambda new, true: held[0]
    return answer
answer.METHODS["holding"] = holding
print(answer.measure("holding", pathlib.Path(sys.argv[1]))["memory"])
"""
UNREAD = "answer.read = lambda folder, method: answer.Data(*5 * [np.load(folder / 'x.npy', mmap_mode='r')])"


def memory_beside_data(folder, change=""):
    command = [sys.executable, "-c", HOLDING.format(change=change), str(folder)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.planted
def test_memory_is_what_a_call_holds_beside_the_data(tmp_path):
    answer.draw(tmp_path, 100_000, 256, 2)  # 98 MiB
    assert memory_beside_data(tmp_path) == pytest.approx(200 / 1024, abs=0.02)
    assert memory_beside_data(tmp_path, UNREAD) > 250 / 1024


WITH_CHILD = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"


def test_a_process_over_the_limit_ends_with_its_children(tmp_path):
    seen = tmp_path / "pid"
    command = ["bash", "-c", f'exec "$0" -c "$1" > {seen}', sys.executable, WITH_CHILD]
    assert answer.in_time(command, 3) == {"limit": "> 3 s"}
    child = seen.read_text().strip()
    assert ends(child)


def ends(child):
    """Returns whether a process ends within five seconds, also as a zombie that is not waited for."""
    status = pathlib.Path(f"/proc/{child}/status")
    for _ in range(50):
        if not status.exists() or "State:\tZ" in status.read_text():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print(3); print('{\"right\": 1}')", {"right": 1}),
        ("raise MemoryError", {"limit": "out of memory"}),
        ("import os; os.kill(os.getpid(), 9)", {"limit": "out of memory"}),
        ("raise ValueError('no folds')", {"error": "ValueError: no folds"}),
        ("raise SystemExit(3)", {"error": "exit code 3"}),
    ],
)
def test_what_a_process_measures_or_what_stopped_it(code, expected):
    assert answer.in_time([sys.executable, "-c", code], 60) == expected


def test_after_a_limit_a_method_has_no_more_examples_and_data_are_made_once(tmp_path, monkeypatch):
    asked, made = [], []
    result = {"choose": {"limit": "> 1 s"}, "floor": {"error": "ValueError: x"}}

    def in_time(command, seconds):
        asked.append((command[-2], command[-1].rsplit("/", 1)[-1]))
        return result[command[-2]]

    monkeypatch.setattr(answer, "in_time", in_time)
    monkeypatch.setattr(answer, "draw", lambda folder, *sizes: made.append(sizes))
    root, file = tmp_path / "data", tmp_path / "answer.jsonl"
    root.mkdir()
    options = answer.command_line().parse_args(
        ["--examples", "100", "50", "20", "--features", "4", "--classes", "3", "--methods", "choose", "floor"]
    )
    for _ in range(2):
        answer.lines.completed(file, answer.keys(options), answer.measured(root, file, 1))
    assert asked == [("choose", "50-4-3"), ("floor", "50-4-3"), ("floor", "100-4-3")]
    assert made == [(50, 4, 3), (100, 4, 3)]
    assert [path.name for path in root.iterdir()] == ["100-4-3"]


def test_the_tables_of_answers_have_a_row_for_each_data_set_and_a_column_for_each_method():
    def line(examples, method, **result):
        return {"examples": examples, "features": 4, "classes": 3, "method": method, **result}

    def measures(right):
        return {"processor": 2.0, "seconds": 1.0, "memory": 0.5, "right": right}

    result = answer.tables(
        [
            line(1000, "choose", **measures(0.75)),
            line(1000, "floor", **measures(None)),
            line(1000, "CleanLearning", error="ValueError: x"),
            line(2000, "choose", limit="> 1 s"),
            line(2000, "floor", **measures(None)),
        ]
    )
    processor, seconds, memory, fraction, errors = result.values()
    assert processor == [
        ["N", "D", "K", "choose", "CleanLearning", "floor"],
        ["1,000", "4", "3", "2.000", "error", "2.000"],
        ["2,000", "4", "3", "> 1 s", "not tried", "2.000"],
    ]
    assert (seconds[1][3], memory[1][3]) == ("1.000", "0.50")
    assert fraction == [
        ["N", "D", "K", "choose", "CleanLearning"],
        ["1,000", "4", "3", "0.750", "error"],
        ["2,000", "4", "3", "> 1 s", "not tried"],
    ]
    assert errors[1:] == [["CleanLearning", "1,000", "4", "3", "ValueError: x"]]
