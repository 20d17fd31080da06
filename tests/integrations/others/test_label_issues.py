"""Issues by the conventions of the real cleanlab: equal scores, and but for ties and swapped classes equal flags."""

import numpy as np
import pytest
from cleanlab.filter import find_label_issues as by_cleanlab
from cleanlab.rank import get_label_quality_scores
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, precision_score, recall_score
from sklearn.model_selection import cross_val_predict

from keras_het.labels import corrupt, find_issues, pair_flip, symmetric
from keras_het.labels.synthetic import look_alike_transitions

X, CLEAN = load_digits(return_X_y=True)
X = X / 16.0
NOISE = {
    "random": symmetric(10, 0.2),
    "look-alikes": look_alike_transitions(X, CLEAN, 0.2),
    "pairs": pair_flip(10, 0.3),
}


@pytest.mark.parametrize("noise", NOISE)
def test_flags_scores_precision_and_recall(noise):
    labels = corrupt(CLEAN, NOISE[noise], seed=0)
    p = cross_val_predict(LogisticRegression(tol=0.01), X, labels, cv=3, method="predict_proba")
    found, flags = find_issues(p, labels), np.zeros(len(labels), bool)
    flags[found.index] = found.is_issue
    expected, wrong = by_cleanlab(labels, p, n_jobs=1), labels != CLEAN
    assert_allclose(found.score, get_label_quality_scores(labels, p)[found.index])
    if noise == "pairs":  # T proves itself, and finds wrong labels that are the most probable ones
        assert f1_score(wrong, flags) > f1_score(wrong, expected) + 0.1
        return
    assert np.mean(flags == expected) > 0.995
    for score in (precision_score, recall_score):
        assert score(wrong, flags) == pytest.approx(score(wrong, expected), abs=0.01)


def test_a_class_without_labels_changes_no_flag():
    labels = corrupt(CLEAN, NOISE["random"], seed=0)
    some = labels != 4
    p = cross_val_predict(LogisticRegression(tol=0.01), X[some], labels[some], cv=3, method="predict_proba")
    with_empty = np.insert(p, 4, 0.0, axis=1)
    found = find_issues(with_empty, labels[some])
    without = find_issues(p, labels[some] - (labels[some] > 4))
    assert_array_equal(found.index, without.index)
    assert_array_equal(found.is_issue, without.is_issue)
