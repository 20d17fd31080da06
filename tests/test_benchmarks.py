"""What the benchmarks compute from their measurements, and the data that they make."""

import numpy as np
import pytest

SIZES = {"B": 2, "D": 3, "K": 5, "R": 1, "S": 7}


pytestmark = pytest.mark.usefixtures("benchmarks")


def test_the_work_of_the_floor_by_hand():
    import speed

    # Three maps of 3 x 5; 7 nodes for 2 x 5 logits, two exponentials and three products of one factor each.
    assert speed.work("full", "train", **SIZES) == (2 * 7 * 10, 4 * 3 * (2 * 3 * 5) + 6 * 7 * 10, 20 * 3 * 15)
    assert speed.work("diagonal", "predict", **SIZES) == (7 * 10, 2 * 2 * (2 * 3 * 5), 4 * 2 * 15)
    assert speed.work("Dense", "train", **SIZES) == (0, 4 * (2 * 3 * 5), 20 * 15)


@pytest.mark.parametrize(
    ("rates", "expected"), [((1e9, 10.0, 1e9), 7.0), ((40.0, 1e9, 1e9), 3.0), ((1e9, 1e9, 12.0), 10.0)]
)
def test_the_floor_is_bound_by_what_is_slowest(rates, expected):
    import speed

    assert speed.floor("diagonal", "predict", SIZES, rates) == pytest.approx(expected)


def test_growth_is_fitted_along_one_size_alone():
    import speed

    base = {"B": 128, "D": 64, "K": 10, "R": 5, "S": 256}
    rows = [{**base, "S": s, "mode": "train", "seconds": 0.1 * s**1.5} for s in (16, 64, 256)]
    others = [
        {**base, "S": 16, "B": 1, "mode": "train", "seconds": 9.0},
        {**base, "S": 16, "mode": "predict", "seconds": 9.0},
    ]
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


def test_the_table_of_ensembles_has_paired_differences():
    import ensembles
    import numpy as np

    base = {("Dense", 1): 0.5, ("full", 1): 0.6, ("Dense", 4): 0.7, ("full", 4): 0.9}
    runs = [
        {
            (*key, scaled): (np.array([value + 0.1 * seed + 0.01 * scaled, 1.0, 0.1 * seed]), 1.0 + seed)
            for key, value in base.items()
            for scaled in (False, True)
        }
        for seed in (0, 1)
    ]
    rows = ensembles.describe(runs)[1:]
    assert rows[0] == ["Dense", "1", "none", "0.550 +- 0.050", "1.000 +- 0.000", "0.050 +- 0.050", "", "", ""]
    assert rows[3][3:7] == ["0.950 +- 0.050", "1.000 +- 0.000", "0.050 +- 0.050", "+0.200 +- 0.000"]
    assert rows[4][2:4] == ["1.500 +- 0.500", "0.560 +- 0.050"]
    rows = ensembles.effect(runs)[1:]
    assert rows[1] == ["full", "none", "+0.300 +- 0.000", "+0.000 +- 0.000", "+0.000 +- 0.000"]


def test_the_figures_of_ensembles_are_of_clean_labels_and_scaled_ones_keep_the_accuracy():
    import ensembles
    import numpy as np
    import tasks

    task = tasks.digits(0.4, 0)._replace(epochs=2, temperatures=(1.5,), l2=(0.0,))
    choice, models = ensembles.members(task, "Dense", 0)
    assert choice == (1.5, 0.0)
    assert len(models) == ensembles.MEMBERS
    assert len({float(np.abs(model.get_weights()[0]).sum()) for model in models}) == ensembles.MEMBERS
    (plain, scaled), temperature = ensembles.measure(models[0], task)
    logits = models[0].predict(task.test.x, verbose=0)
    assert plain[0] == scaled[0] == np.mean(logits.argmax(-1) == task.test.y)
    assert 0.05 < temperature < 1.0  # after two epochs a model is less sure than it could be
    assert scaled[1] < plain[1]


def test_planted_pairs_are_swapped_and_others_are_not():
    import planted_pairs
    from sklearn.datasets import load_digits

    x, labels = planted_pairs.planted(0)
    known = {row.tobytes(): label for row, label in zip(*load_digits(return_X_y=True), strict=True)}
    true = np.array([known[(16.0 * row.astype("float64")).round().tobytes()] for row in x])
    for i, j in planted_pairs.PAIRS:
        for one, other in ((i, j), (j, i)):
            assert set(labels[true == one]) == {one, other}
            assert np.mean(labels[true == one] == other) == pytest.approx(0.3, abs=0.12)
    np.testing.assert_array_equal(labels[np.isin(true, [0, 2, 5, 6])], true[np.isin(true, [0, 2, 5, 6])])


def test_quality_and_kinds_of_issues_by_hand():
    import label_issues

    from keras_het.analysis import find_label_issues

    wrong, index = np.array([False, True, False, True]), np.array([1, 0, 3, 2])
    found = label_issues.quality(wrong, index, np.array([0.1, 0.2, 0.3, 0.9]), np.array([True, True, False, False]))
    assert found == pytest.approx({"wrong": 0.5, "average precision": (1 + 2 / 3) / 2, "precision": 0.5, "recall": 0.5})
    p = np.full((12, 4), 0.02)
    clean = np.array([3, 0, 3, 0] + [0, 1, 2, 3] * 2)
    p[np.arange(12), clean] = 0.94
    labels = np.array([2, 1, 3, 0] + [0, 1, 2, 3] * 2)  # the first two are wrong: 3 as 2, and 0 as 1
    with_pair = find_label_issues(p, labels, pairs=[(2, 3)])
    assert label_issues.kinds("pairs and random", clean, with_pair) == 0.5  # neither is of a planted pair
    assert label_issues.kinds("random, 20%", clean, with_pair) is None


def test_shares_of_memorised_labels_by_hand():
    import early_learning
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Activation("linear")])  # says what it is given
    x, true, noisy = np.eye(3, dtype="float32")[[0, 1, 2, 2, 0]], np.array([0, 0, 1, 2, 2]), np.array([0, 1, 0, 2, 1])
    shares = early_learning.Shares(x, true, noisy, (x, true))
    shares.set_model(model)
    shares.on_epoch_end(0)
    # Examples 1, 2 and 4 are wrongly labelled: the first is predicted as its label, none as its class.
    assert shares.rows == [
        {"epoch": 1, "as wrong label": pytest.approx(1 / 3), "as true label": 0.0, "test": pytest.approx(2 / 5)}
    ]
    rows = [{"seed": seed, "method": "a", "test": seed + epoch / 10} for seed in (0, 1) for epoch in (1, 2)]
    np.testing.assert_allclose(early_learning.curves(rows, "a", "test"), [[0.1, 0.2], [1.1, 1.2]])


def test_the_table_of_plans_has_a_column_for_each_backend():
    import plan

    def line(backend, integrator, planned, measured):
        head = {"covariance": "low_rank", "link": "softmax", "integrator": integrator}
        costs = {"train_time": planned, "predict_time": 2 * planned, "train_bytes": 3 * 2**20}
        found = {"train": measured, "predict": 2 * measured, "memory": 4.0}
        return {"backend": backend, "sizes": {"units": 5}, "plan": head | costs, "measured": found}

    lines = [line("jax", "Taylor", 2.0, 2.5), line("torch", "Taylor", 3.0, 3.5), line("jax", "OwnNoise", 4.0, 4.5)]
    (table,) = plan.report(lines).values()
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
