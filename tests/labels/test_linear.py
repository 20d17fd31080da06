"""Linear classifiers of features: equal to those of scikit-learn, out of sample, and in bounded memory."""

import keras
import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from keras_het.labels import corrupt, symmetric
from keras_het.labels.data import Data, stratified_folds
from keras_het.labels.training import linear
from keras_het.labels.training.linear import DISCRIMINANTS, REGRESSIONS, Candidate, Choice, Features, Scaling, scaling

pytestmark = pytest.mark.once


def clusters(count=300, size=6, units=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(units), rng.choice(units, count - units, p=np.arange(1, units + 1) / 6)])
    shape = rng.normal(size=(size, size))
    means = 2.0 * np.random.default_rng(7).normal(size=(units, size))
    return (means[labels] + rng.normal(size=(count, size)) @ shape).astype("float32"), labels


def features(x, y, units=3, weights=None, scale=None):
    identity = Scaling(np.zeros(x.shape[1]), np.ones(x.shape[1]))
    return Features(Data(x, y, np.arange(units), weights), scale or identity)


def fitted(x, y, candidate, **arguments):
    return features(x, y, **arguments).fit(Choice(candidate, 1.0, {}), np.arange(len(x)))


def centered(logits):
    return logits - logits.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("candidate", DISCRIMINANTS)
def test_the_discriminant_is_that_of_scikit_learn_with_equal_priors(candidate):
    """scikit-learn averages the covariances of the classes with the priors as weights."""
    x, labels = clusters()
    x = scaling(x)(x)
    shrunk = LinearDiscriminantAnalysis(solver="eigen", priors=[1 / 3] * 3).fit(x, labels).covariance_
    a = candidate.setting
    shrunk = (1 - a) * shrunk + a * np.trace(shrunk) / 6 * np.eye(6)
    means = np.stack([x[labels == k].mean(axis=0) for k in range(3)])
    kernel = np.linalg.solve(shrunk, means.T)
    expected = x @ kernel - 0.5 * np.einsum("kd,dk->k", means, kernel)
    logits = fitted(x, labels, candidate).logits(x)
    np.testing.assert_allclose(centered(logits), centered(expected), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("units", [2, 3])
def test_logistic_regression_is_that_of_scikit_learn(units):
    x, labels = clusters(200, units=3)
    x, labels = scaling(x)(x), labels % units
    expected = LogisticRegression(C=0.064, tol=1e-6).fit(x, labels).predict_log_proba(x)
    logits = fitted(x, labels, Candidate("logistic regression", 0.064), units=units).logits(x)
    np.testing.assert_allclose(centered(logits), centered(expected), atol=0.02)


@pytest.mark.parametrize("candidate", [DISCRIMINANTS[1], REGRESSIONS[2]])
def test_weights_count_as_examples_do_and_votes_as_labels(candidate):
    x, labels = clusters(60)
    weights = np.random.default_rng(0).integers(0, 4, size=60).astype(float)
    weights[:3] = 1.0
    rows = np.repeat(np.arange(60), weights.astype(int))
    # The weights have mean 1, so a strength of logistic regression is one of 60 examples, and not of len(rows).
    strength = candidate.setting * (60 / len(rows) if candidate in REGRESSIONS else 1.0)
    one = fitted(x, labels, candidate, weights=weights)
    other = fitted(x[rows], labels[rows], Candidate(candidate.kind, strength))
    np.testing.assert_allclose(centered(one.logits(x)), centered(other.logits(x)), atol=0.02)
    votes = np.eye(3)[labels] * 0.75 + 0.25 * np.eye(3)[(labels + 1) % 3]
    one = fitted(x, votes.astype("float32"), candidate)
    twice, weights = np.concatenate([labels, (labels + 1) % 3]), np.repeat([0.75, 0.25], 60)
    strength = candidate.setting * (0.5 if candidate in REGRESSIONS else 1.0)
    other = fitted(np.concatenate([x, x]), twice, Candidate(candidate.kind, strength), weights=weights)
    np.testing.assert_allclose(centered(one.logits(x)), centered(other.logits(x)), atol=0.02)


def test_held_out_labels_choose_and_no_example_is_predicted_by_a_model_that_saw_it():
    x, labels = clusters(900)
    labels = corrupt(labels, symmetric(3, 0.3), 0)
    fold_of = stratified_folds(labels, 5, 0)
    read = features(x, labels, scale=scaling(x))
    choice = read.choose(fold_of)
    candidates = (*DISCRIMINANTS, *REGRESSIONS)
    assert len(choice.scores) == 2
    rows, recalls = np.arange(900), []
    for candidate, logits in zip(candidates, read.held_out(candidates, fold_of, rows), strict=True):
        expected = np.empty((900, 3))
        for fold in range(5):
            model = read.fit(Choice(candidate, 1.0, {}), rows[fold_of != fold])
            expected[fold_of == fold] = model.logits(read.scale(x[fold_of == fold]))
        tolerance = 0.05 if candidate in REGRESSIONS else 2e-3
        np.testing.assert_allclose(centered(logits), centered(expected), atol=tolerance)
        recalls.append(np.mean([np.mean(logits.argmax(1)[labels == k] == k) for k in range(3)]))
    assert choice.candidate == candidates[int(np.argmax(recalls))]
    assert max(choice.scores.values()) == pytest.approx(max(recalls))


def test_the_temperature_is_that_of_the_labels():
    x, true = clusters(1800)
    labels = corrupt(true, symmetric(3, 0.3), 0)
    read = features(x, labels)
    logits = read.held_out(DISCRIMINANTS[:1], np.arange(1800) % 5, np.arange(1800))[0]
    factor, losses = read._factor(logits, np.arange(1800)), []
    for power in (0.8, 1.0, 1.25):
        p = np.exp(power * factor * logits.astype("float64"))
        losses.append(-np.log((p / p.sum(axis=1, keepdims=True))[np.arange(1800), labels]).mean())
    assert losses[1] < min(losses[::2])


def test_wrong_labels_hardly_lead_the_discriminant_and_rows_that_are_not_kept_do_not():
    x, true = clusters(900)
    x_test, true_test = clusters(900, seed=1)
    labels = corrupt(true, symmetric(3, 0.4), 0)
    right, noisy = (fitted(x, y, DISCRIMINANTS[1]).logits(x_test).argmax(axis=1) for y in (true, labels))
    assert np.mean(noisy == true_test) > np.mean(right == true_test) - 0.03
    fold_of, kept = np.arange(900) % 5, labels == true
    clean = features(x[kept], true[kept]).held_out(DISCRIMINANTS[:1], fold_of[kept], np.arange(kept.sum()))[0]
    part = features(x, labels).held_out(DISCRIMINANTS[:1], fold_of, np.flatnonzero(kept), kept)[0]
    assert np.mean(clean.argmax(1) == part.argmax(1)) > 0.99


@pytest.mark.parametrize("candidate", [DISCRIMINANTS[0], REGRESSIONS[0]])
def test_a_class_without_labels_is_never_predicted(candidate):
    x, labels = clusters()
    assert set(fitted(x, labels + (labels > 0), candidate, units=4).logits(x).argmax(axis=1)) <= {0, 2, 3}
    assert set(fitted(x, np.ones(300, int), candidate).logits(x).argmax(axis=1)) == {1}


def test_of_many_features_the_nearest_mean_decides(monkeypatch):
    x, labels = clusters()
    monkeypatch.setattr(linear, "MAX_COVARIANCE_FEATURES", 5)
    means = np.stack([x[labels == k].mean(axis=0) for k in range(3)])
    nearest = np.square(x[:, None] - means).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(fitted(x, labels, DISCRIMINANTS[0]).logits(x).argmax(axis=1), nearest)


def test_more_examples_are_read_in_blocks_and_by_discriminants_alone(monkeypatch):
    class Rows(np.ndarray):
        most = 0

        def __getitem__(self, rows):
            part = np.asarray(super().__getitem__(rows))
            Rows.most = max(Rows.most, len(part))
            return part

    monkeypatch.setattr(linear, "MAX_REGRESSION_ROWS", 5000)
    x, labels = clusters(12_000)
    choice = features(x.view(Rows), labels, scale=scaling(x.view(Rows))).choose(np.arange(12_000) % 5)
    assert list(choice.scores) == ["linear discriminant"]
    assert Rows.most <= 8192


def test_the_scaling_is_that_of_its_layer_and_a_constant_feature_is_0():
    x = np.random.default_rng(0).normal(3.0, size=(200, 4)) * [1e-3, 1.0, 1e3, 0.0]
    weights = np.arange(200) % 2.0
    scale = scaling(x, weights)
    np.testing.assert_allclose(scale.mean, x[1::2].mean(axis=0))
    np.testing.assert_allclose(scale(x[1::2]).std(axis=0), [1.0, 1.0, 1.0, 0.0], atol=1e-5)
    by_layer = keras.ops.convert_to_numpy(scale.layer()(x.astype("float32")))
    np.testing.assert_allclose(by_layer, scale(x), rtol=1e-4, atol=1e-4)


def test_features_that_are_equal_within_a_class_are_separated():
    x, true = np.tile([[0.0], [1.0], [2.0]], (40, 1)), np.arange(120) % 3
    for labels in (true, corrupt(true, symmetric(3, 0.05), seed=0)):
        np.testing.assert_array_equal(fitted(x, labels, DISCRIMINANTS[0]).logits(x).argmax(axis=1), true)
