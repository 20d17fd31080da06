"""What the benchmarks compute from their measurements, and the data that they make."""

import pytest

SIZES = {"B": 2, "D": 3, "K": 5, "R": 1, "S": 7}


pytestmark = pytest.mark.usefixtures("benchmarks")


def test_the_work_of_the_floor_by_hand():
    import speed

    # Three maps of 3 x 5; 7 nodes for 2 x 5 logits, two exponentials and three products of one factor each.
    assert speed.work("full", "train", **SIZES) == (2 * 7 * 10, 4 * 3 * (2 * 3 * 5) + 6 * 7 * 10, 20 * 3 * 15)
    assert speed.work("diagonal", "predict", **SIZES) == (7 * 10, 2 * 2 * (2 * 3 * 5), 4 * 2 * 15)
    assert speed.work("Dense", "train", **SIZES) == (0, 4 * (2 * 3 * 5), 20 * 15)


@pytest.mark.parametrize(("rates", "expected"), [((1e9, 10.0, 1e9), 7.0), ((40.0, 1e9, 1e9), 3.0), ((1e9, 1e9, 12.0), 10.0)])
def test_the_floor_is_bound_by_what_is_slowest(rates, expected):
    import speed

    assert speed.floor("diagonal", "predict", SIZES, rates) == pytest.approx(expected)


def test_growth_is_fitted_along_one_size_alone():
    import speed

    base = {"B": 128, "D": 64, "K": 10, "R": 5, "S": 256}
    rows = [{**base, "S": s, "mode": "train", "seconds": 0.1 * s**1.5} for s in (16, 64, 256)]
    others = [{**base, "S": 16, "B": 1, "mode": "train", "seconds": 9.0}, {**base, "S": 16, "mode": "predict", "seconds": 9.0}]
    assert speed.exponent(rows + others, "train", "S", base, "seconds") == "1.50"
    assert speed.exponent(rows[:1], "train", "S", base, "seconds") == ""


def test_every_head_is_measured_along_the_sizes_that_it_has():
    import speed

    rows = list(speed.grid(speed.BASE, speed.SWEEPS))
    assert {head for head, _ in rows} == set(speed.HEADS)
    assert {sizes["K"] for head, sizes in rows if head == "parameter-efficient"} == {10, 100, 1000, 21_843}
    assert all(sizes["R"] == 0 for head, sizes in rows if head == "diagonal")
    assert all(sizes["S"] == 0 for head, sizes in rows if head.startswith("sigmoid"))


def test_functions_take_turns_after_a_warm_up():
    import harness

    calls = []
    timings = harness.measure({name: lambda name=name: calls.append(name) for name in "ab"}, repeats=3, warmup=1)
    assert calls == ["a", "b", *"ababab"]
    assert all(timing.low <= timing.median <= timing.high for timing in timings.values())


def test_a_process_returns_what_it_prints_last_or_says_why_not(tmp_path):
    import harness

    script = tmp_path / "script.py"
    script.write_text("import os, sys\nprint('noise')\nprint(sys.argv[2].replace('1', os.environ['ANSWER']))")
    assert harness.in_fresh_process(script, {"a": 1}, ANSWER="42") == {"a": 42}
    script.write_text("raise ValueError('the reason')")
    with pytest.raises(RuntimeError, match="the reason"):
        harness.in_fresh_process(script, {"a": 1})


def test_a_table():
    import harness

    assert harness.markdown([["a", "long"], ["1", "2"]]) == "| a | long |\n| - | ---- |\n| 1 | 2    |"
