"""The class of each example: the most probable one, or one nearer to the truth where held-out labels prove it."""

import numpy as np
import pytest

from keras_het.labels import corrupt, decoding, pair_flip, symmetric
from keras_het.labels.decoding import classes_by_transition, decode

pytestmark = pytest.mark.once


def predictions(transition, count=2000, seed=0):
    """True classes, noisy labels, and what a model predicts of these: the rows of T, with errors of its own."""
    rng = np.random.default_rng(seed)
    true = rng.integers(len(transition), size=count)
    p = transition[true] * rng.gamma(20.0, size=(count, len(transition))) + 0.01
    return true, corrupt(true, rows=transition[true], seed=seed + 1), p / p.sum(axis=1, keepdims=True)


def test_swapped_classes_are_found_and_of_uniform_flips_the_class_is_the_most_probable_label():
    true, labels, p = predictions(pair_flip(6, 0.45))
    assert np.mean(decode(labels, p).classes == true) > 0.97
    assert np.mean(p.argmax(axis=1) == true) < 0.8
    _, labels, p = predictions(symmetric(5, 0.4))
    found = decode(labels, p)
    np.testing.assert_array_equal(found.classes, p.argmax(axis=1))
    assert (found.margin >= 0).all()
    assert not (found.second == found.classes).any()


@pytest.mark.parametrize("size", [2, 8])
def test_labels_that_follow_the_examples_or_only_two_classes_prove_no_transition(size):
    """As on labels of people: T is the mean of hard and easy examples, and its classes are right less often."""
    rng = np.random.default_rng(0)
    likes = rng.dirichlet(np.full(size, 0.3), size=2000)  # of the example, to each class
    labels = (likes.cumsum(axis=1) < rng.random((2000, 1))).sum(axis=1)
    p = 0.7 * likes + 0.3 * rng.dirichlet(np.full(size, 0.3), size=2000)
    found = decode(labels, p)
    assert not found.is_proven
    np.testing.assert_array_equal(found.classes, p.argmax(axis=1))
    assert np.mean(classes_by_transition(labels, p) == likes.argmax(axis=1)) <= np.mean(
        found.classes == likes.argmax(axis=1)
    )


@pytest.mark.parametrize(("told", "named", "expected"), [
    ((0.5, 0.5), 0.0, True), ((0.5, -0.01), 0.0, False), ((0.01, 0.01), 0.0, False), ((0.5, 0.5), -0.01, False),
])  # fmt: skip
def test_both_halves_must_agree_that_classes_by_t_tell_more_and_name_no_fewer_labels(
    told, named, expected, monkeypatch
):
    halves = iter([np.full((2, 1000), [[part], [named]]) for part in told])
    monkeypatch.setattr(decoding, "_gains", lambda *data: next(halves))
    _, labels, p = predictions(symmetric(4, 0.2))
    assert decode(labels, p).is_proven == expected


def test_gains_of_a_table_by_hand():
    """Two rows of p are of class 0 by T; the most probable class puts the second to the third row, of class 1."""
    p = np.array([[0.6, 0.4, 0.0], [0.45, 0.55, 0.0], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]]).repeat(2000, axis=0)
    counts, labels = [1200, 800, 1200, 800, 1200, 800, 2000], [0, 1, 0, 1, 1, 2, 2]
    told, named = decoding._gains(np.repeat(labels, counts), p, np.arange(8000), np.arange(8000))
    expected = np.log([1, 1, 0.6 / 0.3, 0.4 / 0.5, 0.6 / 0.5, 0.4 / 0.2, 1])
    np.testing.assert_allclose(told, np.repeat(expected, counts), atol=2e-3)
    np.testing.assert_array_equal(named, np.repeat([0, 0, 1, -1, 0, 0, 0], counts))


def test_a_label_that_ties_is_the_class():
    p = np.array([[0.4, 0.4, 0.2], [0.4, 0.2, 0.4], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]] * 10)
    labels = np.tile([1, 2, 2, 0], 10)
    assert decode(labels, p).classes.tolist() == labels.tolist()


def test_a_class_without_labels_is_nobodys():
    _, labels, p = predictions(symmetric(4, 0.2))
    labels, p = labels[labels < 3], p[labels < 3]
    p[:5, 3] = 2.0  # as a model says that has seen the class elsewhere
    assert set(decode(labels, p / p.sum(axis=1, keepdims=True)).classes) == {0, 1, 2}


def test_parts_give_the_same_as_the_whole(monkeypatch):
    _, labels, p = predictions(symmetric(4, 0.3))
    whole, nearest = decode(labels, p), classes_by_transition(labels, p)
    monkeypatch.setattr("keras_het.base.batches.BLOCK_ROWS", 7)
    for part, other in zip([*whole, nearest], [*decode(labels, p), classes_by_transition(labels, p)], strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-12, atol=1e-12)
