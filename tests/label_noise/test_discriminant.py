"""A linear discriminant in closed form: that of scikit-learn, out of sample, and not led by wrong labels."""

import numpy as np
import pytest

from keras_het.label_noise import discriminant
from keras_het.labels import corrupt, symmetric

pytestmark = pytest.mark.once


def clusters(count=300, size=6, units=3, seed=0):
    """Features of classes of equal sizes, whose directions have different variances, and the classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % units
    shape = rng.normal(size=(size, size))
    means = 2.0 * np.random.default_rng(7).normal(size=(units, size))
    return (means[labels] + rng.normal(size=(count, size)) @ shape).astype("float32"), labels


def sums(x, labels, units=3, weights=None):
    features = discriminant.Features(x, discriminant.Scaling(np.float32(0.0), np.float32(1.0)))
    weights = np.ones(len(x)) if weights is None else weights
    return discriminant.sums_of(features, np.arange(len(x)), labels, units, weights)


@pytest.mark.parametrize("shrinkage", discriminant.SHRINKAGES)
def test_it_is_that_of_scikit_learn(shrinkage):
    module = pytest.importorskip("sklearn.discriminant_analysis", reason="scikit-learn is not installed")
    x, labels = clusters()
    other = module.LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[1 / 3] * 3).fit(x, labels)
    (fitted,) = discriminant.solved(sums(x, labels), (shrinkage,))
    expected = x @ other.coef_.T + other.intercept_
    found = fitted.logits(x)
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], rtol=1e-3, atol=1e-3)


def test_probabilities_are_of_the_other_folds():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(200, 60)).astype("float32"), rng.integers(2, size=200)
    fitted, p = discriminant.discriminant(x, labels, 2)
    assert np.mean(p.argmax(axis=1) == labels) < 0.6  # nothing can be learned
    assert np.mean(fitted.logits(x).argmax(axis=1) == labels) > 0.6  # of the labels that it has seen
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-5)


def test_wrong_labels_hardly_lead_it():
    x, true = clusters(900)
    x_test, true_test = clusters(900, seed=1)
    right = discriminant.discriminant(x, true, 3)[0].logits(x_test).argmax(axis=1)
    labels = corrupt(true, symmetric(3, 0.4), 0)
    found = discriminant.discriminant(x, labels, 3)[0].logits(x_test).argmax(axis=1)
    assert np.mean(found == true_test) > np.mean(right == true_test) - 0.03


def test_the_temperature_is_that_of_the_labels():
    x, true = clusters(900)
    labels = corrupt(true, symmetric(3, 0.3), 0)
    p = discriminant.discriminant(x, labels, 3)[1]
    powers = [p**power / np.sum(p**power, axis=1, keepdims=True) for power in (0.8, 1.0, 1.25)]
    low, own, high = (-np.log(each[np.arange(900), labels]).mean() for each in powers)
    assert own < min(low, high)


def test_weights_count_as_examples_do():
    x, labels = clusters(60)
    weights = np.random.default_rng(0).integers(0, 4, size=60).astype(float)
    rows = np.repeat(np.arange(60), weights.astype(int))
    (one,), (other,) = (
        discriminant.solved(each, (0.5,)) for each in (sums(x, labels, weights=weights), sums(x[rows], labels[rows]))
    )
    np.testing.assert_allclose(one.kernel, other.kernel, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(one.bias, other.bias, rtol=1e-3, atol=1e-4)


def test_a_class_without_labels_is_never_predicted():
    x, labels = clusters()
    fitted, p = discriminant.discriminant(x, labels + (labels > 0), 4)
    assert p[:, 1].max() == 0.0
    assert set(fitted.logits(x).argmax(axis=1)) == {0, 2, 3}


def test_of_very_many_features_the_nearest_mean_decides(monkeypatch):
    x, labels = clusters()
    monkeypatch.setattr(discriminant, "MOST", 5)
    (fitted,) = discriminant.solved(sums(x, labels), (0.5,))
    means = np.stack([x[labels == k].mean(axis=0) for k in range(3)])
    nearest = np.square(x[:, None] - means).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(fitted.logits(x).argmax(axis=1), nearest)


def test_constant_features_are_no_evidence():
    x, labels = np.ones((30, 4), "float32"), np.arange(30) % 3
    p = discriminant.discriminant(discriminant.scaling(x)(x), labels, 3)[1]
    np.testing.assert_allclose(p, 1 / 3, atol=1e-6)
