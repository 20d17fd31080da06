"""The class of each example where labels are flipped: nearer to the truth than the most probable label."""

import numpy as np
import pytest

from keras_het.labels import corrupt, pair_flip, symmetric
from keras_het.labels.decoding import decode

pytestmark = pytest.mark.once


def predictions(transition, count=2000, seed=0):
    """True classes, noisy labels, and what a model predicts of these: the rows of T, with errors of its own."""
    rng = np.random.default_rng(seed)
    true = rng.integers(len(transition), size=count)
    p = transition[true] * rng.gamma(20.0, size=(count, len(transition))) + 0.01
    return true, corrupt(true, transition[true], seed + 1), p / p.sum(axis=1, keepdims=True)


def test_swapped_classes_are_found_and_of_uniform_flips_the_class_is_the_most_probable_label():
    true, labels, p = predictions(pair_flip(6, 0.45))
    assert np.mean(decode(labels, p).classes == true) > 0.97
    assert np.mean(p.argmax(axis=1) == true) < 0.8
    _, labels, p = predictions(symmetric(5, 0.4))
    found = decode(labels, p)
    assert np.mean(found.classes == p.argmax(axis=1)) > 0.99
    assert (found.margin >= 0).all()
    assert not (found.second == found.classes).any()


def test_a_class_without_labels_is_nobodys():
    _, labels, p = predictions(symmetric(4, 0.2))
    labels, p = labels[labels < 3], p[labels < 3]
    p[:, 3] = 0.0
    found = decode(labels, p / p.sum(axis=1, keepdims=True))
    assert set(found.classes) == {0, 1, 2}


def test_parts_give_the_same_as_the_whole(monkeypatch):
    _, labels, p = predictions(symmetric(4, 0.3))
    whole = decode(labels, p)
    monkeypatch.setattr("keras_het.base.batches.ROWS", 7)
    for part, other in zip(whole, decode(labels, p), strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-12, atol=1e-12)
