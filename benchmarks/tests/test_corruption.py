"""Weak raters, with real, deterministic errors of different kinds, and flips with a random pattern."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.lib.corruption import random_flip, weak_raters

pytestmark = pytest.mark.once

X, Y = load_digits(return_X_y=True)
X = X / 16.0


def test_raters_err_where_it_is_hard_and_together():
    answers = weak_raters(X, Y)
    wrong = answers != Y[:, None]
    rates = np.array([wrong[k == Y].mean() for k in range(10)])
    assert answers.shape == (len(Y), 5)
    assert 0.15 < wrong.mean() < 0.3
    assert rates.max() > 3 * rates.min()  # some classes are harder than others
    independent = np.prod(wrong.mean(axis=0))
    assert wrong.all(axis=1).mean() > 5 * independent
    assert weak_raters(X, Y, per_class=1, seed=1).shape == (len(Y), 5)
    assert np.mean(weak_raters(X, Y, per_class=1) != Y[:, None]) > 1.5 * wrong.mean()


def test_each_rater_is_its_model_of_its_own_examples():
    answers = weak_raters(X, Y, 3, num_raters=7, seed=[4, 2])
    rng = np.random.default_rng([4, 2])
    for rater in range(7):
        seen = np.concatenate([rng.permutation(np.flatnonzero(k == Y))[:3] for k in range(10)])
        if rater in (0, 3, 5):  # the fifth is of the kind of the first
            model = RidgeClassifier() if rater == 3 else KNeighborsClassifier(1)
            np.testing.assert_array_equal(answers[:, rater], model.fit(X[seen], Y[seen]).predict(X))
        if rater in (0, 5):  # the nearest neighbour knows what it saw
            np.testing.assert_array_equal(answers[seen, rater], Y[seen])
    assert np.any(answers[:, 0] != answers[:, 5])


def test_a_function_of_its_arguments():
    first, again, other = (weak_raters(X, Y, 2, 3, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.mean(first != other) > 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per_class": 0}, "`per_class` must be an integer at least 1. Received: per_class=0"),
        ({"num_raters": 0}, "`num_raters` must be an integer at least 1. Received: num_raters=0"),
        ({"per_class": 4}, "`labels` must have 4 examples of every class, as `per_class` says. Received: 3 of class 1"),
        (
            {"features": np.zeros((7, 2, 1))},
            "`features` must have shape (N, D) and `labels` (N,). Received: shapes (7, 2, 1) and (7,)",
        ),
        ({"features": np.full((7, 1), np.nan)}, "`features` must be finite. Received: 7 numbers that are not"),
        (
            {"labels": np.array([0, 0, 0, 2, 2, 2, 2])},
            "`labels` must have an example of every class. Received: none of class 1",
        ),
        ({"labels": np.zeros(7, int)}, "`labels` must have an example of every class. Received: none of class 1"),
        ({"seed": -1}, "`seed` must be an integer at least 0, or a list of integers. Received: seed=-1"),
    ],
)
def test_what_is_refused(arguments, message):
    arguments = {"features": np.zeros((7, 2)), "labels": np.array([0, 0, 0, 0, 1, 1, 1]), "per_class": 2, **arguments}
    with pytest.raises(ValueError) as error:
        weak_raters(**arguments)
    assert str(error.value) == message


def test_random_flips_are_row_stochastic_and_of_a_seed():
    flips = random_flip(6, 0.3, seed=1)
    np.testing.assert_allclose(flips.diagonal(), 0.7)
    np.testing.assert_allclose(flips.sum(axis=1), 1)
    assert not np.allclose(flips, random_flip(6, 0.3, seed=2))
    np.testing.assert_array_equal(flips, random_flip(6, 0.3, seed=1))
    with pytest.raises(ValueError, match=r"`num_classes` must be an integer at least 2\. Received: num_classes=1"):
        random_flip(1, 0.5)
