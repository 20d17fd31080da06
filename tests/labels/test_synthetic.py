"""Corrupted labels: their distribution, their seeds, and the instance-dependent noise of the demo."""

import numpy as np
import pytest
from scipy.stats import norm

from keras_het.labels.synthetic import corrupt, look_alike_transitions, pair_flip
from tests.checks import refusals, z_limit

pytestmark = pytest.mark.once

COUNT = 30_000
LABELS = np.random.default_rng(0).integers(4, size=COUNT)
T = 0.6 * np.eye(4) + 0.4 * np.random.default_rng(3).dirichlet(np.ones(4), size=4)


def blobs(num_examples=600, seed=0):
    """Three classes on a line, so that 0 and 2 look like 1 and never like each other."""
    rng, labels = np.random.default_rng(seed), np.repeat([0, 1, 2], num_examples // 3)
    return labels[:, None] + 0.2 * rng.standard_normal((num_examples, 1)), labels


def check_counts(labels, noisy, matrix):
    """Asserts that noisy labels of each class have the distribution of its row, at a stated rate of false alarms."""
    for i, row in enumerate(matrix):
        counts, possible = np.bincount(noisy[labels == i], minlength=len(row)), row > 0
        assert counts[~possible].sum() == 0
        spread = np.sqrt(counts.sum() * row * (1 - row))
        certain = spread == 0
        z = (counts - counts.sum() * row)[~certain] / spread[~certain]
        assert np.abs(z).max(initial=0.0) < z_limit(matrix.size)
        np.testing.assert_array_equal(counts[certain & possible], counts.sum())


@pytest.mark.statistical
@pytest.mark.parametrize("matrix", [T, pair_flip(4, 0.45), np.eye(4)], ids=["random", "pair", "I"])
@pytest.mark.parametrize("seed", [0, 1, [2, 3]])
def test_each_class_gets_the_labels_of_its_row(matrix, seed, base_seed):
    check_counts(LABELS, corrupt(LABELS, matrix, (np.atleast_1d(seed) + base_seed).tolist()), matrix)


@pytest.mark.statistical
def test_each_example_gets_the_labels_of_its_own_row(base_seed):
    assert corrupt([2, 2, 2], rows=[[0, 1, 0], [0, 1, 0], [1, 0, 0]]).tolist() == [1, 1, 0]  # as many rows as classes
    rows = np.eye(4)[(LABELS + np.arange(COUNT)) % 4]
    np.testing.assert_array_equal(corrupt(LABELS, rows=rows), rows.argmax(1))
    rows = np.random.default_rng(base_seed + 1).dirichlet(np.ones(4), size=COUNT)
    noisy = corrupt(LABELS, rows=rows, seed=base_seed)
    spread = np.sqrt(np.sum((rows**3).sum(1) - (rows**2).sum(1) ** 2))
    assert abs(np.sum(rows[np.arange(COUNT), noisy] - (rows**2).sum(1))) / spread < z_limit(1)


def test_a_function_of_its_seed_leaves_its_arguments_alone_and_stays_in_range():
    labels = LABELS[:1000].copy()
    first, again, other = (corrupt(labels, T, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    np.testing.assert_array_equal(labels, LABELS[:1000])
    assert corrupt(np.zeros(100_000, int), [[1 / 3 - 1e-5, 1 / 3, 1 / 3], [0, 1, 0], [0, 0, 1]]).max() == 2


@pytest.mark.parametrize("noise", [0.0, 0.2, 0.4, 0.99, 1.0])
def test_look_alikes_have_the_rate_on_average(noise):
    features, labels = blobs()
    rows = look_alike_transitions(features, labels, noise)
    np.testing.assert_allclose(rows.sum(1), 1)
    assert rows.min() >= 0
    assert np.mean(1 - rows[np.arange(len(labels)), labels]) == pytest.approx(noise)


def test_look_alikes_flip_to_the_class_that_looks_alike_and_near_the_boundary():
    features, labels = blobs()
    rows = look_alike_transitions(features, labels, 0.4)
    assert rows[labels == 0, 2].sum() == rows[labels == 2, 0].sum() == 0
    flips = 1 - rows[np.arange(len(labels)), labels]
    near = np.argsort(-features[labels == 0, 0])  # the rightmost of class 0 look most like class 1
    assert np.all(np.diff(flips[labels == 0][near]) <= 1e-12)
    assert norm.isf(1e-6) * np.sqrt(600 * 0.24) > abs(np.sum(corrupt(labels, rows=rows) != labels) - 240)


test_errors_say_what_is_wrong = refusals([
    (lambda: corrupt([0, 3], np.eye(3)), "`labels` must be in [0, 3). Received: 3 at [1]"),
    (lambda: corrupt([0.0, 1.0], np.eye(3)), "`labels` must be integers of shape (N,). Received: shape (2,), dtype fl"),
    (lambda: corrupt([0, 1], rows=np.ones((3, 2)) / 2), "`labels` must have an entry for each of the 3 examples. Rece"),
    (lambda: corrupt([0], rows=[[0.5, 0.6]]), "`rows` must have rows that sum to one. Received: row 0 sums to 1.1"),
    (lambda: corrupt([0], rows=[0.5, 0.5]), "`rows` must have shape (N, K). Received: shape (2,)"),
    (lambda: corrupt([0, 1], np.ones((3, 2)) / 2),
     "`transition` must be a square matrix (K, K). Pass a row for each example as `rows`. Received: shape (3, 2)"),
    (lambda: corrupt([0]), "`transition` must be T, or None with `rows`. Received: 0 of the two"),
    (lambda: corrupt([0], np.eye(2), rows=[[0.5, 0.5]]), "Received: 2 of the two"),
    (lambda: corrupt([0], np.eye(2), -1), "at least 0, or a list of integers. Received: seed=-1"),
    (lambda: look_alike_transitions([[np.nan], [1.0]], [0, 1], 0.5), "`features` must be finite. Received: nan at [0,"),
    (lambda: look_alike_transitions([[0.0], [1.0]], [0, 0], 0.5), "an example of every class. Received: none of class"),
    (lambda: look_alike_transitions([[0.0]], [0], 1.5), "`noise` must be in [0, 1]. Received: noise=1.5"),
    (lambda: look_alike_transitions([[0.0]], [0, 1], 0.5), "`features` must have shape (N, D) and `labels` (N,)"),
])  # fmt: skip
