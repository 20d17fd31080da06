"""Experiments whose results are lines: a quick run, and each setting that changes the outcome, have their own lines."""

import importlib
import sys
import types

import pytest

from benchmarks.lib import experiments, lines, results

pytestmark = pytest.mark.once

LABELS = [f"labels.{name}" for name in ("choice", "cleaning", "joint", "regression", "segmentation")]
SIZED = [f"real.{name}" for name in ("annotators", "choose", "clean", "issues", "judge")]


@pytest.fixture(name="run")
def run_with_stubs(tmp_path, monkeypatch):
    """Returns a function that runs an experiment without computing its figures, and returns the new lines by file."""
    completed = lines.completed

    def stub(file, keys, make):
        completed(file, keys, lambda *_: [{"figure": 0}])
        return []

    def run(name, *arguments):
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--output", str(tmp_path)])
        before = counts()
        module.main()
        return {file: count - before.get(file, 0) for file, count in counts().items()}

    def counts():
        files = sorted(tmp_path.rglob("*.jsonl"))
        return {str(path.relative_to(tmp_path)): len(lines.read(path.parent, path.name)) for path in files}

    monkeypatch.setattr(lines, "completed", stub)
    monkeypatch.setattr(results, "publish", lambda *_: None)
    return run


@pytest.mark.parametrize("name", [*LABELS, *SIZED, "real.joint", "real.verified", "real.votes"])
def test_a_full_run_does_not_take_the_lines_of_a_quick_run_for_done(name, run):
    first, again, full = (run(name, *more) for more in (["--quick"], ["--quick"], []))
    assert all(file.startswith("quick/") and count > 0 for file, count in first.items())
    assert not any(again.values())
    assert {file for file, count in full.items() if count} == {file.removeprefix("quick/") for file in first}


SETTINGS = [(name, "--size") for name in SIZED] + [("real.judge", "--judged"), ("real.judge", "--redraws")]


@pytest.mark.parametrize(("name", "option"), SETTINGS)
def test_another_setting_has_its_own_lines(name, option, run):
    first, again, other = (run(name, option, value) for value in ("300", "300", "400"))
    assert not any(again.values())
    assert other == first


def test_lines_have_their_settings_and_lines_of_other_settings_are_left_out(tmp_path):
    options, key = types.SimpleNamespace(output=tmp_path, render=False), {"set": "x", "seed": 0}
    for options.size in (3, 4):
        result = experiments.completed(options, "a", [key], lambda _, *key: [{"values": str(key)}], ["size"])
        assert result == [{"size": options.size, **key, "values": "('x', 0)"}]
    options.render, options.size = True, 3
    assert [line["size"] for line in experiments.completed(options, "a", [key], None, ["size"])] == [3]


def test_a_quick_run_has_its_options_and_its_own_folder():
    parser = experiments.parser_of("", {"seeds": 3}, quick={"seeds": 1, "epochs": 2}, fixed={"epochs": 9})
    whole, quick = (parser.parse_args(["--seeds", "5", *more]) for more in ([], ["--quick"]))
    assert (whole.seeds, whole.epochs) == (5, 9)
    assert (quick.seeds, quick.epochs) == (1, 2)
    assert quick.output == whole.output / "quick"


def test_the_product_has_every_combination_in_order():
    options = types.SimpleNamespace(sets=["x", "y"], seeds=2)
    expected = [{"set": name, "seed": seed} for name in "xy" for seed in range(2)]
    assert experiments.product(options, "set", "seed") == expected
