"""The estimator in the hands of the real cleanlab, and issues by its conventions."""

import numpy as np
import pytest
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues as by_cleanlab
from cleanlab.rank import get_label_quality_scores
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_score, recall_score
from sklearn.model_selection import cross_val_predict

from keras_het.labels import Classifier, corrupt, find_issues, symmetric
from keras_het.labels.synthetic import look_alike_transitions


def digits():
    """600 digits, a fifth of whose labels are wrong, and where."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x, y = x[:600] / 16, y[:600]
    wrong = rng.random(600) < 0.2
    return x, np.where(wrong, (y + rng.integers(1, 10, 600)) % 10, y), wrong


def test_clean_learning_finds_wrong_labels_and_trains_without_them():
    x, given, wrong = digits()
    options = {"cv_n_folds": 3, "seed": 0, "find_label_issues_kwargs": {"n_jobs": 1}}  # it forks, as JAX cannot
    learning = CleanLearning(Classifier(epochs=20, random_state=0), **options)
    learning.fit(x, given)
    issues = learning.get_label_issues()["is_label_issue"].to_numpy()
    assert precision_score(wrong, issues) > 0.7
    assert recall_score(wrong, issues) > 0.7
    assert learning.clf.score(x[wrong], given[wrong]) < 0.2  # it has not learned what is wrong
    assert learning.predict_proba(x).shape == (600, 10)


X, CLEAN = load_digits(return_X_y=True)
X = X / 16.0
NOISE = {
    "random": {"transition": symmetric(10, 0.2)},
    "look-alikes": {"rows": look_alike_transitions(X, CLEAN, 0.2)},
}


@pytest.mark.parametrize("noise", NOISE)
def test_flags_scores_precision_and_recall(noise):
    labels = corrupt(CLEAN, seed=0, **NOISE[noise])
    p = cross_val_predict(LogisticRegression(tol=0.01), X, labels, cv=3, method="predict_proba")
    found, flags = find_issues(p, labels), np.zeros(len(labels), bool)
    flags[found.index] = found.is_issue
    expected, wrong = by_cleanlab(labels, p, n_jobs=1), labels != CLEAN
    assert_allclose(found.score, get_label_quality_scores(labels, p)[found.index])
    assert np.mean(flags == expected) > 0.995
    for score in (precision_score, recall_score):
        assert score(wrong, flags) == pytest.approx(score(wrong, expected), abs=0.01)
