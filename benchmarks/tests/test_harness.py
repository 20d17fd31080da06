"""Harness: functions in turn, new processes, tables."""

import pytest

from benchmarks.lib import harness

pytestmark = pytest.mark.once


def test_a_quick_run_has_its_options_and_its_own_folder():
    parser = harness.experiment(harness.parser_of(""), seeds=1)
    parser.add_argument("--seeds", type=int)
    whole, quick = (parser.parse_args(["--seeds", "5", *more]) for more in ([], ["--quick"]))
    assert (whole.seeds, quick.seeds) == (5, 1)
    assert quick.output == whole.output / "quick"


def test_functions_take_turns_after_a_warm_up():
    calls = []
    timings = harness.measure({name: lambda name=name: calls.append(name) for name in "ab"}, repeats=3, warmup=1)
    assert calls == ["a", "b", *"ababab"]
    assert all(timing.low <= timing.median <= timing.high for timing in timings.values())


def test_a_process_returns_what_it_prints_last_or_says_why_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nprint('noise')\nprint(sys.argv[2].replace('1', os.environ['ANSWER']))")
    assert harness.in_fresh_process("script", {"a": 1}, ANSWER="42") == {"a": 42}
    script.write_text("raise ValueError('the reason')")
    with pytest.raises(RuntimeError, match="the reason"):
        harness.in_fresh_process("script", {"a": 1})


def test_a_table():
    assert harness.markdown([["a", "long"], ["1", "2"]]) == "| a | long |\n| - | ---- |\n| 1 | 2    |"
