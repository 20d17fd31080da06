"""One function that makes a model goes through every call that trains, on every form that data come in."""

import random

import keras
import numpy as np
import pytest

import keras_het
from keras_het.base.seeds import unchanged_states
from keras_het.training import cross_val_probabilities
from tests.training.tasks import SHORT_TRAININGS, TRUE, X, Y

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

ONCE = {"epochs": 5, "batch_size": 32, "verbose": 0}
CANDIDATES = {"candidates": [], "folds": 2}


def make_model(width=8):
    layers = [keras.Input((6,)), keras.layers.Dense(width, "relu"), keras.layers.Dense(3, "softmax")]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
    return model


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        part = slice(60 * index, 60 * index + 60)
        return X[part], Y[part]


def arrays():
    return X, Y


def frames():
    pandas = pytest.importorskip("pandas")  # the session `tests` has it
    index = [f"row {i}" for i in range(len(X))]
    return pandas.DataFrame(X, index=index), pandas.Series(Y, index=index)


def data_set():
    return Batches(), None


VERBS = {
    "choose": lambda make, data: keras_het.choose(make, *data, **ONCE, **CANDIDATES).model,
    "clean_labels": lambda make, data: keras_het.clean_labels(make, *data, **ONCE, folds=2).model,
    "tune": lambda make, data: keras_het.tune(make, [4, 8], *data, **ONCE, **held_out(data), extend=False).model,
    "folds": lambda make, data: cross_val_probabilities(make, *data, **ONCE, folds=2),
}


def held_out(data):
    return {} if data[1] is not None else {"validation_data": (X, Y)}


def is_right(found, x=X):
    log_p = found if isinstance(found, np.ndarray) else found.predict(x, verbose=0)
    return np.mean(log_p.argmax(axis=1) == TRUE)


@pytest.mark.parametrize("data", [arrays, frames, data_set])
@pytest.mark.parametrize("verb", VERBS)
def test_one_function_goes_through_every_call(verb, data):
    assert is_right(VERBS[verb](make_model, data())) > 0.6


@pytest.mark.parametrize("verb", ["choose", "clean_labels", "folds"])
def test_features_and_a_trained_model_need_no_function(verb):
    trained = make_model()
    trained.fit(X, TRUE, epochs=5, verbose=0)
    fast = {"optimizer": keras.optimizers.Adam(0.1)}
    calls = {
        "choose": lambda given, x: keras_het.choose(given, x, Y, **ONCE, **CANDIDATES, **fast).model,
        "clean_labels": lambda given, x: keras_het.clean_labels(given, x, Y, **ONCE, folds=2, **fast).model,
        "folds": lambda given, x: cross_val_probabilities(given, x, Y, **ONCE, folds=2, **fast),
    }
    assert is_right(calls[verb](trained, X)) > 0.6
    features = keras_het.explain.features(trained, X)
    assert is_right(calls[verb](None, features), features) > 0.6


@pytest.mark.parametrize("name", ["HeteroscedasticClassifier", "NoisyLabelClassifier"])
def test_the_estimators_take_the_same_function(name):
    few = {"epochs": 5, "random_state": 0} | (CANDIDATES if name == "NoisyLabelClassifier" else {})
    fitted = getattr(keras_het, name)(make_model=make_model, **few).fit(X, Y)
    assert np.mean(fitted.predict(X) == TRUE) > 0.6


CALLS = {
    "choose": lambda make=make_model, **given: keras_het.choose(make, X, Y, **ONCE | CANDIDATES | given),
    "clean_labels": lambda make=make_model, **given: keras_het.clean_labels(make, X, Y, **ONCE | {"folds": 2} | given),
    "folds": lambda make=make_model, **given: cross_val_probabilities(make, X, Y, **ONCE | {"folds": 2} | given),
    "tune": lambda make=make_model, **given: keras_het.tune(make, [8], X, Y, **ONCE | given),
}


def draws_after(call):
    """What is drawn without a seed."""
    keras.utils.set_random_seed(3)
    keras.random.uniform(())  # makes Keras' generator of draws without a seed
    call()
    return random.random(), np.random.random(), float(keras.ops.convert_to_numpy(keras.random.uniform(())))


@pytest.mark.smoke
def test_random_states_are_given_back():
    def seed():
        keras.utils.set_random_seed(9)
        keras.random.uniform(())

    kept = draws_after(lambda: None)
    assert draws_after(unchanged_states()(seed)) == kept
    assert not set(draws_after(seed)) & set(kept)


@pytest.mark.parametrize("verb", CALLS)
def test_no_global_random_state_changes(verb):
    torch = pytest.importorskip("torch")
    assert draws_after(CALLS[verb]) == draws_after(lambda: None)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    CALLS[verb]()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("verb", CALLS)
def test_verbose_means_the_same_in_all(verb, capsys):
    lines = []
    for verbose in (0, 1, 2):
        CALLS[verb](verbose=verbose)
        shown = capsys.readouterr().out
        lines.append(("Epoch 1/5" in shown, bool(shown)))
    assert lines == [(False, False), (False, True), (True, True)]


@pytest.mark.parametrize("verb", CALLS)
def test_a_name_that_is_no_argument_is_answered_with_those_that_are_like_it(verb):
    with pytest.raises(ValueError, match=r"`fit_arguments` must be arguments of `fit` .* Received: sede \(`seed`\?\)"):
        CALLS[verb](sede=3)


@pytest.mark.parametrize("verb", ["choose", "clean_labels", "folds"])
@pytest.mark.parametrize("loss", ["mse", "categorical_crossentropy"])
def test_one_rule_for_losses(verb, loss):
    def make():
        model = make_model()
        model.compile("adam", loss)
        return model

    with pytest.raises(
        ValueError, match=r'integers.*compile\(loss="sparse_categorical_crossentropy"\). Received: loss='
    ):
        CALLS[verb](make)


def test_a_table_says_what_its_lines_are():
    found = keras_het.clean_labels(make_model, X, Y, **ONCE, folds=2)
    assert str(found).startswith("model  accuracy")
    assert "next step: " in str(found)
    axes = found.plot().axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("model", "accuracy of the held-out labels")
    chosen = keras_het.choose(make_model, X, Y, **ONCE, **CANDIDATES)
    assert str(chosen).startswith("candidate")
    assert "next step: " not in str(chosen)
