"""`HeteroscedasticClassifier` in the hands of scikit-learn, and what it promises beyond."""

import functools
import pickle
import random
import sys

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

import keras_het
from keras_het import HeteroscedasticClassifier, covariances, explain, integrators, layers

pytestmark = pytest.mark.once

NAMES = np.array(["wasp", "ant", "bee"])


COMPILED = ("test_the_defaults_learn_digits", "test_equal_random_states", "test_a_pickle_predicts")


@pytest.fixture(autouse=True)
def few_steps_uncompiled(request, monkeypatch):
    """TensorFlow traces for three seconds what the tests run for some twenty steps.

    Tests that see the backend's numbers are compiled.
    """
    if keras.config.backend() == "tensorflow" and not request.node.name.startswith(COMPILED):
        monkeypatch.setattr(keras.Model, "compile", functools.partialmethod(keras.Model.compile, run_eagerly=True))


def blobs(examples=90):
    """Three groups of points that overlap, and their names."""
    x, y = make_blobs(examples, centers=[[0, 0], [4, 0], [0, 4]], cluster_std=1.0, random_state=0)
    return x.astype("float32"), NAMES[y]


def small(**changed):
    """An estimator whose head needs no nodes, which is compiled in half of the time."""
    arguments = {"hidden": (8,), "epochs": 8, "learning_rate": 0.05, "batch_size": 32, "random_state": 0}
    if "covariance" not in changed:
        arguments |= {"num_factors": 0, "head_arguments": {"link": "normalized_sigmoid"}}
    return HeteroscedasticClassifier(**(arguments | changed))


def images(examples=64):
    """A bright pixel in the upper or the lower half."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(examples, 6, 6, 1)).astype("float32"), np.arange(examples) % 2
    x[np.arange(examples), rng.integers(0, 3, examples) + 3 * y, rng.integers(0, 6, examples)] += 8
    return x, y


def convolution():
    layers = [
        keras.layers.Conv2D(4, 3, padding="same", activation="relu"),
        keras.layers.Dropout(0.1, seed=0),
        keras.layers.Flatten(),
    ]
    model = keras.Sequential([keras.Input((6, 6, 1)), *layers, keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_the_defaults_learn_digits_of_noisy_labels():
    """40% of the labels name another class; logistic regression learns a part of them by heart."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    train, test = np.split(rng.permutation(len(x)), [1000])
    noisy = np.where(rng.random(len(y)) < 0.4, (y + rng.integers(1, 10, len(y))) % 10, y)[train]
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(x[train], noisy)
    fitted = HeteroscedasticClassifier(random_state=0).fit(x[train], noisy)
    assert fitted.score(x[test], y[test]) > max(0.9, plain.score(x[test], y[test]) + 0.05)


def test_names_probabilities_and_their_order():
    x, y = blobs()
    fitted = small(epochs=20).fit(x, y)
    p, log_p = fitted.predict_proba(x), fitted.predict_log_proba(x)
    assert fitted.classes_.tolist() == ["ant", "bee", "wasp"]
    assert fitted.score(x, y) > 0.9
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.log(p), log_p, rtol=1e-9)
    np.testing.assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(x))
    assert fitted.n_features_in_ == 2
    assert len(fitted.history_["loss"]) == 20


def test_equal_random_states_give_equal_bits_whatever_was_drawn_before():
    x, y = images()
    results = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        results.append(small(make_model=convolution).fit(x, y).predict_proba(x))
    np.testing.assert_array_equal(*results)
    assert not np.array_equal(results[0], small(make_model=convolution, random_state=1).fit(x, y).predict_proba(x))


def test_no_global_random_state_changes():
    def draws(fit):
        keras.utils.set_random_seed(3)
        keras.random.uniform(())  # makes Keras' global generator
        fit()
        return random.random(), np.random.random(), float(keras.random.uniform(()))

    x, y = images(32)
    fitted = small(make_model=convolution, epochs=2, validation_fraction=0.2)
    assert draws(lambda: fitted.fit(x, y).predict_proba(x)) == draws(lambda: None)


def test_no_random_state_is_another_one_every_time():
    x, y = blobs(30)
    first, second = (small(random_state=None, epochs=1).fit(x, y).predict_proba(x) for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_second_fit_starts_anew_and_a_clone_is_its_like():
    x, y = blobs()
    choices = {
        "covariance": covariances.LowRank(1),  # under a softmax
        "temperature": layers.LearnedTemperature(2.0),
        "integrator": integrators.QuasiMonteCarlo(32),
    }
    fitted = small(**choices).fit(x, y)
    p = fitted.predict_proba(x)
    np.testing.assert_array_equal(clone(fitted).fit(x, y).predict_proba(x), p)
    np.testing.assert_array_equal(fitted.fit(x, y).predict_proba(x), p)
    head = fitted.model_.layers[-1]
    assert head.num_factors == 1
    assert head.integrator.num_samples == 32
    assert head.temperature != 2.0
    assert choices["temperature"].weights == []  # what was given is as it was


@pytest.mark.parametrize("make_model", [pytest.param(None, marks=[pytest.mark.smoke, pytest.mark.on_jax]), convolution])
def test_a_pickle_predicts_the_same_bits(make_model):
    x, y = images()
    fitted = small(make_model=make_model).fit(x, y)
    content = pickle.dumps(fitted)
    loaded = pickle.loads(content)
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    assert loaded.get_params() == fitted.get_params()
    assert loaded.model_ is not fitted.model_
    assert pickle.loads(pickle.dumps(small())).get_params() == small().get_params()


def test_a_pickle_with_a_lambda_is_refused():
    x, y = blobs(30)

    def make_model():
        scale = keras.layers.Lambda(lambda x: x * 2)
        model = keras.Sequential([keras.Input((2,)), scale, keras.layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    fitted = small(make_model=make_model, epochs=1).fit(x, y)
    content = pickle.dumps(fitted.set_params(make_model=None))  # pickle itself refuses the function
    with pytest.raises(ValueError, match="Lambda"):
        pickle.loads(content)


def test_standardization_is_that_of_scikit_learn_but_for_new_values_of_a_constant():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 4)) * [1, 1e3, 1e-3, 0] + [0, 1e4, 0, 0.1]).astype("float32")  # the last one is constant
    y, weights = np.arange(40) % 2, rng.integers(0, 3, 40)
    fitted = small(epochs=1).fit(x, y, weights)
    expected = StandardScaler().fit(x.astype("float64"), sample_weight=weights)
    part = keras.Model(fitted.model_.inputs, fitted.model_.layers[1].output)
    np.testing.assert_allclose(part.predict(x, verbose=0), expected.transform(x.astype("float64")), atol=2e-3)
    np.testing.assert_allclose(part.predict(x + np.float32([0, 0, 0, 1]), verbose=0)[:, 3], 0.0, atol=1e-6)


def test_images_are_standardized_by_channel():
    x, y = images()
    both = np.concatenate([x, 100 + 5 * x], axis=-1)
    fitted = small(epochs=1).fit(both, y)
    z = keras.Model(fitted.model_.inputs, fitted.model_.layers[1].output).predict(both, verbose=0)
    np.testing.assert_allclose(z.mean(axis=(0, 1, 2)), 0.0, atol=1e-4)
    np.testing.assert_allclose(z.std(axis=(0, 1, 2)), 1.0, atol=1e-4)
    assert fitted.n_features_in_ == 6
    assert not any(
        isinstance(layer, keras.layers.Normalization)
        for layer in small(epochs=1, standardize=False).fit(x, y).model_.layers
    )


def test_images_without_a_function_are_flat():
    x, y = images(200)
    assert small(epochs=30).fit(x, y).score(x, y) > 0.9
    with pytest.raises(ValueError, match=r"`X` must have examples of shape \(6, 6, 1\). Received: \(6, 5, 1\)"):
        small(epochs=1).fit(x, y).predict(x[:, :, :5])


def test_weights_are_repetitions():
    x, y = blobs(40)
    weights = np.random.default_rng(0).integers(0, 4, 40)
    whole_batch = small(batch_size=256)
    repeated = whole_batch.fit(x.repeat(weights, axis=0), y.repeat(weights)).predict_proba(x)
    weighted = clone(whole_batch).fit(x, y, weights).predict_proba(x)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-4, atol=1e-6)
    assert np.abs(weighted - clone(whole_batch).fit(x, y).predict_proba(x)).max() > 0.01


def test_the_scale_of_the_weights_does_not_count_nor_do_examples_of_weight_zero():
    x, y = blobs(40)
    weights = np.float32([1.0, 0.0] * 20)
    expected = small().fit(x[::2], y[::2]).predict_proba(x)
    np.testing.assert_array_equal(small().fit(x, y, 8 * weights).predict_proba(x), expected)


def test_held_out_examples_stop_the_training_and_the_best_epoch_is_kept():
    x, y = blobs()
    y = np.random.default_rng(0).permutation(y)  # nothing to learn
    fitted = small(epochs=60, validation_fraction=0.3, patience=2, standardize=False).fit(x, y)
    losses = fitted.history_["val_loss"]
    assert len(losses) == np.argmin(losses) + 3 < 60
    _, held_out = fitted._split(np.unique(y, return_inverse=True)[1], int(np.random.RandomState(0).randint(2**31 - 1)))
    assert len(held_out) == 27
    penalty = sum(float(keras.ops.convert_to_numpy(loss)) for loss in fitted.model_.losses)
    np.testing.assert_allclose(
        log_loss(y[held_out], fitted.predict_proba(x[held_out])) + penalty, min(losses), rtol=1e-4
    )


def test_cross_validation_in_a_pipeline():
    x, y = blobs()
    p = cross_val_predict(
        make_pipeline(StandardScaler(), small(standardize=False, epochs=20)), x, y, cv=3, method="predict_proba"
    )
    assert p.shape == (90, 3)
    assert np.mean(np.sort(NAMES)[p.argmax(axis=1)] == y) > 0.8
    assert log_loss(y, p) < 0.6


def test_a_grid_search_finds_the_temperature_that_learns():
    x, y = blobs()
    search = GridSearchCV(
        small(epochs=4), {"temperature": np.array([1e4, 1.5])}, scoring="neg_log_loss", cv=2, error_score="raise"
    )
    assert search.fit(x, y).best_params_ == {"temperature": 1.5}
    assert search.best_estimator_.model_.layers[-1].temperature == 1.5
    assert search.cv_results_["mean_test_score"][0] < -0.8


def test_the_model_is_one_for_the_analysis():
    x, y = blobs()
    fitted = small(num_factors=1).fit(x * 100 + 1000, y)  # the model takes raw numbers
    assert explain.covariance(fitted.model_, x * 100 + 1000).shape == (3, 3)
    outputs = fitted.model_.predict(x * 100 + 1000, verbose=0)
    np.testing.assert_allclose(np.exp(outputs), fitted.predict_proba(x * 100 + 1000), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"epochs": 0}, "`epochs` must be an integer at least 1. Received: epochs=0"),
        ({"batch_size": 2.5}, "`batch_size` must be an integer at least 1. Received: batch_size=2.5"),
        (
            {"learning_rate": 0.0},
            "`learning_rate` must be a finite float32 number greater than 0. Received: learning_rate=0.0",
        ),
        ({"l2": -1.0}, "`l2` must be a finite float32 number at least 0. Received: l2=-1.0"),
        ({"standardize": 1}, "`standardize` must be True or False. Received: standardize=1"),
        ({"validation_fraction": 1.5}, "`validation_fraction` must be less than 1. Received: validation_fraction=1.5"),
        ({"validation_fraction": 1.0}, "`validation_fraction` must be less than 1. Received: validation_fraction=1.0"),
        ({"validation_fraction": 0.2, "patience": 0}, "`patience` must be an integer at least 1. Received: patience=0"),
        ({"hidden": (8, 0)}, "`hidden` must be an integer at least 1. Received: hidden=0"),
        (
            {"hidden": 8},
            "`hidden` must be a list of widths. Received: hidden=8",
        ),
        (
            {"make_model": "no"},
            "`make_model` must be a function that makes a new compiled model, or None. Received: a ",
        ),
        ({"make_model": convolution}, "`make_model` must make models of the 3 classes of `y`. Received: one of 2"),
        (
            {"temperature": 0.0},
            "`temperature` must be a finite float32 number greater than 0. Received: temperature=0.0",
        ),
        ({"num_factors": 4}, "`num_factors` must be "),
        (
            {"head_arguments": {"link": "sigmoid"}},
            "`link` in `head_arguments` must be one of exclusive classes. Received: Sigmoid",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_by_fit(arguments, text):
    x, y = blobs(30)
    with pytest.raises(ValueError) as error:
        small(**arguments).fit(x, y)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (np.float32([[np.nan, 0], [1, 1]]), ["a", "b"], "contains NaN"),
        (np.float32([[np.inf, 0], [1, 1]]), ["a", "b"], "contains infinity"),
        (np.eye(2), ["a", "a"], "`y` must have at least two classes. Received: 1 class"),
        (np.eye(4), [0.1, 0.7, 0.3, 1.4], "Unknown label type: continuous"),
        (np.eye(2), np.eye(2, dtype=int), "y should be a 1d array, got an array of shape"),
        (np.eye(3), [0, 1], "inconsistent numbers of samples"),
        (np.zeros((0, 2)), [], "Found array with 0 sample"),
    ],
)
def test_data_that_cannot_be_fitted_are_refused(x, y, text):
    with pytest.raises(ValueError, match=text):
        small().fit(x, y)


def test_weights_that_are_all_zero_or_negative_are_refused():
    x, y = blobs(30)
    with pytest.raises(ValueError, match="zero"):
        small().fit(x, y, np.zeros(30))
    with pytest.raises(ValueError, match=r"`sample_weight` must be finite and not negative. Received: -1.0 at"):
        small().fit(x, y, np.float32([-1.0] + [1.0] * 29))


def test_it_must_be_fitted_first_and_again_for_other_features():
    x, y = blobs(30)
    for method in ("predict", "predict_proba", "predict_log_proba"):
        with pytest.raises(NotFittedError):
            getattr(small(), method)(x)
    with pytest.raises(ValueError, match="X has 1 features, but HeteroscedasticClassifier is expecting 2"):
        small(epochs=1).fit(x, y).predict(x[:, :1])


def test_scikit_learn_is_needed_for_the_class_alone(monkeypatch):
    """That nothing else imports it is seen by tests/test_architecture.py."""
    for name in [name for name in sys.modules if name.startswith(("sklearn", "keras_het.estimator"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"HeteroscedasticClassifier needs scikit-learn: pip install scikit-learn\."):
        keras_het.__getattr__("HeteroscedasticClassifier")
    with pytest.raises(AttributeError, match="module 'keras_het' has no attribute 'HeteroscedasticClasifier'"):
        _ = keras_het.HeteroscedasticClasifier


def test_layers_that_another_fit_has_trained_are_refused():
    """Else the folds of scikit-learn would leak: labels of chance were predicted."""
    shared = keras.layers.Dense(4)

    def make_model():
        model = keras.Sequential([keras.Input((2,)), shared, keras.layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    x, y = blobs(30)
    small(make_model=make_model, epochs=1).fit(x, y)
    with pytest.raises(ValueError, match="`make_model` must make new layers and a new optimizer at every call"):
        small(make_model=make_model, epochs=1).fit(x, y)
