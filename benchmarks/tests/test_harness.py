"""Harness: functions in turn, new processes, tables."""

import pathlib

import pytest

from benchmarks.lib import harness

pytestmark = pytest.mark.once


def test_options_have_the_types_of_their_defaults(tmp_path):
    parser = harness.parser_of("", count=3, sizes=(1, 2), rows=("a", "b"), as_given=False, data=tmp_path, epochs=None)
    words = ["--count", "4", "--sizes", "7", "8", "9", "--rows", "b", "--as-given", "--data", "x", "--epochs", "2"]
    defaults, own = (vars(parser.parse_args(each)) for each in ([], words))
    assert [*defaults.values()][:-1] == [3, [1, 2], ["a", "b"], False, tmp_path, None]
    assert [*own.values()][:-1] == [4, [7, 8, 9], ["b"], True, pathlib.Path("x"), 2]


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


def test_a_row_is_measured_and_ends_the_process(capsys):
    with pytest.raises(SystemExit):
        harness.command_line("", lambda a, b: {"sum": a + b}).parse_args(["--row", '{"a": 1, "b": 2}'])
    assert capsys.readouterr().out == '{"sum": 3}\n'


def test_a_table():
    assert harness.markdown([["a", "long"], ["1", "2"]]) == "| a | long |\n| - | ---- |\n| 1 | 2    |"
