"""Wrong labels that are second choices: no more false alarms than is said, and what is planted is found."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from keras_het.analysis.second_choices import SLACK, _moments, agreement, ranks_of_clearness, unclear
from tests.checks import FALSE_ALARM

pytestmark = pytest.mark.once


def alarms(tables, follows, seed):
    """In how many tables the p-value is below .01.

    In a table of 300 wrong labels, each of five classes has second choices and labels of its own, which do not depend
    on each other, but for the given share of the labels, which are the second choice.
    """
    rng = np.random.default_rng(seed)
    count = 0
    for _ in range(tables):
        classes = rng.integers(5, size=300)
        second, labels = (classes + rng.choice([1, 2, 3], size=300, p=[0.6, 0.3, 0.1]) for _ in range(2))
        labels = np.where(rng.random(300) < follows, second, labels)
        count += agreement(second, labels, classes, 8).p_value < 0.01
    return count


@pytest.mark.statistical
@pytest.mark.planted
def test_labels_by_class_are_rarely_said_to_be_by_example_and_others_are(base_seed):
    """Also not where the model has a few classes wrong; the check catches labels of which a tenth more follow."""
    limit = binom.isf(FALSE_ALARM, 1000, 0.01)
    assert alarms(1000, 0.0, base_seed) <= limit
    assert alarms(1000, SLACK, base_seed) <= limit
    assert alarms(1000, 0.3, base_seed) > 900


def test_mean_and_variance_are_those_of_all_permutations():
    second, labels = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0])
    hits = [np.sum(second == np.array(order)) for order in itertools.permutations(labels)]
    found = _moments(np.bincount(second, minlength=3), np.bincount(labels, minlength=3))
    np.testing.assert_allclose(found, (np.mean(hits), np.var(hits)), rtol=1e-12)


def test_without_a_wrong_label_nothing_is_said():
    none = np.empty(0, int)
    assert np.isnan(agreement(none, none, none, 3).p_value)


def test_unclear_is_the_area_under_roc_within_classes():
    rng = np.random.default_rng(0)
    margin, wrong = rng.integers(9, size=200) / 9.0, rng.random(200) < 0.3
    np.testing.assert_allclose(unclear(margin, wrong, np.zeros(200, int)), roc_auc_score(wrong, -margin), rtol=1e-12)
    apart = np.where(wrong, 1, 0)  # a class of wrong labels alone says nothing
    assert unclear(margin, wrong, apart) == 0.5


def test_places_are_within_the_class():
    places = ranks_of_clearness(np.array([0.1, 0.9, 0.5, 0.2]), np.array([2, 2, 0, 2]))
    np.testing.assert_allclose(places, [5 / 6, 1 / 6, 1 / 2, 1 / 2])
