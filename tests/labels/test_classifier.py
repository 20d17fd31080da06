"""`Classifier` as scikit-learn uses it, and what it promises beyond."""

import pickle

import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from keras_het import explain
from keras_het.labels import Classifier
from keras_het.labels.methods import EarlyStopping, ForwardCorrection, Heteroscedastic
from tests import common
from tests.checks import refusals
from tests.common import texts_of_warnings

pytestmark = pytest.mark.once

NAMES = np.array(["wasp", "ant", "bee"])
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
# Every fit compiles its program, some 150 times in all checks: only PyTorch runs all of them.
OF_BACKENDS = {"check_estimators_pickle", "check_fit_idempotent", WEIGHTS}
# They ask for 1e-7, which float32 does not always give; two tests below ask for its tolerance.
ROUNDED = {"check_methods_sample_order_invariance", "check_methods_subset_invariance"}
FAILED = {WEIGHTS: "equal to rounding in float32"}


SHORT = pytest.mark.filterwarnings("ignore:The model learned nothing:UserWarning")  # a test of few epochs


def blobs(examples=90):
    x, y = make_blobs(examples, centers=[[0, 0], [4, 0], [0, 4]], cluster_std=1.0, random_state=0)
    return x.astype("float32"), NAMES[y]


def small(**changed):
    return Classifier(**{"epochs": 8, "batch_size": 32, "random_state": 0, **changed})


def images():
    rng, y = np.random.default_rng(0), np.arange(64) % 2
    x = rng.normal(size=(64, 6, 6, 1)).astype("float32")
    x[np.arange(64), rng.integers(0, 3, 64) + 3 * y, rng.integers(0, 6, 64)] += 8
    return x, y


def compiled(*layers, units=2, optimizer=None):
    model = keras.Sequential([*layers, keras.layers.Dense(units)])
    return common.compiled(model, optimizer or keras.optimizers.Adam(0.05), common.sparse_crossentropy())


def convolution():
    convolved = keras.layers.Conv2D(4, 3, padding="same", activation="relu")
    return compiled(keras.Input((6, 6, 1)), convolved, keras.layers.Dropout(0.1), keras.layers.Flatten())


def scikit_learn_checks():
    for given in estimator_checks_generator(small(), expected_failed_checks=FAILED, mark="xfail"):
        check = getattr(given, "values", given)[1]
        name = getattr(check, "func", check).__name__
        case = f"{name}-{len(getattr(check, 'keywords', {}))}"
        yield pytest.param(check, marks=getattr(given, "marks", ()), id=case), name


CHECKS = {"torch": {name for _, name in scikit_learn_checks()} - ROUNDED}.get(keras.config.backend(), OF_BACKENDS)


@pytest.mark.thorough
@pytest.mark.parametrize("check", [case for case, name in scikit_learn_checks() if name in CHECKS])
@pytest.mark.filterwarnings("ignore:The model learned nothing")
def test_checks_of_scikit_learn(check):
    check(small(epochs=20, batch_size=128))


def test_the_defaults_learn_digits_of_noisy_labels():
    """40% of the labels name another class, and logistic regression memorises a part of them."""
    (x, y), rng = load_digits(return_X_y=True), np.random.default_rng(0)
    train, test = np.split(rng.permutation(len(x)), [1000])
    noisy = np.where(rng.random(len(y)) < 0.4, (y + rng.integers(1, 10, len(y))) % 10, y)[train]
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(x[train], noisy)
    fitted = Classifier(random_state=0).fit(x[train], noisy)
    assert fitted.score(x[test], y[test]) > max(0.9, plain.score(x[test], y[test]) + 0.05)


def test_names_probabilities_and_their_order_and_that_of_examples_matters_by_rounding_alone():
    x, y = blobs()
    fitted = small(method=EarlyStopping(), epochs=20).fit(100 * x + 1000, y)  # the model accepts raw numbers
    p, log_p = fitted.predict_proba(100 * x + 1000), fitted.predict_log_proba(100 * x + 1000)
    assert fitted.classes_.tolist() == ["ant", "bee", "wasp"]
    assert fitted.score(100 * x + 1000, y) > 0.9
    assert fitted.n_features_in_ == 2
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_p), p, rtol=1e-12)
    np.testing.assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(100 * x + 1000))
    x, y = blobs(60)
    fitted, order = small().fit(x, y), np.random.default_rng(0).permutation(60)
    p = fitted.predict_proba(x)
    np.testing.assert_allclose(fitted.predict_proba(x[order]), p[order], rtol=2e-6)
    np.testing.assert_allclose(np.concatenate([fitted.predict_proba(part) for part in np.split(x, 10)]), p, rtol=2e-6)


@pytest.mark.parametrize("make_model", [None, convolution])
def test_a_pickle_a_clone_and_a_second_fit_predict_the_same_bits_and_other_seeds_others(make_model):
    x, y = images()
    fitted = small(make_model=make_model, method=Heteroscedastic(1)).fit(x, y)
    p, loaded = fitted.predict_proba(x), pickle.loads(pickle.dumps(fitted))
    assert fitted.score(x, y) > 0.8
    np.testing.assert_array_equal(loaded.predict_proba(x), p)
    np.testing.assert_array_equal(clone(fitted).fit(x, y).predict_proba(x), p)
    np.testing.assert_array_equal(fitted.fit(x, y).predict_proba(x), p)
    keras.utils.set_random_seed(5)  # of None
    for seed in (1, None):
        assert not np.array_equal(clone(fitted).set_params(random_state=seed).fit(x, y).predict_proba(x), p)
    assert pickle.loads(pickle.dumps(small())).get_params() == small().get_params()
    assert explain.covariance(fitted.model_, x).shape == (2, 2)


def normalized():
    """A model with a frozen inner model, statistics that training changes, and a function of the user."""
    frozen = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Conv2D(4, 3, activation="relu")], name="frozen")
    frozen.trainable = False
    halve = keras.layers.Lambda(lambda x: x / 2)
    return compiled(keras.Input((6, 6, 1)), frozen, halve, keras.layers.BatchNormalization(), keras.layers.Flatten())


def test_a_model_with_a_function_is_pickled_again_and_again():
    x, y = images()
    fitted = small(make_model=normalized, method=EarlyStopping()).fit(x, y)
    p, loaded = fitted.predict_proba(x), fitted
    for _ in range(2):
        loaded = pickle.loads(pickle.dumps(loaded))
        np.testing.assert_array_equal(loaded.predict_proba(x), p)
        flags, expected = ([each.trainable for each in one.model_.variables] for one in (loaded, fitted))
        assert flags == expected


def test_weights_are_repetitions_and_their_scale_does_not_matter():
    x, y = blobs(40)
    weights, whole_batch = np.random.default_rng(0).integers(0, 4, 40), small(batch_size=256)
    repeated = whole_batch.fit(x.repeat(weights, axis=0), y.repeat(weights)).predict_proba(x)
    weighted = clone(whole_batch).fit(x, y, 8 * weights).predict_proba(x)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-4, atol=1e-6)
    assert np.abs(weighted - clone(whole_batch).fit(x, y).predict_proba(x)).max() > 0.005


@SHORT
def test_features_that_float32_rounds_are_warned_of():
    y = np.arange(60) % 2
    coarse = 1.7e9 + 20.0 * y + np.arange(60) % 5
    with texts_of_warnings() as texts:
        small(method=EarlyStopping(), epochs=1).fit(coarse[:, None], y)
    assert "Feature 0 is about 1700000012, and float32 rounds its differences" in " ".join(texts)
    with pytest.raises(ValueError, match="contains NaN"):
        small(method=EarlyStopping(), epochs=1).fit(np.eye(2)[y], [*"ab" * 29, "a", np.nan])


@SHORT
def test_a_pipeline_in_cross_validation_and_a_search():
    x, y = blobs()
    p = cross_val_predict(make_pipeline(StandardScaler(), small(epochs=20)), x, y, cv=3, method="predict_proba")
    assert np.mean(np.sort(NAMES)[p.argmax(axis=1)] == y) > 0.8
    assert log_loss(y, p) < 0.6
    methods = [Heteroscedastic(1, temperature=1e4), Heteroscedastic(1, temperature=1.5)]
    search = GridSearchCV(small(), {"method": methods}, scoring="neg_log_loss", cv=2, error_score="raise").fit(x, y)
    assert search.best_estimator_.method.temperature == 1.5
    assert search.best_estimator_.model_.layers[-1].temperature == 1.5


def diverging():
    return compiled(keras.Input((2,)), units=3, optimizer=keras.optimizers.SGD(1e38))


@pytest.mark.filterwarnings("ignore:overflow|invalid:RuntimeWarning", "ignore:__array__ imp:DeprecationWarning")
def test_a_fit_that_cannot_learn_warns_and_does_not_fail_a_search():
    x, y = blobs(60)
    text = "The model learned nothing from its training data: it predicts 33.3% of the labels"
    with pytest.warns(UserWarning, match=text):
        fitted = small(make_model=diverging, method=EarlyStopping()).fit(x, y)
    np.testing.assert_allclose(fitted.predict_proba(x), 1 / 3)
    scored = {"scoring": "neg_log_loss", "cv": 2, "error_score": "raise"}
    search = GridSearchCV(small(method=EarlyStopping()), {"make_model": [diverging, None]}, **scored)
    with pytest.warns(UserWarning, match="The model learned nothing"):
        search.fit(x, y)
    assert search.best_params_ == {"make_model": None}
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][0], -np.log(3))
    with pytest.warns(UserWarning, match="train for more `epochs`, or pass a `make_model`"):
        small(epochs=1).fit(0 * x, y)


X = np.arange(60, dtype="float32").reshape(30, 2)
Y = NAMES[np.arange(30) % 3]


REFUSED = [
    ({"epochs": 0}, X, Y, None, "`epochs` must be an integer at least 1. Received: epochs=0"),
    ({"make_model": "no"}, X, Y, None, "`make_model` must be a function that makes a new compiled model, or None"),
    ({"make_model": convolution}, X, Y, None, "`make_model` must return models of the 3 classes of `y`"),
    ({"method": "plain"}, X, Y, None, "`method` must be a Method, such as labels.methods.EarlyStopping(), or None"),
    ({"method": ForwardCorrection()}, X, Y, None, "`transition` must be a matrix (K, K); only `choose` estimates it"),
    ({}, X * np.nan, Y, None, "Input X contains NaN"),
    ({}, X, ["a"] * 30, None, "`y` must have at least two classes. Received: 1 class"),
    ({}, X, Y, np.zeros(30), "`sample_weight` must"),
    ({}, X, Y, np.float32([-1.0] + [1.0] * 29), "`sample_weight` must be finite and not negative. Received: -1.0"),
]  # fmt: skip
test_arguments_and_data_out_of_range_are_refused_by_fit = refusals(
    [(lambda case=case: small(**case[0]).fit(*case[1:]), text) for *case, text in REFUSED]
)


@SHORT
def test_prediction_needs_a_fit_and_the_same_shape_and_each_fit_new_layers():
    with pytest.raises(NotFittedError):
        small().predict(X)
    with pytest.raises(ValueError, match="X has 1 features, but Classifier is expecting 2"):
        small(epochs=1).fit(X, Y).predict(X[:, :1])
    (x, y), text = images(), r"`X` must have examples of shape \(6, 6, 1\). Received: \(6, 5, 1\)"
    with pytest.raises(ValueError, match=text):
        small(epochs=1).fit(x, y).predict(x[:, :, :5])
    # Else the folds of scikit-learn would leak, and labels of chance would be predicted.
    shared = keras.layers.Dense(4)
    classifier = small(make_model=lambda: compiled(keras.Input((2,)), shared, units=3), epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="`make_model` must return new layers and a new optimizer at every call"):
        classifier.fit(X, Y)
