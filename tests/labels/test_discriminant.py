"""A linear discriminant in closed form: equal to scikit-learn's, out of sample, and not led by wrong labels."""

import keras
import numpy as np
import pytest

from keras_het.labels import corrupt, symmetric
from keras_het.labels import discriminant as module
from keras_het.labels.discriminant import discriminant, normalization

pytestmark = pytest.mark.once


def clusters(count=300, size=6, units=3, seed=0):
    """Features of classes of equal sizes, whose directions have different variances, and the classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % units
    shape = rng.normal(size=(size, size))
    means = 2.0 * np.random.default_rng(7).normal(size=(units, size))
    return (means[labels] + rng.normal(size=(count, size)) @ shape).astype("float32"), labels


def sums(x, labels, units=3, weights=None):
    weights = np.ones(len(x)) if weights is None else weights
    return module.sums_of(x, labels, units, weights, np.asarray, np.arange(len(x)))


@pytest.mark.parametrize("shrinkage", module.SHRINKAGES)
def test_it_is_that_of_scikit_learn(shrinkage):
    other = pytest.importorskip("sklearn.discriminant_analysis", reason="scikit-learn is not installed")
    x, labels = clusters()
    expected = other.LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[1 / 3] * 3).fit(x, labels)
    (fitted,) = module.solved(sums(x, labels), (shrinkage,))
    logits, of_scikit_learn = fitted.logits(x), x @ expected.coef_.T + expected.intercept_
    np.testing.assert_allclose(logits - logits[:, :1], of_scikit_learn - of_scikit_learn[:, :1], rtol=1e-3, atol=1e-3)


def test_wrong_labels_hardly_lead_it():
    x, true = clusters(900)
    x_test, true_test = clusters(900, seed=1)
    right = discriminant(x, true, 3).logits(x_test).argmax(axis=1)
    labels = corrupt(true, symmetric(3, 0.4), 0)
    noisy = discriminant(x, labels, 3).logits(x_test).argmax(axis=1)
    assert np.mean(noisy == true_test) > np.mean(right == true_test) - 0.03


def test_the_temperature_is_that_of_the_labels():
    x, true = clusters(1800)
    labels = corrupt(true, symmetric(3, 0.3), 0)
    logits = discriminant(x[:900], labels[:900], 3).logits(x[900:])
    losses = []
    for power in (0.8, 1.0, 1.25):
        p = np.exp(power * logits)
        losses.append(-np.log((p / p.sum(axis=1, keepdims=True))[np.arange(900), labels[900:]]).mean())
    assert losses[1] < min(losses[::2])


def test_weights_count_as_examples_do_and_distributions_as_labels():
    x, labels = clusters(60)
    weights = np.random.default_rng(0).integers(0, 4, size=60).astype(float)
    rows = np.repeat(np.arange(60), weights.astype(int))
    (one,), (other,) = (
        module.solved(each, (0.5,)) for each in (sums(x, labels, weights=weights), sums(x[rows], labels[rows]))
    )
    np.testing.assert_allclose(one.kernel, other.kernel, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(one.bias, other.bias, rtol=1e-3, atol=1e-4)
    one, other = discriminant(x, labels, 3), discriminant(x, np.eye(3, dtype="float32")[labels], 3)
    np.testing.assert_allclose(one.kernel, other.kernel, rtol=1e-4, atol=1e-6)


def test_a_class_without_labels_is_never_predicted_and_of_many_features_the_nearest_mean_is(monkeypatch):
    x, labels = clusters()
    assert set(discriminant(x, labels + (labels > 0), 4).logits(x).argmax(axis=1)) == {0, 2, 3}
    x, labels = clusters()
    monkeypatch.setattr(module, "MAX_FEATURES", 5)
    (fitted,) = module.solved(sums(x, labels), (0.5,))
    means = np.stack([x[labels == k].mean(axis=0) for k in range(3)])
    nearest = np.square(x[:, None] - means).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(fitted.logits(x).argmax(axis=1), nearest)


def test_constant_features_are_no_evidence_and_a_rare_one_is_not_made_large():
    x, labels = np.ones((30, 4), "float32"), np.arange(30) % 3
    logits = discriminant(x, labels, 3, scale=normalization(x)).logits(0.0 * x)
    np.testing.assert_allclose(logits - logits.mean(axis=1, keepdims=True), 0.0, atol=1e-6)
    x = np.random.default_rng(0).normal(size=(240, 6))
    x = np.concatenate([x, np.eye(240, 2), np.ones((240, 1))], axis=1).astype("float32")  # two rare words, a constant
    scaled = keras.ops.convert_to_numpy(normalization(x)(x))
    variance = x.var(0)
    expected = (x - x.mean(0)) / np.sqrt(variance + np.median(variance[:8]))
    np.testing.assert_allclose(scaled[:, :6], expected[:, :6], atol=1e-4)
    assert np.abs(scaled[:, 6:]).max() < 2  # and 15 standard deviations
    assert np.isfinite(keras.ops.convert_to_numpy(normalization(np.ones((5, 2)))(np.ones((5, 2))))).all()
