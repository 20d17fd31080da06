"""The arena: its tasks and what a method may see of them.

A tiny run, resuming, the choice without clean labels, and the report are tested, too.
"""

import json
import re

import keras
import numpy as np
import pytest

from benchmarks.arena import __main__ as arena
from benchmarks.arena import advice, expectations, figure, gains, report, training, trial
from benchmarks.arena.methods import METHODS, Mixtures
from benchmarks.arena.trial import Plan, Stage, Trial, crossentropy
from benchmarks.lib import noises, results
from keras_het.labels import pair_flip

pytest.importorskip("sklearn")

pytestmark = pytest.mark.once


@pytest.mark.parametrize("noise", ["none", "symmetric", "pair", "random", "look-alike", "weak raters", "outliers"])
def test_labels_have_the_distribution_that_the_truth_says_and_the_test_is_clean(noise):
    clean, task = noises.make("digits", "none", 3), noises.make("digits", noise, 3)
    np.testing.assert_array_equal(task.test.x, clean.test.x)
    np.testing.assert_array_equal(task.test.y, clean.test.y)
    known = task.truth.labels >= 0
    np.testing.assert_array_equal(task.truth.labels[known], clean.train.y[known])
    np.testing.assert_array_equal(task.train.x[known], clean.train.x[known])
    own = np.diag(task.truth.transition)[task.truth.labels[known]]
    spread = np.sqrt(max(own.mean() * (1 - own.mean()), 1e-12) / known.sum())
    assert abs(np.mean(task.train.y[known] == task.truth.labels[known]) - own.mean()) <= 4 * spread
    wrong = np.mean(task.train.y != task.truth.labels)
    assert wrong == 0 if noise == "none" else 0.25 < wrong < 0.5
    assert np.mean(~known) == (pytest.approx(0.4, abs=0.06) if noise == "outliers" else 0)
    again = noises.make("digits", noise, 3)
    for part in (0, 1):
        for one, other in zip(task[part], again[part], strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_true_transition_is_the_matrix_and_the_flips_are_its():
    task = noises.make("digits", "pair", 0)
    np.testing.assert_allclose(task.truth.transition, pair_flip(10, 0.4))
    flipped = task.train.y != task.truth.labels
    np.testing.assert_array_equal(task.train.y[flipped], (task.truth.labels[flipped] + 1) % 10)


def test_outliers_are_no_digits_and_their_labels_are_any():
    clean, task = noises.make("digits", "none", 0), noises.make("digits", "outliers", 0)
    out = task.truth.labels < 0
    assert np.all(np.any(task.train.x[out] != clean.train.x[out], axis=1))
    assert np.mean(task.train.y[out] == clean.train.y[out]) < 0.2
    sorted_alike = np.all(np.sort(task.train.x[out]) == np.sort(clean.train.x[out]), axis=1)
    # The same pixels in another order; the others are mixtures.
    assert sorted_alike.mean() == pytest.approx(0.5, abs=0.1)


def test_a_method_sees_no_clean_label_and_a_bound_does():
    task, told = training.task_of("digits", "symmetric", 0, 2), {}
    for method in METHODS:
        seen = training.seen_by(method, task)
        assert seen.test is None
        assert (seen.truth is None) == (not method.knows)
        told[method.name] = seen.truth
    assert {name: seen.transition is not None for name, seen in told.items() if seen} == {
        "true labels": False,
        "forward, true T": True,
        "CleanNet": False,
    }
    assert told["forward, true T"].labels is None
    np.testing.assert_array_equal(told["true labels"].labels, task.truth.labels)
    verified = np.flatnonzero(told["CleanNet"].labels >= 0)
    np.testing.assert_array_equal(np.bincount(task.truth.labels[verified]), np.full(10, 5))
    np.testing.assert_array_equal(told["CleanNet"].labels[verified], task.truth.labels[verified])
    assert {method.name: method.knows for method in METHODS if method.knows} == {
        "true labels": "bound",
        "forward, true T": "bound",
        "CleanNet": "told 50 labels",
    }


def test_a_constant_before_the_loss_changes_nothing_and_with_a_penalty_in_it_much(monkeypatch):
    def apart():
        """Mean distance of clean accuracies and likelihoods over ten epochs; later, rounding grows in both."""
        task, curves = training.task_of("digits", "symmetric", 0, 10), []
        for scale in (0.15, 4.0):
            plan = Trial(task, "Dense", None, 0).plan(lambda y, p, scale=scale: scale * crossentropy()(y, p))
            record = training.Record(task, plan.outputs)
            training.train(plan, task.epochs, record)
            curves.append([[epoch["clean accuracy"], epoch["clean NLL"]] for epoch in record.epochs])
        return np.abs(np.subtract(*curves)).mean(axis=0)

    assert np.all(apart() < 0.01)
    monkeypatch.setattr(Trial, "network", _with_penalty)
    assert np.all(apart() > 0.03)


def _with_penalty(trial):
    keras.utils.set_random_seed(trial.seed)
    layers = [keras.layers.Dense(width, "relu", kernel_regularizer=keras.regularizers.L2(1e-3)) for width in (128, 128)]
    last = keras.layers.Dense(10, "log_softmax", kernel_regularizer=keras.regularizers.L2(1e-3))
    return keras.Sequential([keras.Input((64,)), *layers, last])


def test_weights_decay_but_neither_biases_nor_a_learned_transition_nor_a_covariance(monkeypatch):
    monkeypatch.setattr(trial, "WEIGHT_DECAY", 200.0)
    task = trial.tasks.digits(0.4, 0)
    flips = trial.NoiseTransition(10)
    model = trial.Trial(task, "heteroscedastic", None, 0).compiled(tail=[flips])
    for variable in model.trainable_variables:  # some start at zero, where decay would not be seen
        if "transition" not in variable.path:
            variable.assign(variable + 0.01)
    before = {variable.path: keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables}
    assert any("scale_diag/kernel" in path for path in before)
    model.fit(task.train.x[:128], task.train.y[:128], sample_weight=np.zeros(128, "float32"), batch_size=128, verbose=0)
    for variable in model.trainable_variables:
        decays = not any(part in variable.path for part in ("bias", "transition", "scale_diag", "factor"))
        after = keras.ops.convert_to_numpy(variable)
        np.testing.assert_allclose(
            after, (0.2 if decays else 1.0) * before[variable.path], rtol=1e-4, atol=1e-7, err_msg=variable.path
        )


def test_mixtures_leave_nobody_out():
    data = Mixtures(np.arange(300.0)[:, None], np.eye(300), 8.0, 0)
    parts = [data[index] for index in range(len(data))]
    assert [len(x) for x, _ in parts] == [128, 128, 44]
    # Each once as the first, once as the second.
    np.testing.assert_allclose(sum(y.sum(axis=0) for _, y in parts), np.ones(300), atol=1e-5)


@pytest.mark.filterwarnings("ignore:The model predicts .* it is weak:UserWarning")  # so short a training is
def test_every_method_trains_with_as_many_trials(monkeypatch):
    monkeypatch.setattr(trial, "NODES", 8)
    expected = arena.report.expectations.read()
    trained = METHODS if keras.config.backend() == "torch" else METHODS[::6]  # the others compile a program for each
    for method in METHODS:
        assert len(method.strengths) == 3 or method.knows or not method.stops_early
        assert method.name in expected
    for method in trained:
        head = "heteroscedastic" if method.name in ("learned T, L2", "early-learning regularisation") else "Dense"
        key = dict(zip(arena.KEY, ("digits", "symmetric", 0, head, method.name, method.strengths[-1]), strict=True))
        line = json.loads(json.dumps(arena.run(method, key, epochs=6)))
        assert arena.key_of(line) == arena.key_of(key)
        assert len(line["noisy accuracy"]) == len(line["clean NLL"]) == 6
        assert line["clean accuracy"][-1] > 0.2, method.name  # of ten classes, after 48 steps


def test_stages_follow_each_other_and_share_the_epochs():
    task = training.task_of("digits", "none", 0, 4)
    model = Trial(task, "Dense", None, 0).compiled()
    before = model.get_weights()[0]
    nothing = {"sample_weight": np.zeros(1024, "float32")}
    plan = Plan(model, [Stage(task.train, nothing, until=0.25), Stage(task.train)])
    record = training.Record(task, plan.outputs)
    training.train(plan, 4, record)
    assert len(record.epochs) == 4
    assert record.epochs[0]["clean accuracy"] < record.epochs[-1]["clean accuracy"]
    assert np.any(model.get_weights()[0] != before)


def test_what_is_there_is_not_repeated(tmp_path, monkeypatch):
    options = arena.options_of(["--quick", "--output", str(tmp_path), "--heads", "Dense"])
    options.seeds = 1
    assert len(arena.missing(options)) == 8
    parts = [arena.missing(options, part, 2) for part in (0, 1)]
    assert sorted(arena.key_of(key) for part in parts for _, key in part) == sorted(
        arena.key_of(key) for _, key in arena.missing(options)
    )
    monkeypatch.setattr(arena, "keep_compiled", lambda folder: None)
    arena.work(options, 0, 2)
    remaining = [arena.key_of(key) for _, key in arena.missing(options)]
    assert remaining == [arena.key_of(key) for _, key in parts[1]]
    file = tmp_path / "quick" / "arena-0.jsonl"
    before = file.read_text()
    line = json.loads(before.splitlines()[0])
    assert "keras" in line["about"]
    assert "cores" in line["about"]
    monkeypatch.setattr(arena, "run", lambda *_: pytest.fail("it was there"))
    arena.work(options, 0, 2)
    assert file.read_text() == before


def test_lines_are_counted_once_and_from_now_on(tmp_path):
    (tmp_path / "arena-0.jsonl").write_text("there\n")
    added = arena.AddedLines(tmp_path)
    assert added.count() == 0
    with (tmp_path / "arena-0.jsonl").open("a") as file:
        file.write("one\ntwo\nhalf of")
    (tmp_path / "arena-1.jsonl").write_text("three\n")
    assert [added.count(), added.count()] == [3, 3]
    with (tmp_path / "arena-0.jsonl").open("a") as file:
        file.write(" the fourth\n")
    assert added.count() == 4


def line(method, seed, noisy, clean, **others):
    """A line of the results with planted accuracies by epoch."""
    found = {
        "data": "digits",
        "noise": "none",
        "seed": seed,
        "head": "Dense",
        "method": method,
        "strength": 0,
        "trials": 1,
        "knows": "",
    }
    found |= {
        "stops early": True,
        "source": "planted",
        "processor": 1.0,
        "about": "here",
        "commit": "abc",
        "noisy accuracy": noisy,
    }
    return {**found, **{f"clean {name}": clean for name in ("accuracy", "NLL", "ECE")}, **others}


BASE = "crossentropy, stopped early"


def test_the_choice_is_that_of_noisy_labels_whatever_the_clean_ones_say():
    rng = np.random.default_rng(0)
    noisy = rng.integers(20, size=(3, 30)) / 20
    trials = [line(BASE, 0, row.tolist(), (1 - row).tolist(), strength=index) for index, row in enumerate(noisy)]
    run, epoch = gains.choose(trials)
    trial, first = np.unravel_index(noisy.argmax(), noisy.shape)
    assert (run["strength"], epoch) == (trial, first)  # of equals the first
    for _ in range(20):
        other = [
            {**each, **{f"clean {name}": rng.random(30).tolist() for name in ("accuracy", "NLL", "ECE")}}
            for each in trials
        ]
        found = gains.choose(other)
        assert (found[0]["strength"], found[1]) == (trial, first)
    run, epoch = gains.choose(trials, stops_early=False)
    assert (run["strength"], epoch) == (noisy[:, -1].argmax(), 29)


def planted_lines():
    lines = []
    for seed, base in enumerate((0.5, 0.7, 0.6)):
        lines.append(line(BASE, seed, [0.1, 0.3, 0.2], [0.0, base, 1.0]))
        lines.append(line("mixup", seed, [0.3, 0.2], [base + 0.1 + 0.01 * seed, 0.0]))
        lines.append(line("temperature", seed, [0.3], [base + 0.15 * (seed - 0.8)]))
        lines.append(line("crossentropy, last epoch", seed, [0.3, 0.2], [1.0, base - 0.2], **{"stops early": False}))
        lines.append(line("true labels", seed, [0.3], [1.0], knows="bound"))
        lines += [line("label smoothing", seed, [0.3], [1.0], trials=3)]  # not finished
    return lines


def text_of(tables):
    """Markdown without the spaces that align it."""

    return re.sub(" +", " ", results.text_of(tables))


def test_tables_of_planted_lines():
    text = text_of(report.describe(report.in_order(planted_lines())))
    assert "| crossentropy, stopped early | 0.600 +- 0.058 |" in text
    assert "| mixup | **+11.0 +- 0.6** |" in text
    assert "| temperature | +3.0 +- 8.7 |" in text
    assert "| crossentropy, last epoch | **-20.0 +- 0.0** |" in text
    assert "| none | mixup | **+11.0 +- 0.6** | temperature" in text  # the best of any two seeds, too
    assert "true labels" not in text.split("##")[2]  # a bound is no advice
    assert "| mixup | = + ! |" in text
    assert "| mixup | none | nowhere |" in text
    assert "| temperature | nowhere | nowhere |" in text
    assert "| crossentropy, last epoch | nowhere | none |" in text
    assert text.rindex("\n| true labels") < text.rindex("\n| mixup")  # in the order of the expectations


def test_early_stopping_is_the_advice_where_nothing_is_clearly_better():
    lines = [each for each in planted_lines() if each["method"] != "mixup"]
    found = advice.table(gains.Results(lines))
    # Seeds gain -12, 3 and 18: the first is judged by the others' choice, temperature;
    # the last by theirs, early stopping.
    assert ["none", "early stopping: none is clearly better", "-3.0 +- 4.6", "temperature"] in found


def test_the_choice_is_not_its_own_judge():
    gains = np.array([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(advice.held_out(gains), [0.0, 0.0, 0.0])
    assert advice.held_out(gains[:, :1]).size == 0
    np.testing.assert_array_equal(advice.held_out(gains + np.array([[5], [0], [0], [0]])), [14.0, 5.0, 5.0])


def test_equals_rarely_have_a_winner_and_a_real_one_is_named():
    assert advice.by_chance(50, 5) < 0.07  # 4.5% in 4000 repeats
    rng, named = np.random.default_rng(1), []
    for _ in range(300):
        accuracies = rng.normal(size=(51, 5))
        gains = accuracies - accuracies[:1]
        own = gains / (gains.std(axis=1, ddof=1, keepdims=True) / np.sqrt(5) + 1e-9)
        best = gains.mean(axis=1).argmax()
        named.append(
            [
                own[best].mean() > 2,
                advice.has_winner(gains),
                advice.has_winner(gains + 4.0 * (np.arange(51) == 7)[:, None]),
            ]
        )
    tested_on_its_own, chance, real = np.mean(named, axis=0)
    assert tested_on_its_own > 0.3  # what left-out seeds are there against
    assert chance < 0.09
    assert real > 0.95


def test_two_networks_have_a_table_of_their_own():
    lines = [line(BASE, seed, [0.3], [0.5]) for seed in range(3)]
    for name, accuracy in {"two networks": 0.6, "two networks, co-teaching": 0.65, "two networks, JoCoR": 0.58}.items():
        lines += [line(name, seed, [0.3], [accuracy]) for seed in range(3)]
    tables = report.describe(report.in_order(lines))
    own = tables["Dense head: points of clean accuracy over two networks that learn from all examples"]
    assert ["two networks, co-teaching", "**+5.0 +- 0.0**"] in own
    assert ["two networks, JoCoR", "**-2.0 +- 0.0**"] in own


def test_methods_stand_beside_simpler_ones_where_both_are_there():
    title = "Dense head: points over simpler methods"
    assert title not in report.describe(report.in_order(planted_lines()))
    assert set(report.SIMPLER) | set(report.SIMPLER.values()) <= {method.name for method in METHODS}
    more = [line("Label Wave", seed, [0.3], [0.6 + 0.1 * seed]) for seed in range(3)]
    rows = report.describe(report.in_order([*planted_lines(), *more]))[title]
    # Seeds gain 30, 20 and 40 points over the last epoch.
    assert rows == [
        ["method, and the simpler one", "none"],
        ["Label Wave - crossentropy, last epoch", "**+30.0 +- 5.8**"],
    ]


def test_the_line_of_the_figure_is_under_the_bounds_alone():
    from matplotlib.figure import Figure

    lines = [*planted_lines(), *(line("CleanNet", seed, [0.3], [0.9], knows="told 50 labels") for seed in range(3))]
    results = gains.Results(report.in_order(lines))
    axes = Figure().subplots()
    figure.draw(axes, results, "Dense", gains.BASE)
    assert [drawn.get_ydata()[0] for drawn in axes.get_lines()] == [0.5]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert [names[0], names[-1]] == ["true labels (bound)", "CleanNet (told 50 labels)"]
    assert "mixup" in names


def test_rendering_needs_the_lines_alone(tmp_path):
    with pytest.raises(ValueError, match="has no line for arena_digits"):
        report.render(tmp_path, "arena_digits", {})
    (tmp_path / "arena-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in planted_lines()))
    report.render(tmp_path, "arena_digits", {"data": ["digits"]})
    found = results.read(tmp_path / "arena_digits.json")
    assert found.seeds == [0, 1, 2]
    assert found.tables == report.describe(report.in_order(planted_lines()))
    assert (tmp_path / "arena_digits.png").read_bytes().startswith(b"\x89PNG")
    report.render(tmp_path, "arena_digits", {"data": ["digits"]})
    assert results.read(tmp_path / "arena_digits.json") == found


def test_a_part_is_rendered_under_its_own_name(tmp_path, monkeypatch):
    (tmp_path / "arena-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in planted_lines()))
    command = ["arena", "--render", "--output", str(tmp_path), "--methods", "mixup", BASE, "--name", "arena_part"]
    monkeypatch.setattr("sys.argv", command)
    arena.main()
    assert sorted(path.name for path in tmp_path.glob("arena_*")) == [
        f"arena_part.{end}" for end in ("json", "md", "png")
    ]
    rows = results.read(tmp_path / "arena_part.json").tables[f"Dense head: points of clean accuracy over {BASE}, Dense"]
    assert [row[0] for row in rows] == ["method", BASE, "mixup"]
    assert arena.options_of(["--output", str(tmp_path)]).name == "arena_digits"


def test_expectations_are_whole_and_of_the_noises_that_there_are():
    for row, why in expectations.read().values():
        assert list(row) == list(noises.NOISES)
        assert set(row.values()) <= {"+", "=", "-"}
        assert why
