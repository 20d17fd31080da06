"""Probabilities beside people's distributions: by hand, by Keras' own divergence, and with few labels."""

import keras
import numpy as np
import pytest

from keras_het.analysis import distribution_scores
from keras_het.label_noise.label_shares import label_shares

pytestmark = pytest.mark.once


def drawn(labels, seed=0, count=4000):
    """True distributions of people and counts of so many labels each."""
    rng = np.random.default_rng(seed)
    d = rng.dirichlet([0.6] * 4, count)
    return d, rng.multinomial(labels, d).astype(float)


def test_scores_are_those_of_keras():
    p, _ = drawn(1, 1, 50)
    d, _ = drawn(1, 2, 50)
    found = distribution_scores(p, d)
    of_keras = (
        float(keras.ops.mean(loss(d, p)))
        for loss in (keras.losses.kl_divergence, keras.losses.categorical_crossentropy)
    )
    assert (found.kl, found.cross_entropy) == pytest.approx(tuple(of_keras), abs=1e-5)
    assert found.top == np.mean(p.argmax(axis=1) == d.argmax(axis=1))


@pytest.mark.parametrize(("labels", "part"), [(3, 0.75), (10, 0.45), (50, 0.2)])
def test_of_the_distance_that_few_labels_feign_a_part_is_left(labels, part):
    """People's own distributions are at no distance; the plain entropy of the fractions feigns .42, .14 and .03."""
    d, counts = drawn(labels)
    found = distribution_scores(d, counts)
    plain = found.cross_entropy + np.mean(np.sum(counts / labels * np.log(np.maximum(counts / labels, 1e-30)), axis=1))
    assert abs(found.kl) < part * plain
    assert found.entropy_correlation > 0.4


def test_votes_and_counts_are_the_same():
    _, counts = drawn(5, 3, 200)
    p, _ = drawn(1, 4, 200)
    votes = label_shares(counts, 4).votes()
    assert (votes >= 0).all()
    assert distribution_scores(p, votes) == distribution_scores(p, counts)
    longer = np.concatenate([votes, np.full((200, 2), -1)], axis=1)
    assert distribution_scores(p, longer) == distribution_scores(p, counts)


def test_a_model_that_is_always_as_sure_has_no_rank_correlation():
    found = distribution_scores(np.full((3, 2), 0.5), [[1.0, 0.0], [2.0, 2.0], [0.0, 1.0]])
    assert np.isnan(found.entropy_correlation)
    assert "entropy of people" in str(found)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([0, 1], "`labels` must be votes"),
        ([[0.5, 0.2], [0.5, 0.5]], "`labels` must be whole numbers, or have rows of sum 1. Received: row 0"),
        ([[0.0, 0.0], [1.0, 2.0]], "`labels` must have at least one label of every example"),
        ([[-1.0, 2.0], [1.0, 2.0]], "`labels` must be counts or fractions, at least 0"),
        ([[1.0, 2.0, 3.0]] * 2, "`labels` must have 2 columns"),
        ([[1.0, 2.0]] * 3, "`labels` must have a row for each of the 2 examples"),
        ([[-1, -1], [0, 1]], "`labels` must have at least one label of every example"),
    ],
)
def test_wrong_labels_are_refused(labels, text):
    with pytest.raises(ValueError, match=text):
        distribution_scores([[0.5, 0.5], [0.1, 0.9]], labels)
