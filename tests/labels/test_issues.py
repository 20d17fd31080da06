"""Labels that are probably wrong: planted ones are found, and those of no doubt are not."""

import dataclasses
import tracemalloc

import keras
import numpy as np
import pytest
from scipy import special
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from keras_het.callbacks import TrainingDynamics
from keras_het.callbacks.training_record import TrainingRecord
from keras_het.labels import corrupt, find_issues, symmetric
from keras_het.labels.estimation import confident_counts
from keras_het.labels.issues.ranking import ADDED_LABELS, ROUNDS, _joint
from tests.checks import refusals

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def digits():
    x, clean = load_digits(return_X_y=True)
    x, noisy = x / 16.0, corrupt(clean, symmetric(10, 0.2), seed=0)
    p = cross_val_predict(LogisticRegression(tol=0.01), x, noisy, cv=3, method="predict_proba")
    return noisy, noisy != clean, p, x, clean


def test_planted_issues_are_found_and_the_table_is_in_order_with_every_label_once(digits):
    labels, wrong, p, *_ = digits
    found = find_issues(p, labels)
    assert average_precision_score(wrong[found.index], -found.score) > 0.9
    flagged = found.index[found.is_issue]
    assert np.mean(wrong[flagged]) > 0.8
    assert np.mean(np.isin(np.flatnonzero(wrong), flagged)) > 0.8
    assert np.mean(wrong) < 0.25  # what chance would give of both
    np.testing.assert_array_equal(np.sort(found.index), np.arange(len(labels)))
    assert (np.diff(found.score) >= 0).all()
    np.testing.assert_array_equal(found.label, labels[found.index])
    np.testing.assert_array_equal(found.suggested, p.argmax(1)[found.index])
    np.testing.assert_array_equal(found.score, p[found.index, found.label])
    assert not np.any(found.is_issue & (found.label == found.suggested))


def test_by_hand():
    """Of four confident labels 0 two are of class 1, for which .793 is enough; of the labels 1 none is of class 0."""
    p = np.array([[0.9, 0.1], [0.1, 0.9], [0.15, 0.85], [0.9, 0.1], [0.1, 0.9], [0.3, 0.7], [0.22, 0.78]])
    found = find_issues(p, [0, 0, 0, 0, 1, 1, 1])
    assert sorted(found.index[found.is_issue]) == [1, 2]
    assert str(found).splitlines()[0].split() == ["index", "label", "suggested", "score", "issue"]
    last = (
        "The model disagrees with 2 of 7 labels; 2 are issues. Most frequent: 0 for 1 (2); a pair can be a model error."
    )
    assert str(found).splitlines()[-1] == last
    assert found.pairs == [(1, 0, 2)]
    # The mean of six equal .7 is above .7 by rounding, and the class would have no confident example.
    found = find_issues([[0.7, 0.3]] * 6 + [[0.2, 0.8]] * 6 + [[0.7, 0.3]], [0] * 6 + [1] * 7)
    assert found.index[found.is_issue].tolist() == [12]


def test_a_notebook_shows_the_worst_as_text(digits):
    labels, _, p, *_ = digits
    found = find_issues(p, labels)
    table = dataclasses.replace(found, class_names=np.array([f"<b>&{k}" for k in range(10)]))._repr_html_()
    assert table.count("<tr>") == 21
    assert f"<tr><td>{found.index[0]}</td><td>&lt;b&gt;&amp;{found.label[0]}</td>" in table
    assert "<b>" not in table
    assert found._repr_html_().endswith(f"<p>{str(found).splitlines()[-1]}</p>")


def test_the_updates_and_the_added_labels_by_hand():
    """With loops: T of labels of which none is contradicted has, beside them, the added ones."""
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
    rate = 1 / 5
    counts = [[(i == j) + ADDED_LABELS * (1 - rate if i == j else rate / 2) for j in range(3)] for i in range(3)]
    t = np.array(counts) / np.sum(counts, axis=1, keepdims=True)
    found = find_issues(p, [0, 1, 2], ranking="transition")
    for row, label, score in zip(found.index, found.label, found.score, strict=True):
        q = p[row].copy()
        for _ in range(ROUNDS):
            q = np.array([q[k] * sum(t[k, j] * p[row, j] / (q @ t[:, j]) for j in range(3)) for k in range(3)])
        assert score == pytest.approx(q[label] * t[label, label] / (q @ t[:, label]))


def test_without_wrong_labels_there_is_no_issue_nor_of_classes_that_nobody_has_nor_of_a_tie():
    labels, p = np.repeat(np.arange(3), 20), np.full((60, 3), 0.05)
    p[np.arange(60), labels] = 0.9
    assert not find_issues(p, labels).is_issue.any()
    p = np.array([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    found = find_issues(p, [0, 0, 0])
    assert not found.is_issue.any()
    assert found.suggested.tolist() == [0, 0, 0]
    assert not find_issues(np.ones((4, 1)), [0] * 4).disagrees.any()
    # A tie: cleanlab flags none either; 8 of these 12 would be, and 5 that a vote of ten neighbours leaves open.
    assert not find_issues(np.full((12, 3), 1 / 3), np.arange(12) % 3).is_issue.any()
    p, labels = np.array([[0.5, 0.5, 0.0]] * 10 + [[0.9, 0.1, 0.0], [0.1, 0.9, 0.0]] * 10), [1, 0] * 5 + [0, 1] * 10
    for found in (find_issues(p, labels), find_issues(p.astype("float32"), labels)):
        assert not found.is_issue.any()
        np.testing.assert_array_equal(found.suggested, found.label)
    assert not found.disagrees.any()


@pytest.mark.parametrize("count", [1, 2])
def test_a_class_of_one_or_two_labels_takes_no_other_label(digits, count):
    """Models that saw no label of the class give it no probability, so others counted for it: 82 issues for 10."""
    *_, x, clean = digits
    votes = cross_val_predict(KNeighborsClassifier(10), x, clean, cv=2, method="predict_proba")
    labels, votes = np.where(np.arange(len(clean)) < count, 10, clean), np.insert(votes, 10, 0.0, axis=1)
    found = find_issues(votes, labels)
    assert set(np.flatnonzero(labels == 10)) <= set(found.index[found.is_issue])
    assert not np.any(found.suggested == 10)
    assert found.is_issue.sum() <= find_issues(votes[:, :10], clean).is_issue.sum() + count


def test_thresholds_are_at_least_those_of_chance_and_the_largest_remainders_of_counts_are_rounded_up():
    """The mean of class 1 is 0.2, so 0.3 would do for the sixth example, which reaches no other mean."""
    p = np.array([[0.8, 0.15, 0.05]] * 5 + [[0.5, 0.3, 0.2]] + [[0.75, 0.2, 0.05]] * 3 + [[0.1, 0.1, 0.8]] * 4)
    labels = np.array([0] * 6 + [1] * 3 + [2] * 4)
    assert confident_counts(labels, p).tolist() == [[5, 3, 0], [0, 0, 0], [0, 0, 4]]
    p[6:9] = [0.3, 0.4, 0.3]
    assert confident_counts(labels, p).tolist() == [[5, 0, 0], [0, 3, 0], [0, 0, 4]]
    assert confident_counts(labels[1:8], p[1:8]).tolist() == [[4, 0, 0], [0, 0, 0], [0, 0, 0]]
    counts = np.array([[2, 0, 1], [1, 4, 0], [0, 0, 4]])  # of a class (row) with a label (column)
    np.testing.assert_array_equal(_joint(np.repeat([0, 1, 2], [10, 4, 4]), counts), [[7, 3, 0], [0, 4, 0], [1, 0, 3]])


def trained(labels, logits):
    dynamics = TrainingDynamics(np.zeros((len(labels), 2)), labels)
    dynamics.record = TrainingRecord(np.asarray(labels), logits.shape[-1])
    for epoch in logits:
        dynamics.record.update(special.log_softmax(epoch, axis=-1).astype("float32"))
    return dynamics


def test_a_training_is_judged_by_what_it_said_before_it_knew_the_labels():
    """Example 2 is contradicted once, agreed with twice: it counts for more that the loss was larger the first time."""
    labels = [0, 0, 1, 1]
    margins = np.array([[4, -3, -3, 1], [4, -5, 1, -1], [4, -4, 1, 3]], float)
    logits = np.where(np.eye(2, dtype=bool)[labels], margins[..., None], 0.0)
    mean = np.average(margins, axis=0, weights=np.logaddexp(0, -margins).mean(axis=1))  # the loss of two classes
    assert mean[2] < margins.mean(axis=0)[2] - 0.1
    found = find_issues(trained(labels, logits))
    assert found.index.tolist() == [1, 2, 3, 0]
    assert found.label.tolist() == [0, 1, 1, 0]
    assert found.suggested.tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(found.score, special.expit(mean[[1, 2, 3, 0]]), rtol=1e-4)
    assert found.is_issue.tolist() == [True, True, False, False]


RECORD, PAIR = trained([0, 1], np.zeros((1, 2, 2))), [[0.5, 0.5], [0.5, 0.5]]
test_errors_say_what_is_wrong = refusals([
    (lambda: find_issues([0, 1], PAIR), "log-probabilities. Received: shape (2,)"),  # the order of cleanlab
    (lambda: find_issues([[-0.7, -0.7]], [0]),
     "of shape (N, K). Use np.exp for log-probabilities. Received: shape (1, 2), from -0.7 to -0.7"),
    (lambda: find_issues(PAIR, [0, 2]), "`labels` must be in [0, 2). Received: 2 at [1]"),
    (lambda: find_issues(np.zeros((0, 2)), []), "`probabilities` must be in [0, 1]"),
    (lambda: find_issues([[0.0, 1.0], [np.nan, 1.0]], [0, 1]), "must have no nan. Received: nan at [1, 0]"),
    (lambda: find_issues(RECORD, [1, 1]),
     "`labels` must be None or the labels of the training. Received: 1 other label, the first at [0]"),
    (lambda: find_issues(TrainingDynamics(np.ones((2, 1)), [0, 1])),
     "TrainingDynamics must record an epoch first: pass it to `fit`. Received: no epoch"),
    (lambda: find_issues(keras.Sequential([keras.layers.Softmax()]), [0, 1]),
     "`probabilities` must be out-of-sample probabilities, or a TrainingDynamics. Received: a Sequential"),
    (lambda: find_issues(PAIR, [0, 1], ranking="best"), "`ranking` must be one of 'confidence', 'transition'."),
    (lambda: find_issues(RECORD, ranking="transition"), '`ranking` must be "confidence" for a TrainingDynamics'),
    (lambda: find_issues(PAIR), "`labels` must be an array, except for a TrainingDynamics. Received: None"),
])  # fmt: skip


def test_probabilities_in_float32_are_not_copied():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(50), size=40000).astype("float32")
    p.flags.writeable = False  # as of a memory map that is read only, which NumPy copies in `argmax`
    labels = (p.cumsum(axis=1) < rng.random((40000, 1))).sum(axis=1).clip(max=49)
    tracemalloc.start()
    found = find_issues(p, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < p.nbytes  # one copy in float64 would be twice that
    exact = find_issues(p.astype("float64"), labels)
    np.testing.assert_array_equal(np.sort(found.index[found.is_issue]), np.sort(exact.index[exact.is_issue]))


def test_labels_in_another_order_than_the_columns_get_a_warning():
    """Names in sorted order are no numbers of the columns 9, 10, 2; in the columns' order, the 10 errors are issues."""
    rng, names = np.random.default_rng(0), np.array(["9", "10", "2"])
    true = rng.integers(3, size=300)
    labels = np.where(np.arange(300) % 30 == 0, (true + 1) % 3, true)
    p = np.eye(3)[true] * 0.85 + 0.05
    with pytest.warns(UserWarning, match="`probabilities` agree with 3% of the labels, and with 97% in another order"):
        find_issues(p, np.unique(names[labels], return_inverse=True)[1])
    result = find_issues(p, [names.tolist().index(label) for label in names[labels]])
    assert result.index[result.is_issue].tolist() == np.arange(0, 300, 30).tolist()
