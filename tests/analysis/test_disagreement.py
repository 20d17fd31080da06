"""Explanations of one example, and examples on which two models disagree, on heads whose covariance is known."""

import keras
import numpy as np
import pytest

from keras_het.analysis import disagreements, explain, rank_histogram
from keras_het.base.validation import as_float64
from keras_het.layers import HeteroscedasticDense

pytestmark = pytest.mark.once

NAMES = ["cat", "lynx", "dog", "wolf"]
X = np.eye(4, dtype="float32")


def confusing():
    """A head that is right of all classes, and holds 0 and 1 for each other (against), 2 and 3 (together)."""
    head = HeteroscedasticDense(4, num_factors=2, temperature=2.0, seed=0)
    model = keras.Sequential([keras.Input((4,)), head])
    head.loc_layer.kernel.assign(4 * np.eye(4))
    head.covariance.factor_layer.bias.assign(np.array([[2, 0], [-2, 0], [0, 1], [0, 1.2]]).ravel())
    return model, head


def guessing(classes):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "softmax")])
    model.layers[0].kernel.assign(9.0 * np.eye(4)[classes])
    return model


@pytest.mark.smoke
def test_an_explanation_by_the_dense_matrix():
    model, head = confusing()
    found = explain(model, X[:1], NAMES, count=2)
    covariance, p = as_float64(head.logit_covariance(X[:1]))[0] / 4.0, np.exp(model.predict(X[:1], verbose=0))[0]
    order = np.argsort(-p)[:2]
    assert [one.name for one in found.classes] == [NAMES[i] for i in order]
    np.testing.assert_allclose([one.probability for one in found.classes], p[order], rtol=1e-5)
    np.testing.assert_allclose(
        [one.noise_sd for one in found.classes], np.sqrt(np.diagonal(covariance))[order], rtol=1e-4
    )
    assert {found.pairs[0].first, found.pairs[0].second} == {"cat", "lynx"}
    assert found.pairs[0].covariance == pytest.approx(covariance[0, 1], rel=1e-4)
    assert found.pairs[0].correlation == pytest.approx(
        covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]), rel=1e-4
    )
    text = str(found)
    assert "cat: probability 0." in text
    assert "one rises where the other falls" in text
    assert "if the noise were known" in text


def test_an_explanation_needs_one_example():
    model, _ = confusing()
    with pytest.raises(
        ValueError, match=r"`x` must be one example, with an axis before it, as x\[:1\]. Received: 4 examples"
    ):
        explain(model, X)
    with pytest.raises(ValueError, match=r"a name for each of the 4 classes. Received: a list of 1"):
        explain(model, X[:1], ["cat"])


def test_every_pair_is_listed_once():
    found = explain(confusing()[0], X[:1], count=4)
    pairs = [frozenset((pair.first, pair.second)) for pair in found.pairs]
    assert len(pairs) == len(set(pairs)) == 4


def test_disagreements_are_where_the_head_knew():
    """The other model takes 0 for 1, as the head says, and 2 for 0.

    The head knows nothing of the second; the other model predicts 1 and 3 right.
    """
    model, head = confusing()
    (one,) = disagreements(model, guessing([1, 1, 0, 3]), X, np.arange(4), NAMES)
    covariance = as_float64(head.logit_covariance(X))[0] / 4.0
    assert (one.index, one.predicted, one.other) == (0, "cat", "lynx")
    assert one.covariance == pytest.approx(covariance[0, 1], rel=1e-4)
    found = rank_histogram(model, guessing([1, 1, 0, 3]), X, np.arange(4))
    dense = np.abs(as_float64(head.logit_covariance(X))[2, 2])
    expected = 1 + int((np.delete(dense, 2) > dense[0] + 1e-6).sum())
    assert found.ranks.tolist() == [1, expected]
    assert found.counts.tolist() == np.bincount([0, expected - 1], minlength=3).tolist()


def test_models_that_agree_have_none():
    model, _ = confusing()
    assert disagreements(model, model, X, np.arange(4)) == []
    assert rank_histogram(model, model, X, np.arange(4)).counts.tolist() == [0, 0, 0]


def test_a_head_without_covariance_knows_nothing():
    """Of equal ranks each has the middle one, and none is listed."""
    head = HeteroscedasticDense(5, num_factors=0, link="normalized_sigmoid")
    model = keras.Sequential([keras.Input((5,)), head])
    head.loc_layer.kernel.assign(9.0 * np.eye(5))
    other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5, "softmax")])
    other.layers[0].kernel.assign(9.0 * np.eye(5)[[1, 2, 3, 4, 0]])
    assert disagreements(model, other, np.eye(5), np.arange(5)) == []
    assert rank_histogram(model, other, np.eye(5), np.arange(5)).counts.tolist() == [0, 5, 0, 0]


def test_errors():
    model, _ = confusing()
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    with pytest.raises(ValueError, match=r"`other` must have the 4 classes of `model`. Received: 3"):
        disagreements(model, other, X, np.arange(4))
    with pytest.raises(ValueError, match=r"`labels` must be in \[0, 4\). Received: 4 at \[3\]"):
        rank_histogram(model, model, X, np.arange(1, 5))
    with pytest.raises(ValueError, match="must end in a HeteroscedasticDense layer"):
        rank_histogram(other, model, X, np.arange(4))
