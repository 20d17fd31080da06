"""The benchmarks of labels: their data, and the figures and tables that they make of predictions."""

import json

import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

from benchmarks.labels import (
    demo,
    dynamics,
    dynamics_stopping,
    early_learning,
    ensembles,
    label_issues,
    mode_choice,
    planted_pairs,
    regression,
)
from benchmarks.lib import tasks, views
from benchmarks.lib.views.labels import DEMO
from keras_het.labels import find_issues

pytestmark = pytest.mark.once


def test_the_table_of_ensembles_has_paired_differences():
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


@pytest.mark.filterwarnings("ignore:The model predicts .* it is weak:UserWarning")  # so short a training is
def test_the_figures_of_ensembles_are_of_clean_labels_and_scaled_ones_keep_the_accuracy():
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

    x, labels = planted_pairs.planted(0)
    known = {row.tobytes(): label for row, label in zip(*load_digits(return_X_y=True), strict=True)}
    true = np.array([known[(16.0 * row.astype("float64")).round().tobytes()] for row in x])
    for i, j in planted_pairs.PAIRS:
        for one, other in ((i, j), (j, i)):
            assert set(labels[true == one]) == {one, other}
            assert np.mean(labels[true == one] == other) == pytest.approx(0.3, abs=0.12)
    np.testing.assert_array_equal(labels[np.isin(true, [0, 2, 5, 6])], true[np.isin(true, [0, 2, 5, 6])])


def test_quality_and_kinds_of_issues_by_hand():
    wrong, index = np.array([False, True, False, True]), np.array([1, 0, 3, 2])
    found = label_issues.quality(wrong, index, np.array([0.1, 0.2, 0.3, 0.9]), np.array([True, True, False, False]))
    assert found == pytest.approx({"wrong": 0.5, "average precision": (1 + 2 / 3) / 2, "precision": 0.5, "recall": 0.5})
    p = np.full((12, 4), 0.02)
    clean = np.array([3, 0, 3, 0] + [0, 1, 2, 3] * 2)
    p[np.arange(12), clean] = 0.94
    labels = np.array([2, 1, 3, 0] + [0, 1, 2, 3] * 2)  # the first two are wrong: 3 as 2, and 0 as 1
    with_pair = find_issues(p, labels, pairs=[(2, 3)])
    assert label_issues.kinds("pairs and random", clean, with_pair) == 0.5  # neither is of a planted pair
    assert label_issues.kinds("random, 20%", clean, with_pair) is None


def test_shares_of_memorised_labels_by_hand():

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


def test_the_threshold_of_two_components_is_between_them():
    values = np.array([5.0, 4.0, -3.0, 4.5, -2.5])
    assert dynamics.two_components(values) == pytest.approx((4.0 - 2.5) / 2)


def test_what_is_missed_is_counted_at_as_many_labels_as_are_wrong():
    wrong, scores = np.array([True, False, True, False]), np.array([0.1, 0.2, 0.9, 0.95])
    found = dynamics.cut("any", wrong, scores, np.array([True, True, False, False]), 1.0)
    assert (found["missed"], found["precision"], found["recall"], found["flagged"]) == (0.5, 0.5, 0.5, 0.5)
    assert found["average precision"] == pytest.approx(0.5 + 0.5 * 2 / 3)
    none = dynamics.cut("any", np.zeros(4, bool), scores, np.array([True, False, False, False]), 1.0)
    assert none == {"method": "any", "wrong": 0.0, "flagged": 0.25, "seconds": 1.0}


@pytest.mark.filterwarnings("ignore:The model predicts .* it is weak:UserWarning")  # so short a training is
def test_the_figures_of_one_training_are_made_and_have_tables():
    rows = [
        {"data": "digits", "noise": "symmetric", "seed": 0} | row
        for row in dynamics.figures("digits", "symmetric", 0, 3)
    ]
    named = [row["method"] for row in rows if row["method"] != "five folds, cleanlab"]  # it may not be installed
    assert named[0] == dynamics.RUN
    assert len(named) == 6
    table = dynamics.tables(rows)["wrong labels that are found, digits"]
    assert table[1][0].startswith("symmetric (4")
    assert table[1][2] == f"{rows[0]['average precision']:.3f}"
    assert rows[0]["average precision"] > rows[0]["wrong"] + 0.2


def test_rules_when_to_stop_by_hand():
    """Early stopping waits five epochs; Label Wave has three numbers in a mean, and waits five."""
    noisy = [0.1, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.9]
    assert dynamics_stopping.early_stopping(noisy, 5) == (1, 6)
    assert dynamics_stopping.early_stopping(noisy, 6) == (7, 7)
    changes = [9, 5, 2, 3, 9, 9, 9, 9, 9, 9]
    assert dynamics_stopping.label_wave(changes) == (4, 9)
    assert dynamics_stopping.label_wave(changes, 1, 3) == (3, 6)
    line = {"noise": "pair", "seed": 0, "noisy": noisy, "clean": noisy[::-1], "changes": changes[:7]}
    rows = [line | {"data": "training"}, line | {"data": "all"}]
    table = {row[1]: row[2:] for row in dynamics_stopping.tables(rows)["when to stop"]}
    assert table["early stopping, noisy labels"] == ["0.400", "2.0", "7.0"]
    assert table["Label Wave"] == ["+0.000", "5.0", "8.0"]
    assert table[dynamics_stopping.BOUND] == ["+0.500", "1.0", "8.0"]


def test_the_tables_of_the_demo_are_those_of_its_findings(tmp_path):
    def line(noise, seed, chosen, pairs=None):
        share = {"share": 0.4, "flips": [[0, 1, 9], [2, 1, 5]]}
        issues = {"named": 1, "precision": 0.9, "recall": 0.8}
        figures = {"early_stopping": 0.9, "chosen": chosen, "method": "a", "issues": issues, "pairs": pairs}
        said = {"share": 0.3, "flips": [[0, 1, 7], [1, 0, 3]]}
        return {"noise": noise, "seed": seed, **figures, "said": said, "planted": share, "planted_pairs": [[3, 9]]}

    lines = [line("b", 0, 0.95, [[3, 9], [1, 2]]), line("a", 0, 0.85), line("b", 1, 0.97, [])]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"findings": lines}))
    found = demo.read(path)
    assert demo.table(found)[1][:4] == ["b", "0.900 +- 0.000", "0.960 +- 0.010", "+6.0 +- 1.0"]
    assert demo.noise_found(found)[1:] == [
        ["b", "0.400 +- 0.000", "0.300 +- 0.000", "1 of 2, 2; 1 of 2, 2", "1 of 2; 0 of 0"],
        ["a", "0.400", "0.300", "1 of 2, 2", ""],
    ]
    assert demo.by_seed(found)[1:] == [
        ["a", "0", "0.900", "0.850", "-5.0", "a"],
        ["b", "0", "0.900", "0.950", "+5.0", "a"],
        ["b", "1", "0.900", "0.970", "+7.0", "a"],
    ]


def test_gains_and_losses_beyond_two_standard_errors_are_bold():
    tables = {DEMO: [["points", "method"], ["+4.2 +- 0.9", "a"], ["-3.0 +- 1.0", "b"], ["+2.0 +- 1.0", "c"]]}
    assert views.demo(lambda name, title: tables[title])[1:] == [
        ["**+4.2 +- 0.9**", "a"],
        ["**-3.0 +- 1.0**", "b"],
        ["+2.0 +- 1.0", "c"],
    ]


def test_the_folds_of_linnerud_have_every_example_once():
    parts = [regression.splits("linnerud", 0, fold)[0] for fold in range(4)]
    assert {len(part[0]) for fold in parts for part in fold} == {11, 4, 5}
    whole = [np.concatenate([x for x, _ in fold]) * 1.0 for fold in parts]
    assert all(len(np.unique(x, axis=0)) == len(np.unique(whole[0], axis=0)) for x in whole)
    order = [np.roll(np.random.default_rng(0).permutation(20), 5 * fold)[15:] for fold in range(4)]
    assert sorted(np.concatenate(order)) == list(range(20))


def test_the_planted_covariance_is_that_of_the_noise_and_is_recovered_from_itself():
    x, y, covariance, _ = regression.planted(np.random.default_rng(0), count=20_000)
    rows = np.abs(x).max(1) < 0.4  # where the covariance hardly changes
    centred = (
        y[rows]
        - np.concatenate([x[rows], np.ones((rows.sum(), 1))], 1)
        @ np.linalg.lstsq(np.concatenate([x[rows], np.ones((rows.sum(), 1))], 1), y[rows], rcond=None)[0]
    )
    np.testing.assert_allclose(centred.T @ centred / rows.sum(), covariance[rows].mean(0), atol=0.35)
    factor = np.linalg.cholesky(covariance - 1e-6 * np.eye(5))
    packed = np.concatenate([y, np.full_like(y, 1e-3), factor.reshape(len(y), -1), -np.ones((len(y), 1))], axis=1)
    assert regression.recovered(packed, covariance) == pytest.approx((1.0, 0.0), abs=1e-6)


def test_the_natural_head_has_the_mean_and_the_variance_of_its_parameters():
    head = regression.natural_head(2)
    outputs = keras.ops.convert_to_numpy(head(np.ones((1, 3), "float32")))[0]
    first, second = np.split(np.ones(3) @ keras.ops.convert_to_numpy(head.maps.kernel), 2)
    precision = np.log1p(np.exp(second))
    np.testing.assert_allclose(outputs, [*(first / precision), *precision**-0.5, -1.0], rtol=1e-4)


def test_the_conditional_logit_has_the_published_likelihood_and_the_head_begins_at_it():
    pytest.importorskip("statsmodels")
    x, y, back = mode_choice.people()
    values = np.linalg.solve(back, mode_choice.PUBLISHED["conditional logit, published"][1:])
    plain = mode_choice.conditional_logit()
    plain.set_weights([values[:, None]])
    np.testing.assert_allclose(mode_choice.coefficients(plain, back)[0], -0.0155, atol=1e-4)
    utilities = plain.predict(x, verbose=0).astype("float64")
    likelihood = (utilities[np.arange(210), y] - np.log(np.exp(utilities).sum(1))).sum()
    assert likelihood == pytest.approx(-199.1284, abs=1e-3)
    head = mode_choice.mixed_logit(plain, 0, seed=0)
    assert [tuple(weight.shape) for weight in head.trainable_weights] == [(6, 1), (4,)]
    logs = head.predict(x, verbose=0)[np.arange(210), y].sum()
    assert logs == pytest.approx(likelihood, abs=1.0)


def test_the_mixed_logit_of_the_head_is_that_of_quadrature():
    pytest.importorskip("statsmodels")
    x, y, back = mode_choice.people()
    scale = np.array([3.3, 1e-3, 1e-3, 1e-3])  # the others cannot be less
    values = np.linalg.solve(back, mode_choice.PUBLISHED["normal error of air, published"][1:])
    plain = mode_choice.conditional_logit()
    plain.set_weights([values[:, None]])
    head = mode_choice.mixed_logit(plain, 0, seed=0)
    head.layers[-1].covariance.scale_diag_layer.bias.assign(np.log(np.expm1(scale - 1e-3 + 1e-9)))
    logs = head.predict(x, verbose=0)[np.arange(210), y].sum()
    assert logs == pytest.approx(mode_choice.by_quadrature(x, y, np.append(values, 3.3)), abs=0.01)
