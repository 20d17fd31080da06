"""Files of JSON lines: an existing run is not made again."""

import json

import pytest

from benchmarks.lib import lines

pytestmark = pytest.mark.once


def test_only_runs_that_are_missing_are_made_and_each_is_kept_at_once(tmp_path, capsys):
    file, keys, made = tmp_path / "a.jsonl", [{"task": "x", "seed": seed} for seed in range(3)], []

    def make(task, seed):
        made.append(seed)
        if seed == 2 and len(made) == 3:
            raise KeyboardInterrupt
        return [{"way": way, "figure": seed / 2} for way in "ab"]

    with pytest.raises(KeyboardInterrupt):
        lines.completed(file, keys, make)
    assert len(lines.read(tmp_path, "*.jsonl")) == 4
    result = lines.completed(file, keys, make)
    assert made == [0, 1, 2, 2]
    assert result == lines.read(tmp_path, "a.jsonl") == list(map(json.loads, file.read_text().splitlines()))
    assert result[-1] == {"task": "x", "seed": 2, "way": "b", "figure": 1.0}
    assert lines.completed(file, [], make) == result
    assert capsys.readouterr().out.count("figure") == 6


def test_a_mean_has_its_standard_error_and_a_clear_gain_is_bold():
    assert lines.with_error([1.0, 3.0]) == "2.000 +- 1.000"
    assert lines.with_error([2.0], 1, "+") == "+2.0"
    assert lines.with_error([]) == lines.with_error([float("nan")]) == ""
    assert lines.gain([1.0, 3.0], 1) == "+2.0 +- 1.0"  # exactly two standard errors
    assert lines.gain([-1.0, -2.9]) == "**-1.950 +- 0.950**"
    assert lines.gain([3.0]) == "+3.000"


def test_differences_are_of_the_seeds_that_both_have_and_a_table_has_the_columns_of_its_lines():
    one, other = (
        [{"seed": seed, "row": row, "a": seed + 1.0} for seed in seeds] for row, seeds in (("x", (0, 2)), ("y", (1, 2)))
    )
    assert lines.paired(one, [line | {"a": 5.0} for line in other], "a").tolist() == [-2.0]
    assert lines.paired(one, [], "a").tolist() == []
    assert lines.table(one + other[:1], "row", ("a", "b")) == [["row", "a"], ["x", "2.000 +- 1.000"], ["y", "2.000"]]


def test_the_files_of_a_folder_are_read_in_order(tmp_path):
    assert lines.read(tmp_path, "part-*.jsonl") == []
    for part in "10":
        (tmp_path / f"part-{part}.jsonl").write_text(f'{{"part": {part}}}\n')
    assert [line["part"] for line in lines.read(tmp_path, "part-*.jsonl")] == [0, 1]
