"""Parts of the uncertainty of an example, against integrals in float64, and explanations."""

import sys

import keras
import numpy as np
import pytest
from scipy.special import expit, xlogy

from keras_het.base.validation import as_float64
from keras_het.covariances import Latent
from keras_het.explain import explain, uncertainty
from keras_het.layers import HeteroscedasticDense
from tests.checks import refusals
from tests.layers.heads import with_covariance

pytestmark = pytest.mark.once

X = np.array([[1.0, 0.5], [-2.0, 0.3], [0.1, -1.5]], "float32")


def model_of(units, **arguments):
    arguments = with_covariance(**{"temperature": 1.5, "initial_scale": 1.5, "seed": 0, **arguments})
    head = HeteroscedasticDense(units, **arguments)
    model = keras.Sequential([keras.Input((2,)), head])
    head.loc_layer.kernel.assign(np.random.default_rng(1).normal(size=(2, units)))
    return model, head


def binary_entropy(p):
    return -(xlogy(p, p) + xlogy(1 - p, 1 - p))


def exact(mean, variance):
    """Computes H[E p] and E H[p] for p = sigmoid(u), u normal, with 200 Gauss-Hermite points."""
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    p = expit(mean[..., None] + np.sqrt(variance)[..., None] * points)
    weights = weights / weights.sum()
    return binary_entropy(p @ weights), binary_entropy(p) @ weights


@pytest.mark.smoke
def test_two_exclusive_classes():
    model, head = model_of(2, num_factors=1)
    normal = head.logit_distribution(X)
    covariance, loc = as_float64(normal.covariance()), as_float64(normal.loc)
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    whole, expected = exact((loc[:, 0] - loc[:, 1]) / 1.5, variance / 1.5**2)
    found = uncertainty(model, X, num_samples=1024)
    np.testing.assert_allclose(found.entropy, whole, atol=2e-3)
    np.testing.assert_allclose(found.expected_entropy, expected, atol=2e-3)
    np.testing.assert_allclose(found.difference, whole - expected, atol=2e-3)
    assert (found.difference > 0.05).all()


def test_labels_that_are_not_exclusive_add_up():
    model, head = model_of(3, num_factors=1, link="sigmoid")
    normal = head.logit_distribution(X)
    whole, expected = exact(as_float64(normal.loc) / 1.5, as_float64(normal.variance()) / 1.5**2)
    found = uncertainty(model, X, num_samples=1024)
    np.testing.assert_allclose(found.entropy, whole.sum(axis=1), atol=2e-3)
    np.testing.assert_allclose(found.expected_entropy, expected.sum(axis=1), atol=2e-3)


def test_without_noise_nothing_is_uncertain_by_it_and_a_class_left_out_has_no_entropy():
    model, _ = model_of(4, num_factors=1, initial_scale=1e-6, min_scale=0.0)
    found, log_p = uncertainty(model, X), model.predict(X, verbose=0)
    np.testing.assert_allclose(found.difference, 0.0, atol=1e-6)
    np.testing.assert_allclose(found.noise_sd, 0.0, atol=1e-5)
    np.testing.assert_allclose(found.entropy, -np.sum(np.exp(log_p) * log_p, axis=1), rtol=1e-5)
    # Its logit is -inf, and 0 log 0 is 0, not nan.
    model, head = model_of(3, num_factors=1)
    head.loc_layer.bias.assign([0.0, 0.0, -np.inf])
    found = uncertainty(model, X)
    assert np.isfinite(found.entropy).all()
    assert (found.entropy <= np.log(2) + 1e-6).all()


def test_noise_of_the_features_keeps_the_bounds():
    found = uncertainty(model_of(4, covariance=Latent, initial_scale=0.15)[0], X)
    assert (found.difference >= 0).all()
    assert (found.entropy <= np.log(4) + 1e-6).all()
    assert (found.noise_sd > 0).all()


def test_many_classes_are_cut_into_rows(monkeypatch):
    model, _ = model_of(3, num_factors=1)
    whole = uncertainty(model, X)
    monkeypatch.setattr(sys.modules["keras_het.explain.explanation"], "BLOCK_ELEMENTS", 256 * 3)
    for name, one in vars(uncertainty(model, X)).items():
        np.testing.assert_allclose(one, getattr(whole, name), atol=1e-6)


test_errors_say_what_is_wrong = refusals([
    (lambda: uncertainty(model_of(3)[0], X[:0]), "`x` must have at least one example. Received: none"),
    (lambda: uncertainty(model_of(3)[0], X, num_samples=0), "`num_samples` must be an integer at least 1"),
    (lambda: uncertainty(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]), X),
     "must end in a HeteroscedasticDense layer"),
])  # fmt: skip


NAMES, EYE = ["cat", "lynx", "dog", "wolf"], np.eye(4, dtype="float32")


def confusing():
    """Makes an accurate head that confuses 0 and 1 (negative covariance), and 2 and 3 (positive)."""
    head = HeteroscedasticDense(4, num_factors=2, temperature=2.0, seed=0)
    model = keras.Sequential([keras.Input((4,)), head])
    head.loc_layer.kernel.assign(4 * np.eye(4))
    head.covariance.factor_layer.bias.assign(np.array([[2, 0], [-2, 0], [0, 1], [0, 1.2]]).ravel())
    return model, head


@pytest.mark.smoke
def test_an_explanation_by_the_dense_matrix():
    model, head = confusing()
    found = explain(model, EYE[:1], NAMES, count=2)
    covariance, p = as_float64(head.logit_covariance(EYE[:1]))[0] / 4.0, np.exp(model.predict(EYE[:1], verbose=0))[0]
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
    assert "one or the other (correlation -" in text
    assert "nats (entropy)" in text


test_what_cannot_be_explained_is_refused = refusals([
    (lambda: explain(confusing()[0], EYE),
     "`x` must be one example with a batch axis, such as x[:1]. Received: 4 examples"),
    (lambda: explain(keras.Sequential([keras.Input((5, 4)), HeteroscedasticDense(3)]), np.zeros((1, 5, 4))),
     "must make one prediction for each example, from features of shape (N, D). Received: features of"),
    (lambda: explain(confusing()[0], EYE[:1], ["cat"]), "a name for each of the 4 classes. Received: a list of 1"),
])  # fmt: skip


def test_every_pair_is_listed_once():
    pairs = [frozenset((pair.first, pair.second)) for pair in explain(confusing()[0], EYE[:1], count=4).pairs]
    assert len(pairs) == len(set(pairs)) == 4
