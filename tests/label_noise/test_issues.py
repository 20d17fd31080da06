"""Labels that are probably wrong: planted ones are found, and those of no doubt are not."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

from keras_het.label_noise import corrupt_labels, find_label_issues, symmetric


@pytest.fixture(scope="module")
def digits():
    """Labels of which a fifth is wrong, which ones, and probabilities out of sample."""
    x, clean = load_digits(return_X_y=True)
    noisy = corrupt_labels(clean, symmetric(10, 0.2), seed=0)
    model = LogisticRegression(max_iter=300)
    return noisy, noisy != clean, cross_val_predict(model, x / 16.0, noisy, cv=3, method="predict_proba")


def test_planted_issues_are_found(digits):
    labels, wrong, p = digits
    found = find_label_issues(p, labels)
    assert average_precision_score(wrong[found.index], -found.score) > 0.9
    flagged = found.index[found.is_issue]
    assert np.mean(wrong[flagged]) > 0.8
    assert np.mean(np.isin(np.flatnonzero(wrong), flagged)) > 0.8
    assert np.mean(wrong) < 0.25  # what chance would give of both


def test_the_table_is_in_order_and_about_every_label_once(digits):
    labels, _, p = digits
    found = find_label_issues(p, labels)
    np.testing.assert_array_equal(np.sort(found.index), np.arange(len(labels)))
    assert (np.diff(found.score) >= 0).all()
    np.testing.assert_array_equal(found.given, labels[found.index])
    np.testing.assert_array_equal(found.suggested, p.argmax(1)[found.index])
    np.testing.assert_array_equal(found.score, p[found.index, found.given])
    assert not np.any(found.is_issue & (found.given == found.suggested))


def test_by_hand():
    """Of four confident labels 0 two are of class 1, for which .793 is enough; of the labels 1 none is of class 0."""
    p = np.array([[0.9, 0.1], [0.1, 0.9], [0.15, 0.85], [0.9, 0.1], [0.1, 0.9], [0.3, 0.7], [0.22, 0.78]])
    found = find_label_issues(p, [0, 0, 0, 0, 1, 1, 1])
    assert sorted(found.index[found.is_issue]) == [1, 2]
    assert str(found).splitlines()[0].split() == ["index", "given", "suggested", "score", "is_issue"]
    assert str(found).splitlines()[-1] == "2 of 7 labels are probably wrong"


def test_without_wrong_labels_there_is_no_issue():
    labels = np.repeat(np.arange(3), 20)
    p = np.full((60, 3), 0.05)
    p[np.arange(60), labels] = 0.9
    assert not find_label_issues(p, labels).is_issue.any()


@pytest.mark.parametrize(
    ("p", "labels", "message"),
    [
        ([[0.5, 0.4]], [0], "`probabilities` must have rows of sum 1. Received: row 0 sums to 0.9"),
        ([[-0.7, -0.7]], [0], "such as the exp of log-probabilities, and of shape (N, K). Received: shape (1, 2), from -0.7 to -0.7"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, 2], "`labels` must be in [0, 2). Received: 2 at [1]"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, 0], "`labels` must have an example of every class. Received: none of class 1"),
        (np.zeros((0, 2)), [], "`probabilities` must be in [0, 1]"),
        ([[np.nan, 1.0]], [0], "`probabilities` must be in [0, 1]"),
    ],
)
def test_wrong_arguments(p, labels, message):
    with pytest.raises(ValueError) as error:
        find_label_issues(p, labels)
    assert message in str(error.value)
