"""The arena: its tasks and what a method may see of them, a tiny run, resuming, the choice without clean labels, and the report."""

import json
import re

import keras
import numpy as np
import pytest

pytest.importorskip("sklearn")

pytestmark = pytest.mark.usefixtures("benchmarks")


@pytest.mark.parametrize("noise", ["none", "symmetric", "pair", "random", "look-alike", "weak raters", "outliers"])
def test_labels_have_the_distribution_that_the_truth_says_and_the_test_is_clean(noise):
    import noises

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
    import noises

    from keras_het import label_noise

    task = noises.make("digits", "pair", 0)
    np.testing.assert_allclose(task.truth.transition, label_noise.pair_flip(10, 0.4))
    flipped = task.train.y != task.truth.labels
    np.testing.assert_array_equal(task.train.y[flipped], (task.truth.labels[flipped] + 1) % 10)


def test_outliers_are_no_digits_and_their_labels_are_any():
    import noises

    clean, task = noises.make("digits", "none", 0), noises.make("digits", "outliers", 0)
    out = task.truth.labels < 0
    assert np.all(np.any(task.train.x[out] != clean.train.x[out], axis=1))
    assert np.mean(task.train.y[out] == clean.train.y[out]) < 0.2
    sorted_alike = np.all(np.sort(task.train.x[out]) == np.sort(clean.train.x[out]), axis=1)
    assert sorted_alike.mean() == pytest.approx(0.5, abs=0.1)  # the same pixels in another order; the others are mixtures


def test_a_method_sees_no_clean_label_and_a_bound_does():
    import arena_training
    from arena_methods import METHODS

    task = arena_training.task_of("digits", "symmetric", 0, 2)
    for method in METHODS:
        seen = arena_training.seen_by(method, task)
        assert seen.test is None
        assert (seen.truth is None) == (not method.knows)
    assert {method.name for method in METHODS if method.knows} == {"true labels", "forward, true T", "CleanNet"}


def test_every_method_trains_with_as_many_trials(monkeypatch):
    import arena
    import arena_trial
    from arena_methods import METHODS

    monkeypatch.setattr(arena_trial, "NODES", 8)
    expected = arena.arena_report.arena_expectations.read()
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
    import arena_training
    from arena_trial import Plan, Stage, Trial

    task = arena_training.task_of("digits", "none", 0, 4)
    model = Trial(task, "Dense", None, 0).compiled()
    before = model.get_weights()[0]
    nothing = {"sample_weight": np.zeros(1024, "float32")}
    plan = Plan(model, [Stage(task.train, nothing, until=0.25), Stage(task.train)])
    record = arena_training.Record(task, plan.outputs)
    arena_training.train(plan, 4, record)
    assert len(record.epochs) == 4
    assert record.epochs[0]["clean accuracy"] < record.epochs[-1]["clean accuracy"]
    assert np.any(model.get_weights()[0] != before)


def test_what_is_there_is_not_repeated(tmp_path, monkeypatch):
    import arena

    options = arena.options_of(["--quick", "--output", str(tmp_path), "--heads", "Dense"])
    options.seeds = 1
    assert len(arena.missing(options)) == 8
    parts = [arena.missing(options, part, 2) for part in (0, 1)]
    assert sorted(arena.key_of(key) for part in parts for _, key in part) == sorted(arena.key_of(key) for _, key in arena.missing(options))
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


def line(method, seed, noisy, clean, **others):
    """A line of the results with planted accuracies by epoch."""
    found = {"data": "digits", "noise": "none", "seed": seed, "head": "Dense", "method": method, "strength": 0, "trials": 1, "knows": ""}
    found |= {"stops early": True, "source": "planted", "processor": 1.0, "about": "here", "commit": "abc", "noisy accuracy": noisy}
    return {**found, **{f"clean {name}": clean for name in ("accuracy", "NLL", "ECE")}, **others}


BASE = "crossentropy, stopped early"


def test_the_choice_is_that_of_noisy_labels_whatever_the_clean_ones_say():
    import arena_gains

    rng = np.random.default_rng(0)
    noisy = rng.integers(20, size=(3, 30)) / 20
    trials = [line(BASE, 0, row.tolist(), (1 - row).tolist(), strength=index) for index, row in enumerate(noisy)]
    run, epoch = arena_gains.choose(trials)
    trial, first = np.unravel_index(noisy.argmax(), noisy.shape)
    assert (run["strength"], epoch) == (trial, first)  # of equals the first
    for _ in range(20):
        other = [{**each, **{f"clean {name}": rng.random(30).tolist() for name in ("accuracy", "NLL", "ECE")}} for each in trials]
        found = arena_gains.choose(other)
        assert (found[0]["strength"], found[1]) == (trial, first)
    run, epoch = arena_gains.choose(trials, stops_early=False)
    assert (run["strength"], epoch) == (noisy[:, -1].argmax(), 29)


def planted_lines():
    lines = []
    for seed, base in enumerate((0.5, 0.7, 0.6)):
        lines.append(line(BASE, seed, [0.1, 0.3, 0.2], [0.0, base, 1.0]))
        lines.append(line("mixup", seed, [0.3, 0.2], [base + 0.1 + 0.01 * seed, 0.0]))
        lines.append(line("temperature", seed, [0.3], [base + 0.15 * (seed - 0.8)]))
        lines.append(line("crossentropy, last epoch", seed, [0.3, 0.2], [1.0, base - 0.2], **{"stops early": False}))
        lines.append(line("true labels", seed, [0.3], [1.0], knows="the true labels"))
        lines += [line("label smoothing", seed, [0.3], [1.0], trials=3)]  # not finished
    return lines


def test_tables_of_planted_lines():
    import arena_report

    text = re.sub(" +", " ", arena_report.describe(arena_report.in_order(planted_lines())))
    assert "| crossentropy, stopped early | 0.600 +- 0.058 |" in text
    assert "| mixup | **+11.0 +- 0.6** |" in text
    assert "| temperature | +3.0 +- 8.7 |" in text
    assert "| crossentropy, last epoch | **-20.0 +- 0.0** |" in text
    assert "| none | mixup | **+11.0 +- 0.6** | temperature" in text
    assert "true labels" not in text.split("##")[1]  # a bound is no advice
    assert "| mixup | = + ! |" in text
    assert "| mixup | none | nowhere |" in text
    assert "| temperature | nowhere | nowhere |" in text
    assert "| crossentropy, last epoch | nowhere | none |" in text
    assert text.rindex("\n| true labels") < text.rindex("\n| mixup")  # in the order of the expectations


def test_early_stopping_is_the_advice_where_nothing_is_clearly_better():
    import arena_report

    lines = [each for each in planted_lines() if each["method"] != "mixup"]
    advice = re.sub(" +", " ", arena_report.advice(arena_report.Results(lines)))
    assert "| none | early stopping: none is clearly better | +3.0 +- 8.7 (temperature) | temperature |" in advice


def test_rendering_needs_the_lines_alone(tmp_path):
    import arena_report

    with pytest.raises(ValueError, match="has no line for digits"):
        arena_report.render(tmp_path, "digits")
    (tmp_path / "arena-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in planted_lines()))
    text = arena_report.render(tmp_path, "digits")
    assert (tmp_path / "arena-digits.md").read_text() == text + "\n"
    assert (tmp_path / "arena-digits.png").read_bytes().startswith(b"\x89PNG")
    assert arena_report.render(tmp_path, "digits") == text


def test_expectations_are_whole_and_of_the_noises_that_there_are():
    import arena_expectations
    import noises

    for row, why in arena_expectations.read().values():
        assert list(row) == list(noises.NOISES)
        assert set(row.values()) <= {"+", "=", "-"}
        assert why
