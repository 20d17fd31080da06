"""The benchmark of changes that may do no harm: its heads by hand, its trainings, and what its report chooses."""

import keras
import numpy as np
import pytest

from benchmarks.floors import candidates, harm, harm_report, limits, tasks, training
from benchmarks.floors.candidates import CANDIDATES, FAMILIES
from benchmarks.labels import recipe

pytestmark = pytest.mark.once
TEMPERATURE, UNITS, FEATURES = 4.0, 6, 3


def head_and_usual(method):
    """A head of a candidate and the full one, with equal weights, and features."""
    rng, found = np.random.default_rng(0), []
    for name in (method, "full"):
        setting = recipe.Setting(name, TEMPERATURE)
        head = recipe._head(UNITS, setting, None, 0, candidates.HEADS[name])
        head.build((None, FEATURES))
        found.append(head)
    head, usual = found
    weights = [rng.normal(size=w.shape) if len(w.shape) else w for w in map(np.array, usual.get_weights())]
    for each in found:
        each.set_weights(weights)
    return head, usual, rng.normal(size=(5, FEATURES)).astype("float32")


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("relative", [False, True])
def test_impossible_classes_have_no_noise(relative):
    head, usual, x = head_and_usual("of possible classes, relative" if relative else "of possible classes")
    own, full = (each.logit_distribution(x) for each in (head, usual))
    logits = array(full.loc) / TEMPERATURE
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    root = np.sqrt(np.minimum(UNITS * p, 1.0) if relative else p)
    np.testing.assert_allclose(array(own.loc), array(full.loc))
    expected = root[:, :, None] * array(full.covariance()) * root[:, None]
    np.testing.assert_allclose(array(own.covariance()), expected, rtol=1e-4, atol=1e-5)


def test_a_lively_diagonal_starts_as_usual_and_keeps_a_gradient_where_it_is_small():
    heads = []
    for name in ("lively diagonal", "full"):
        heads.append(recipe._head(UNITS, recipe.Setting(name, TEMPERATURE), None, 0, candidates.HEADS[name]))
        heads[-1].build((None, FEATURES))
    x = np.ones((1, FEATURES), "float32")
    lively, usual = (array(head.covariance.standard_deviations(x)) for head in heads)
    np.testing.assert_allclose(lively, usual, atol=2e-3)
    rises = []
    for head, small in zip(heads, (0.01, np.log(np.expm1(0.01))), strict=True):
        found = []
        for bias in (small, small + 1e-2):
            head.covariance.scale_diag_layer.bias.assign(np.full(UNITS, bias))
            found.append(array(head.covariance.standard_deviations(x))[0, 0])
        rises.append((found[1] - found[0]) / 1e-2)
    assert rises[0] == pytest.approx(1.0, abs=0.02)
    assert rises[1] < 0.02


def test_a_floored_diagonal_has_its_floor():
    head, usual, x = head_and_usual("floored diagonal")
    for each in (head, usual):
        each.covariance.scale_diag_layer.bias.assign(np.full(UNITS, -50.0))
    assert array(head.covariance.standard_deviations(x)).min() == pytest.approx(candidates.FLOOR * TEMPERATURE)
    assert array(usual.covariance.standard_deviations(x)).min() < 0.01


@pytest.fixture
def short(monkeypatch):
    """Trainings of four looks at 500 examples, with models of their own."""
    monkeypatch.setitem(tasks.LENGTHS, 10, (500, 2000))
    monkeypatch.setattr(harm, "MODELS", {})


@pytest.mark.parametrize("first", ["all", "noise"])
def test_noise_begins_where_dense_was_best(first, short, monkeypatch):
    starts = []
    begin = training.begin
    monkeypatch.setattr(training, "begin", lambda model, weights: starts.append(weights) or begin(model, weights))
    name = {"all": "Dense first, then all", "noise": "Dense first, then the noise"}[first]
    task, _ = tasks.make(tasks.NOISES["by group"], 10, 20, 0)
    best = harm.trained(name, task, 5.0, 0, training.BATCH)
    assert best.count == task.epochs
    before, after = starts
    assert len(after) > len(before) == 4
    assert all(np.any(old != new) for old, new in zip(before[:3], after[:3], strict=True))
    head = next(model for key, model in harm.MODELS.items() if key[0] == name)
    kept = [np.array_equal(old, new) for old, new in zip(after[:4], head.get_weights()[:4], strict=True)]
    assert kept == [first == "noise"] * 4
    scale_diag = head.get_weights()[5]
    assert np.any(scale_diag != after[5])


def test_the_best_epoch_is_that_of_the_least_noisy_nll_and_predicts_with_its_weights(short):
    task, _ = tasks.make(tasks.NOISES["by group"], 10, 20, 0)
    best, again = (harm.trained("Dense", task, 5.0, 0, training.BATCH) for _ in range(2))  # the first one compiles
    assert harm.nll(best.predict(task.validation.x), task.validation.y) == pytest.approx(best.score, abs=1e-6)
    line = harm.on_atlas("by group", 10, 20, "Dense", 0)
    assert line["validation NLL"] == pytest.approx(again.score, abs=1e-6)
    assert line["figures"]["distance"] == pytest.approx(line["figures"]["noisy NLL"] - 1.2276, abs=0.1)


def line_of(candidate, seed, validation, distance):
    key = {"noise": "by group", "units": 10, "per_class": 20, "candidate": candidate, "seed": seed}
    figures = dict.fromkeys(training.MEASURED, 0.5) | {"distance": distance}
    return key | {"validation NLL": validation, "epoch": 1, "seconds": 1.0, "figures": figures}


def test_the_report_compares_seed_by_seed_and_a_family_is_chosen_by_noisy_labels():
    lines = [
        *(line_of("Dense", seed, 1.0 + seed, 0.1 * (1 + seed)) for seed in range(3)),
        *(line_of("full", seed, [0.9, 2.5, 2.9][seed], 0.1 * (1 + seed) + 0.3) for seed in range(3)),
    ]
    table = {row[0]: row[1] for row in harm_report.beside_dense(lines, "distance")[1:]}
    assert table["Dense"] == "0.200 +- 0.058"
    assert table["full"] == "**+0.300 +- 0.000**"
    assert table["Dense or full"] == "+0.200 +- 0.100"  # full at seeds 0 and 2
    assert set(table) == {"Dense", "full", "Dense or full"}
    without_a_seed = harm_report.beside_dense(lines[:-1], "distance")
    assert [row[0] for row in without_a_seed[1:]] == ["Dense"]


def test_it_is_counted_how_often_noisy_labels_choose_the_nearest():
    lines = [line_of("Dense", seed, 1.0, 0.1) for seed in range(4)]
    lines += [line_of("full", seed, validation, 0.2) for seed, validation in enumerate((0.9, 1.1, 1.2, 1.3))]
    rows = {row[0]: row[1:] for row in harm_report.choices(lines)[1:]}
    assert rows == {"Dense or full": ["4", "75%", "0.0250", "0.1000"]}


def test_families_are_of_candidates_and_every_candidate_has_a_head():
    assert all(set(family) <= set(CANDIDATES) for family in FAMILIES.values())
    assert {each.method for each in CANDIDATES.values()} <= {"Dense", *candidates.HEADS}


def test_a_run_is_not_repeated_and_its_tables_have_bounds(short, tmp_path, monkeypatch, capsys):
    arguments = ["--noises", "by group", "--sizes", "10,20", "--candidates", "Dense", "--seeds", "1"]
    options = harm.options_of([*arguments, "--output", str(tmp_path)])
    harm.train(options)
    assert capsys.readouterr().out
    harm.train(options)
    assert not capsys.readouterr().out
    lines = harm_report.read(tmp_path, "harm-*.jsonl")
    tables = harm_report.describe(lines)
    assert list(tables)[-1] == limits.FIGURES
    assert tables["10 classes: distance, beside Dense"][0] == ["candidate", "by group, 20 each"]


def test_slower_noise_is_that_of_two_optimizers_of_keras():
    task, _ = tasks.make(tasks.NOISES["by group"], 10, 20, 0)
    setting, found = CANDIDATES["noise at a third of the rate"].setting(5.0), []
    rates = {True: 0.3 * recipe.LEARNING_RATE, False: recipe.LEARNING_RATE}
    usual, slow = (keras.optimizers.Adam(rates[slower]) for slower in (False, True))
    for optimizer in (None, keras.optimizers.MultiOptimizer(lambda v: slow if "covariance" in v.path else usual)):
        model = recipe.make_model(task, setting, 0, candidates.HEADS)
        if optimizer:
            model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        for start in range(0, 300, 100):
            model.train_on_batch(task.train.x[start : start + 100], task.train.y[start : start + 100])
        found.append(model.get_weights())
    fresh = recipe.make_model(task, setting, 0, candidates.HEADS).get_weights()
    moved = [np.abs(own - start).max() for own, start in zip(found[0], fresh, strict=True)]
    assert moved[0] > 2 * max(moved[4:8]) > 1e-4
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-6)
