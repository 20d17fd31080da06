"""Transition matrices: those of known noise, their measures and estimates."""

import numpy as np
import pytest

from keras_het.base.validation import check_one_transition
from keras_het.labels import pair_flip, symmetric
from keras_het.labels.estimation import (
    MAX_ROUNDS,
    ROW_FLOOR,
    check_distributions,
    classes_by_transition,
    confident_counts,
)
from keras_het.ops.transition import outlier_class, total_variation
from tests.checks import refusals
from tests.ops.test_transition import MATRICES, UNITS

pytestmark = pytest.mark.once


def test_matrices_are_row_stochastic_and_have_their_diagnostics():
    for matrix in MATRICES.values():
        np.testing.assert_array_equal(check_one_transition(matrix), matrix)
    assert pair_flip(3, 0.2)[2].tolist() == [0.2, 0.0, 0.8]
    assert outlier_class(3, 0.4)[3].tolist() == pytest.approx([0.2, 0.2, 0.2, 0.4])
    assert total_variation(symmetric(5, 0.5), np.eye(5)) == pytest.approx(0.5)


def test_the_estimator_finds_the_transition():
    """Examples are nearly sure to be of one class, and their posterior is known."""
    rng, matrix = np.random.default_rng(6), pair_flip(UNITS, 0.3)
    clean = rng.dirichlet(np.full(UNITS, 0.02), size=20_000)
    labels = ((clean @ matrix).cumsum(axis=1) > rng.random((20_000, 1))).argmax(axis=1)
    counts = confident_counts(labels, clean)
    assert total_variation(counts / counts.sum(axis=1, keepdims=True), matrix) < 0.05
    assert total_variation(classes_by_transition(labels, clean @ matrix)[0], matrix) < 0.05
    assert total_variation(np.eye(UNITS), matrix) > 0.25  # what the bound has to beat


def test_the_rounds_of_an_estimate_end_when_no_class_changes():
    """By a loop over the examples, which need every round that is allowed: T would differ after one fewer."""
    rng = np.random.default_rng(48)
    p, labels = rng.dirichlet(np.ones(UNITS), size=120), rng.integers(UNITS, size=120)
    t, history = confident_counts(labels, p) + ROW_FLOOR * np.eye(UNITS), []
    t = t / t.sum(axis=1, keepdims=True)
    while len(history) < 2 or history[-1] != history[-2]:
        log_t = np.log((1 - ROW_FLOOR) * t + ROW_FLOOR / UNITS)
        history.append([int(np.argmax([x @ row for row in log_t])) for x in p])
        t = np.array([p[np.equal(history[-1], k)].mean(axis=0) for k in range(UNITS)])
    transition, classes = classes_by_transition(labels, p)
    np.testing.assert_allclose(transition, (1 - ROW_FLOOR) * t + ROW_FLOOR / UNITS, rtol=1e-12)
    assert classes.tolist() == history[-1]
    assert len(history) == MAX_ROUNDS + 1


test_errors_say_what_is_wrong = refusals([
    (lambda: check_one_transition(np.ones((2, 3))), "`transition` must be a square matrix. Received: shape (2, 3)"),
    (lambda: check_one_transition([[1.2, -0.2], [0, 1]]), "must not be negative. Received: -0.2 at [0, 1]"),
    (lambda: check_one_transition([[1, 0], [0.5, 0.6]]), "must have rows that sum to one. Received: row 1 sums to 1.1"),
    (lambda: check_one_transition([[1, 0], [np.nan, 1]]), "must not be negative. Received: nan at [1, 0]"),
    (lambda: symmetric(3, 1.5), "`noise` must be in [0, 1]. Received: noise=1.5"),
    (lambda: outlier_class(3, -0.1), "`alpha` must be in [0, 1]. Received: alpha=-0.1"),
    (lambda: check_distributions([[0.5, 0.5], [0.0, 0.0]]), "`probabilities` must have rows of sum 1. Received: row 1"),
    (lambda: total_variation([[1, 0]], np.eye(2)), "`transition` must be a square matrix. Received: shape (1, 2)"),
    (lambda: total_variation(np.eye(3), np.eye(2)), "`reference` must have the shape of `transition`, (3, 3). Receive"),
    (lambda: symmetric(2.5, 0.1), "`num_classes` must be an integer at least 2. Received: num_classes=2.5"),
])  # fmt: skip
