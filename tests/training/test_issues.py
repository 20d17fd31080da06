"""Issues to train without: of swapped classes far more of the wrong labels than the most probable label finds."""

import numpy as np
import pytest

from keras_het.analysis import find_label_issues
from keras_het.analysis.label_quality import issues_by_class
from keras_het.label_noise import corrupt_labels, pair_flip
from keras_het.labels.diagnosis import diagnose
from keras_het.training.result import Result
from keras_het.training.task import Task

pytestmark = pytest.mark.once


def swapped(rate):
    """True classes, labels of which a share names the next class, and probabilities of a model of these."""
    rng = np.random.default_rng(0)
    true, rows = rng.integers(6, size=1200), pair_flip(6, rate)
    p = (rows[true] + 0.02) * rng.gamma(15.0, size=(1200, 6))
    return true, corrupt_labels(true, rows[true], 1), p / p.sum(axis=1, keepdims=True)


def issues_of(p, labels, diagnosis):
    """The issues of a result."""
    task = Task(None, labels, np.arange(p.shape[1]))
    return Result(None, None, [], "accuracy", "", diagnosis, p, data=task).issues


def right(found, true, labels):
    """The share of examples of which it is known whether the label is right."""
    wrong = np.zeros(len(true), bool)
    wrong[found.index] = found.is_issue
    return np.mean(wrong == (labels != true))


def test_of_swapped_classes_it_knows_which_labels_are_wrong():
    true, labels, p = swapped(0.42)
    found = issues_by_class(p, labels)
    assert right(found, true, labels) > 0.95
    assert right(find_label_issues(p, labels), true, labels) < 0.85
    np.testing.assert_array_equal(found.is_issue, found.given != found.suggested)
    np.testing.assert_array_equal(found.kind == "", ~found.is_issue)
    assert (np.diff(found.score) >= 0).all()


def test_where_labels_are_nearly_right_the_issues_are_those_of_find_label_issues():
    _, labels, p = swapped(0.0)
    p[::50] = np.roll(p[::50], 1, axis=1)  # hard examples
    found = diagnose(p, labels)
    assert found.kind == "none"
    np.testing.assert_array_equal(issues_of(p, labels, found).is_issue, find_label_issues(p, labels).is_issue)
    _, labels, p = swapped(0.3)
    found = diagnose(p, labels)
    np.testing.assert_array_equal(issues_of(p, labels, found).is_issue, issues_by_class(p, labels).is_issue)
