"""Explanations of one example, on a head whose covariance is known."""

import keras
import numpy as np
import pytest

from keras_het.base.validation import as_float64
from keras_het.explain import explain
from keras_het.layers import HeteroscedasticDense
from tests.checks import refusals

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


test_errors_say_what_is_wrong = refusals([
    (lambda: explain(confusing()[0], X),
     "`x` must be one example, with an axis before it, as x[:1]. Received: 4 examples"),
    (lambda: explain(keras.Sequential([keras.Input((5, 4)), HeteroscedasticDense(3)]), np.zeros((1, 5, 4))),
     "must end in a head on features (N, D), one prediction for each example, to be explained. Received: features of"),
    (lambda: explain(confusing()[0], X[:1], ["cat"]), "a name for each of the 4 classes. Received: a list of 1"),
])  # fmt: skip


def test_every_pair_is_listed_once():
    found = explain(confusing()[0], X[:1], count=4)
    pairs = [frozenset((pair.first, pair.second)) for pair in found.pairs]
    assert len(pairs) == len(set(pairs)) == 4
