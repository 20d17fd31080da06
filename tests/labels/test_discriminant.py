"""A linear discriminant in closed form: equal to scikit-learn's, out of sample, and not led by wrong labels."""

import keras
import numpy as np
import pytest
import scipy.special
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from keras_het.labels import corrupt, symmetric
from keras_het.labels import discriminant as module
from keras_het.labels.discriminant import discriminant, scaling, warn_of_values

pytestmark = pytest.mark.once


def clusters(count=300, size=6, units=3, seed=0):
    """Features of classes of equal sizes, whose directions have different variances, and the classes."""
    rng, labels = np.random.default_rng(seed), np.arange(count) % units
    shape = rng.normal(size=(size, size))
    means = 2.0 * np.random.default_rng(7).normal(size=(units, size))
    return (means[labels] + rng.normal(size=(count, size)) @ shape).astype("float32"), labels


def sums(x, labels, units=3, weights=None):
    weights = np.ones(len(x)) if weights is None else weights
    return module.sums_of(x, labels, units, weights, np.asarray, np.arange(len(x)))


@pytest.mark.parametrize("shrinkage", module.SHRINKAGES)
def test_it_is_that_of_scikit_learn(shrinkage):
    x, labels = clusters()
    expected = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[1 / 3] * 3).fit(x, labels)
    (fitted,) = module.solve(sums(x, labels), (shrinkage,))
    logits, of_scikit_learn = fitted.logits(x), x @ expected.coef_.T + expected.intercept_
    np.testing.assert_allclose(logits - logits[:, :1], of_scikit_learn - of_scikit_learn[:, :1], rtol=1e-3, atol=1e-3)


def test_wrong_labels_hardly_lead_it():
    x, true = clusters(900)
    x_test, true_test = clusters(900, seed=1)
    right = discriminant(x, true, 3).logits(x_test).argmax(axis=1)
    noisy = discriminant(x, corrupt(true, symmetric(3, 0.4), 0), 3).logits(x_test).argmax(axis=1)
    assert np.mean(noisy == true_test) > np.mean(right == true_test) - 0.03


def test_the_temperature_is_that_of_the_labels():
    x, true = clusters(1800)
    labels = corrupt(true, symmetric(3, 0.3), 0)
    logits, losses = discriminant(x[:900], labels[:900], 3).logits(x[900:]), []
    for power in (0.8, 1.0, 1.25):
        p = np.exp(power * logits)
        losses.append(-np.log((p / p.sum(axis=1, keepdims=True))[np.arange(900), labels[900:]]).mean())
    assert losses[1] < min(losses[::2])


def test_weights_count_as_examples_do_and_distributions_as_labels():
    x, labels = clusters(60)
    weights = np.random.default_rng(0).integers(0, 4, size=60).astype(float)
    rows = np.repeat(np.arange(60), weights.astype(int))
    (one,), (other,) = (
        module.solve(each, (0.5,)) for each in (sums(x, labels, weights=weights), sums(x[rows], labels[rows]))
    )
    np.testing.assert_allclose(one.kernel, other.kernel, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(one.bias, other.bias, rtol=1e-3, atol=1e-4)
    one, other = discriminant(x, labels, 3), discriminant(x, np.eye(3, dtype="float32")[labels], 3)
    np.testing.assert_allclose(one.kernel, other.kernel, rtol=1e-4, atol=1e-6)


def test_a_class_without_labels_is_never_predicted_and_of_many_features_the_nearest_mean_is(monkeypatch):
    x, labels = clusters()
    assert set(discriminant(x, labels + (labels > 0), 4).logits(x).argmax(axis=1)) == {0, 2, 3}
    x, labels = clusters()
    monkeypatch.setattr(module, "MAX_COVARIANCE_FEATURES", 5)
    (fitted,) = module.solve(sums(x, labels), (0.5,))
    means = np.stack([x[labels == k].mean(axis=0) for k in range(3)])
    nearest = np.square(x[:, None] - means).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(fitted.logits(x).argmax(axis=1), nearest)


def test_constant_features_are_no_evidence_and_a_rare_one_is_not_made_large():
    x, labels = np.ones((30, 4), "float32"), np.arange(30) % 3
    logits = discriminant(x, labels, 3, scale=scaling(x)).logits(0.0 * x)
    np.testing.assert_allclose(logits - logits.mean(axis=1, keepdims=True), 0.0, atol=1e-6)
    x = np.random.default_rng(0).normal(size=(2400, 6))
    x = np.concatenate([x, np.eye(2400, 2), np.ones((2400, 1))], axis=1).astype("float32")  # two rare words, a constant
    scaled = scaling(x)(x)
    np.testing.assert_allclose(scaled[:, :6].std(0), np.sqrt(0.5), rtol=0.05)
    # A word in one of N texts: mean (x - mean)^4 is about 1 / N, so its value is (3 N / 4)^(1/4).
    np.testing.assert_allclose(scaled[:, 6:8].max(0), 1800**0.25, rtol=1e-3)  # and 49 standard deviations
    np.testing.assert_array_equal(scaled[:, 8], 0.0)


def by_layers(scale, x):
    for layer in scale.layers():
        x = layer(x)
    return keras.ops.convert_to_numpy(x)


@pytest.mark.parametrize("unit", [1e-30, 1e-9, 1.0, 1e30])
def test_layers_scale_as_the_discriminant_does_in_any_units(unit):
    x = np.random.default_rng(0).normal(3.0, size=(200, 3)) * [1e-3, 1.0, 1e3]
    expected = (x - x.mean(0)) / (4 / 3 * ((x - x.mean(0)) ** 4).mean(0)) ** 0.25
    scale = scaling(x * unit)
    np.testing.assert_allclose(scale(x * unit), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_layers(scale, (x * unit).astype("float32")), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scaling(x, np.arange(200) % 2.0)(x), scaling(x[1::2])(x), rtol=1e-5, atol=1e-5)
    wide = np.array([1e-9, 1.0, 1e9]) * x
    np.testing.assert_allclose(by_layers(scaling(wide), wide.astype("float32")), expected, rtol=1e-4, atol=1e-4)


def test_a_feature_that_is_nearly_nothing_leaves_the_layers_finite():
    """A network can have a unit that is 1e-33 for all examples but a few."""
    x = np.random.default_rng(0).normal(size=(200, 3)) * [1e-33, 1.0, 20.0]
    scale = scaling(x)
    np.testing.assert_allclose(by_layers(scale, x.astype("float32")), scale(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scale(x)[:, 1:], scaling(x[:, 1:])(x[:, 1:]), rtol=1e-5)
    assert np.abs(scale(x)[:, 0]).max() < 1e-5


def test_the_mean_is_subtracted_before_float32_rounds():
    x = np.random.default_rng(0).normal(size=(200, 2))
    np.testing.assert_allclose(scaling(x + 1e4)(x + 1e4), scaling(x)(x), atol=1e-4)


def rare(rate, flips, seed, size=1000, distance=1.5):
    """Features and labels of two normal classes, one of them rare, and further ones with the true class."""
    rng = np.random.default_rng([seed, 60])
    true, x = (rng.random(3 * size) < rate).astype(int), rng.normal(size=(3 * size, 10))
    x[:, 0] += distance * true
    return x[:size], np.where(rng.random(size) < flips, 1 - true[:size], true[:size]), x[size:], true[size:]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("rate", "flips"), [(0.2, 0.1), (0.1, 0.0), (0.1, 0.1), (0.03, 0.0), (0.03, 0.1)])
def test_rare_classes_are_as_rare_as_for_scikit_learn(rate, flips, seed):
    x, labels, x_test, true = rare(rate, flips, seed)
    expected = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5).fit(x, labels).score(x_test, true)
    assert np.mean(discriminant(x, labels, 2).logits(x_test).argmax(axis=1) == true) > expected - 0.01
    equal = discriminant(x, labels, 2, has_frequencies=False).logits(x_test).argmax(axis=1)
    assert np.mean(equal == true) < expected - 0.08 or rate == 0.03


def test_frequencies_by_labels_that_depend_on_the_class_are_not_used():
    """Half of every class but the first is labelled as the first: its frequency says nothing of the true one."""
    x, true = clusters(2000, units=4)
    labels = np.where(np.random.default_rng(0).random(2000) < 0.5, 0, true)
    equal, chosen, full = (
        np.mean(discriminant(x, labels, 4, has_frequencies=b).logits(x).argmax(axis=1) == true)
        for b in (False, None, True)
    )
    assert chosen == equal > full + 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_two_classes_of_which_one_is_mostly_labelled_as_the_other_keep_equal_priors(seed):
    """Two thirds of the labels that frequencies change become right, and a fifth of all as in the rare class above."""
    rng, true = np.random.default_rng(seed), np.arange(1000) % 2
    x = rng.normal(size=(1000, 10))
    x[:, 0] += 1.5 * true
    labels = np.where(rng.random(1000) < 0.6, 0, true)
    assert np.mean(discriminant(x, labels, 2).logits(x).argmax(axis=1) == true) > 0.7


@pytest.mark.parametrize("examples", [1, 2])
@pytest.mark.parametrize("is_soft", [False, True])
@pytest.mark.parametrize("weight", ["none", "balanced", "large"])
def test_a_class_of_one_or_two_examples_does_not_flatten_the_others(examples, is_soft, weight):
    """Nor by a large weight, which makes no further examples of them."""
    x, labels = clusters(300)
    expected = discriminant(x, labels, 3).logits(x)
    typo = np.where(np.arange(300) < examples, 3, labels)
    given = np.eye(4, dtype="float32")[typo] if is_soft else typo
    balanced = (1.0 / np.bincount(typo, minlength=4).clip(1))[typo]
    weights = {"none": None, "balanced": balanced, "large": np.where(typo == 3, 20.0, 1.0)}[weight]
    logits = discriminant(x, given, 4, weights).logits(x)
    confidence, before = (scipy.special.softmax(z, axis=1).max(axis=1).mean() for z in (logits, expected))
    assert abs(confidence - before) < (0.03 if weight == "none" else 0.04)
    assert np.mean(logits.argmax(axis=1) == expected.argmax(axis=1)) > 0.98


def test_features_that_are_equal_within_a_class_are_separated():
    x, true = np.tile([[0.0], [1.0], [2.0]], (40, 1)), np.arange(120) % 3
    logits = discriminant(x, corrupt(true, symmetric(3, 0.05), seed=0), 3, scale=scaling(x)).logits(scaling(x)(x))
    np.testing.assert_array_equal(logits.argmax(axis=1), true)
    logits = discriminant(x, true, 3, scale=scaling(x)).logits(scaling(x)(x))
    np.testing.assert_array_equal(logits.argmax(axis=1), true)


def test_a_value_that_stands_for_a_missing_one_is_named_with_its_row_and_feature():
    x = np.random.default_rng(0).normal(size=(100, 3))
    warn_of_values(x)  # no warning, which would be an error
    sparse = np.maximum(np.random.default_rng(1).normal(size=(100, 2)) - 1.6, 0.0)
    warn_of_values(np.concatenate([x, sparse, np.eye(100, 2)], axis=1))  # a rare word is no such value
    x[[70, 80], 2] = -9999
    with pytest.warns(UserWarning, match=r"Feature 2 of example 70 is -9999, \d+ times as far from the median"):
        warn_of_values(x)
    x = np.random.default_rng(0).normal(size=(300, 3))
    units = np.where(np.arange(300)[:, None] < 5, 1000.0, 1.0) * (5.0 + x)
    with pytest.warns(UserWarning, match=r"Feature \d of example [0-4] is \d+\.?\d*, .* \(in 3 features\)"):
        warn_of_values(units)
    with pytest.warns(UserWarning, match=r"Feature 0 is about 1000000000, .* Subtract 1000000000 from it"):
        warn_of_values(np.round(x) + np.array([1e9, 0.0, 1e4]))
    x = np.random.default_rng(0).normal(size=(100, 1))
    warn_of_values(x + 1e4)
    with pytest.warns(UserWarning, match=r"Subtract 1000\d\d.* from it"):  # float32 has steps of 0.0078 there
        warn_of_values(x + 1e5)


@pytest.mark.parametrize("values", [(-9999, -999), (-9999, 9999), (-9999, -999, -9999, -999)])
def test_values_that_stand_for_missing_ones_do_not_hide_each_other(values):
    x = np.random.default_rng(0).normal(size=(1000, 4))
    x[:, 2] = x[:, 2] > 0
    x[500, 2] = 40  # a count among 0 and 1 makes the scale 7 times as large, and no prediction worse
    warn_of_values(x)
    x[7 : 7 + len(values), 0] = x[2 : 2 + len(values), 3] = values
    with pytest.warns(UserWarning, match=r"Feature 0 of example \d is -?9999, .* hides them \(in 2 features\)"):
        warn_of_values(x)


def test_a_scaling_reads_blocks_of_rows_and_one_example_has_a_discriminant():
    class Rows:
        def __init__(self, x):
            self.x, self.shape = x, x.shape

        def __len__(self):
            return len(self.x)

        def __getitem__(self, rows):
            assert len(rows) <= module.BLOCK_ROWS
            return self.x[rows]

    x, weights = np.random.default_rng(0).normal(3.0, size=(5000, 2)), np.arange(5000) % 2.0
    for given, expected in ((weights, x[1::2]), (None, x)):
        scale = scaling(Rows(x), given)
        np.testing.assert_allclose(scale.mean, expected.mean(axis=0), rtol=1e-12)
        fourth = np.mean((expected - expected.mean(axis=0)) ** 4, axis=0)
        np.testing.assert_allclose(scale.scale, (4 / 3 * fourth) ** 0.25, rtol=1e-12)
    np.testing.assert_array_equal(discriminant(x[:1], np.array([1]), 2).logits(x[:3]).argmax(axis=1), 1)
