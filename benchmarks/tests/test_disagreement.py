"""Examples on which two models disagree, on heads whose covariance is known."""

import keras
import numpy as np
import pytest

from benchmarks.imagenet.disagreement import disagreements, rank_histogram
from keras_het.base.validation import as_float64
from keras_het.layers import HeteroscedasticDense
from tests.explain.test_explanation import NAMES, X, confusing

pytestmark = pytest.mark.once


def guessing(classes):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "softmax")])
    model.layers[0].kernel.assign(9.0 * np.eye(4)[classes])
    return model


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
