"""The numbers of a report are those of the package's own functions, and what cannot be told is said."""

import dataclasses

import keras
import ml_dtypes
import numpy as np
import pandas
import pytest
from keras import ops

from keras_het import explain
from keras_het.labels.estimation import check_distributions
from keras_het.labels.reports.findings import collect, next_steps, summary
from tests.checks import refusals
from tests.labels.reports.models import CLASSES, EXAMPLES, make_data, plain, with_head

pytestmark = pytest.mark.once

X, Y = make_data()
NAMES = ["ant", "bee", "cat", "dog"]


def test_planted_errors_are_the_flagged_labels():
    found = collect(with_head(), X, Y, NAMES)
    assert set(found.issues.index[found.issues.is_issue]) == set(range(10))
    assert found.flagged == 10
    assert found.missing == []
    assert found.accuracy == pytest.approx(110 / EXAMPLES)


def test_errors_that_are_many_of_one_kind_are_confusable():
    """Of 27 examples of the second class with their own label 13 get that of the last.

    The ten planted errors are of all classes.
    """
    swapped, y = np.flatnonzero((Y == 1) & (np.arange(EXAMPLES) >= 10))[:13], Y.copy()
    y[swapped] = 3
    issues = collect(with_head(), X, y).issues
    kinds = dict(zip(issues.index.tolist(), issues.kind.tolist(), strict=True))
    assert {kinds.pop(index) for index in swapped.tolist()} == {"confusable"}
    assert {kinds.pop(index) for index in range(10)} == {"wrong"}
    assert set(kinds.values()) == {""}


def test_advice_names_the_classes_between_which_most_suspects_are():
    swapped, y = np.flatnonzero(np.isin(Y, (2, 3)) & (np.arange(EXAMPLES) >= 10))[:16], Y.copy()
    y[swapped] = 5 - Y[swapped]
    found = collect(with_head(), X, y, NAMES)
    assert {*found.confusable[0][:2]} == {"cat", "dog"}
    assert found.confusable[0][2] >= 16
    assert len(found.confusable) == 1  # of the ten errors of all classes no pair has more than by chance
    assert found.flagged == 26
    (step,) = (step for step in next_steps(found) if "labelling guide" in step)
    assert "“cat” and “dog” are confused more often than by chance (18 issues)" in step
    assert "bee" not in step


def test_the_worst_is_one_of_the_flagged_labels():
    """The label of example 50 is the least probable of all, but no suspect: the model is sure of nothing there."""
    p = np.full((EXAMPLES, CLASSES), 0.02)
    p[np.arange(EXAMPLES), np.arange(EXAMPLES) % CLASSES] = 0.94
    p[50] = [0.34, 0.325, 0.01, 0.325]
    found = collect(plain(), X, Y, NAMES, probabilities=p)
    assert found.issues.index[0] == 50
    assert not found.issues.is_issue[0]
    assert f"The most suspicious is example {found.issues.index[1]}, labelled" in " ".join(summary(found))
    assert sum(count for *_, count in found.flips) == found.flagged == 10
    assert found.flips[0] == ("bee", "ant", 3)


def test_rounded_sums_of_half_precision_are_accepted():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax", dtype="mixed_bfloat16")])
    x = 3.0 * np.random.default_rng(0).normal(size=(60, 3))
    found = collect(model, x, np.arange(60) % 3)
    p = np.random.default_rng(0).dirichlet(np.ones(3), 60).astype(ml_dtypes.bfloat16)
    assert np.abs(p.astype(float).sum(axis=1) - 1).max() > 2e-3
    for score in (found.issues.score, collect(None, None, np.arange(60) % 3, probabilities=p).issues.score):
        assert np.isfinite(score).all()
    for half in (p, ops.cast(p.astype("float32"), "bfloat16")):
        np.testing.assert_allclose(check_distributions(half).sum(axis=1), 1.0, atol=1e-6)


def test_columns_of_a_frame_are_matched_by_name():
    p = np.full((EXAMPLES, CLASSES), 0.02)
    p[np.arange(EXAMPLES), np.arange(EXAMPLES) % CLASSES] = 0.94
    frame = pandas.DataFrame(p, columns=NAMES)[NAMES[::-1]]
    assert collect(None, None, Y, NAMES, probabilities=frame).accuracy == np.mean(np.arange(EXAMPLES) % CLASSES == Y)


@pytest.mark.filterwarnings("ignore:`probabilities` agree")  # their columns are rolled
def test_the_scores_are_those_of_the_metrics_also_of_probabilities_out_of_sample():
    found, p = collect(plain(), X, Y), plain().predict(X, verbose=0)
    assert found.nll == pytest.approx(float(keras.metrics.SparseCategoricalCrossentropy()(Y, p)), rel=1e-5)
    assert found.brier == pytest.approx(np.square(p - np.eye(CLASSES)[Y]).sum(axis=1).mean(), rel=1e-5)
    assert found.calibration.error == pytest.approx(explain.calibration(p, Y).error)
    p = np.roll(plain().predict(X, verbose=0), 1, axis=1)
    found = collect(with_head(), X, Y, probabilities=p)
    assert found.is_out_of_sample
    assert found.accuracy == pytest.approx(np.mean(p.argmax(axis=1) == Y))
    assert not any("memorised" in step for step in next_steps(found))
    assert any("memorised" in step for step in next_steps(collect(with_head(), X, Y)))


def test_issues_that_somebody_found_are_the_flagged_labels():
    all_of_them = dataclasses.replace(collect(plain(), X, Y).issues, is_issue=np.ones(len(Y), bool))
    found = collect(plain(), X, Y, issues=all_of_them)
    assert found.flagged == len(Y)
    assert f"{len(Y)} labels" in " ".join(summary(found))


def test_labels_of_one_class_are_no_suspects_and_noise_is_told_of_probabilities_out_of_sample():
    found = collect(plain(), X, np.zeros(EXAMPLES, int))
    assert found.issues is None
    assert found.missing == ["Label errors: unknown, because all labels are of one class, “0”."]
    assert found.accuracy == pytest.approx(0.25)
    assert not any("Do not rely" in step for step in next_steps(found))
    found = collect(plain(), X, np.ones(EXAMPLES, int), NAMES)
    assert found.missing == ["Label errors: unknown, because all labels are of one class, “bee”."]
    found = collect(None, None, Y, NAMES, probabilities=plain().predict(X, verbose=0))
    assert found.diagnosis.next_step in next_steps(found)
    assert f"Label noise: {found.diagnosis.answer}" in summary(found)
    assert collect(plain(), X, Y).diagnosis is None


def diverged():
    model = plain()
    model.layers[-1].kernel.assign(np.full((CLASSES, CLASSES), np.nan))
    return model


test_errors_say_what_is_wrong = refusals([
    (lambda: collect(plain(), X[:0], Y[:0]), "`x` must have at least one example. Received: none"),
    (lambda: collect(plain(), X, Y + 1), "`y` must be in [0, 4). Received: 4 at [2]"),
    (lambda: collect(plain(), X, Y - 1), "`y` must be in [0, inf). Received: -1 at [3]"),
    (lambda: collect(plain(), X, Y[:-1]), "`y` must have an entry for each of the 120 examples. Received: 119"),
    (lambda: collect(plain(), X, np.eye(CLASSES)[Y]),
     "`y` must be integers of shape (N,): use y.argmax(-1) for label vectors. Received: shape (120, 4)"),
    (lambda: collect(plain(), X, Y, ["a"]),
     "be a sequence with a name for each of the 4 classes. Received: a list of 1"),
    (lambda: collect(plain(), X, Y, set(NAMES)), "a name for each of the 4 classes. Received: a set of 4"),
    (lambda: collect(plain(), X, Y, issues=collect(plain(), X, np.append(Y[1], Y[1:])).issues),
     "`issues` must have the same 120 labels. Received: issues of other labels"),
    (lambda: collect(plain(), X, Y, issues=[3, 4]),
     "`issues` must be the result of `find_issues`, or None. Received: a list"),
    (lambda: collect(plain(), X, Y, issues=collect(plain(), X[:60], Y[:60]).issues),
     "`issues` must have the same 120 labels. Received: issues of other labels"),
    (lambda: collect(plain(), X, Y, batch_size=0),
     "`batch_size` must be an integer at least 1. Received: batch_size=0"),
    (lambda: collect(diverged(), X, Y),
     "its training has diverged, or `x` has nan. Received: nan for example 0"),
    (lambda: collect(plain(None), X, Y), "or be compiled with a loss that has from_logits=True"),
    (lambda: collect(with_head(link="sigmoid"), X, Y),
     "`model` must predict exclusive classes, whose probabilities sum to 1"),
    (lambda: collect(plain(), ((X, Y) for _ in range(1)), None),
     "`x` must be arrays, so that examples have row numbers."),
    (lambda: collect(None, X, Y), "`probabilities` must be an array if `model` is None. Received: None"),
    (lambda: collect(plain(), X, Y, probabilities=np.ones((3, 4))),
     "a row for each of the 120 examples. Received: shape (3, 4)"),
    (lambda: collect(plain(), X, Y, probabilities=np.ones((120, 4))),
     "`probabilities` must have rows of sum 1. Received: row 0 sums to 4"),
])  # fmt: skip


def steps_of(found):
    return " ".join(next_steps(found))


def test_advice_follows_the_numbers():
    found = collect(with_head(), X, Y, NAMES)
    steps = steps_of(found)
    assert "Check the 10 issues" in steps
    assert "confused more often" not in steps
    assert "confident (calibration error" in steps
    calibrated = dataclasses.replace(found.calibration, error=0.01)
    calm = found._replace(calibration=calibrated, issues=None, is_out_of_sample=True)
    assert steps_of(calm) == "You need not change anything."
    assert "no better (10.0%) than always predicting the majority class (25.8%)" in steps_of(
        calm._replace(accuracy=0.1)
    )


def test_flagged_labels_of_any_two_classes_make_no_pair():
    """A quarter of the labels is any other class: every two classes have suspects between them, by chance."""
    rng, classes = np.random.default_rng(0), np.arange(1200) % CLASSES
    y = np.where(rng.random(1200) < 0.25, (classes + rng.integers(1, CLASSES, 1200)) % CLASSES, classes)
    p = np.full((1200, CLASSES), 0.02)
    p[np.arange(1200), classes] = 0.94
    found = collect(plain(), p, y, NAMES, probabilities=p)
    assert len(found.flips) == CLASSES * (CLASSES - 1)
    assert min(count for *_, count in found.flips) >= 10
    assert found.confusable == []
    assert "“" not in steps_of(found)
    assert "confused more often" not in steps_of(found)


def test_the_summary_says_it_in_words():
    text = " ".join(summary(collect(with_head(), X, Y, NAMES)))
    assert text.startswith("Issues (likely errors): 10 of 120 labels (8.3%). The most suspicious is example ")
    assert "The model predicts 91.7% of the labels, with a mean confidence of " in text
    x, y = make_data(wrong=0)
    assert summary(collect(plain(), x, y))[0] == "No label of 120 is an issue."
