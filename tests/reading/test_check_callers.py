"""Whatever trains a model, or reports on one, checks it and the data first."""

import re

import keras
import numpy as np
import pytest
from keras import layers, losses

import keras_het
from keras_het.labels import choose, clean
from keras_het.models import DeepEnsemble
from tests.common import texts_of_warnings
from tests.layers.heads import X
from tests.reading.test_check import LABELS, dense

pytestmark = pytest.mark.once

X, Y = X.astype("float32"), LABELS % 3
BROKEN = np.where(np.arange(len(X))[:, None] == 3, np.nan, X)
SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)


def make(loss=SPARSE):
    model = dense()()
    model.compile("sgd", loss)
    return model


def compare(x, y, loss=SPARSE):
    choose([lambda: make(loss)], x, y, epochs=1, folds=2, verbose=0)


def find_errors(x, y, loss=SPARSE):
    clean(lambda: make(loss), x, y, epochs=1, folds=2, verbose=0)


def fit_ensemble(x, y, loss=SPARSE):
    DeepEnsemble([make(loss), make(loss)], link="softmax").fit(x, y, verbose=0)


ONE_TO_K = r"`y` must be in \[0, 3\), the classes of the model \(y - 1, for labels that begin with 1"


@pytest.mark.parametrize("call", [compare, find_errors, fit_ensemble])
@pytest.mark.parametrize(("x", "y", "loss", "text"), [
    (X, Y, keras_het.losses.GeneralizedCrossentropy(), "`loss` must take logits: keras_het.losses.Generalized"),
    (X, Y + 1, SPARSE, rf"{ONE_TO_K}|`y` must begin with 0 \(y - 1, for labels that begin with 1"),
    (X, Y, losses.CategoricalCrossentropy(from_logits=True),
     "`y` must be label vectors of shape|`make_model` must make models of a loss of integers"),
])  # fmt: skip
def test_nothing_is_trained_that_cannot_learn(call, x, y, loss, text, monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *arguments, **named: pytest.fail("it was trained"))
    with pytest.raises(ValueError, match=text):
        call(x, y, loss)


@pytest.mark.parametrize(("x", "loss", "text"), [
    (X, "sparse_categorical_crossentropy", "`loss` must take logits"),
    (BROKEN, SPARSE, "is there nan in `x`\\? Received: nan for example 3"),
])  # fmt: skip
def test_nothing_is_reported_of_what_cannot_be_right(x, loss, text, tmp_path):
    pytest.importorskip("jinja2")
    with pytest.raises(ValueError, match=text):
        keras_het.labels.report(make(loss), x, Y, path=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_estimator_checks_its_network(monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *arguments, **named: 1 / 0)
    old = [layers.Dense(3, "softmax", name="old"), layers.Dense(3)]

    def make_model():
        model = keras.Sequential([keras.Input(X.shape[1:]), *old])
        model.compile("sgd", SPARSE)
        return model

    estimator = keras_het.labels.Classifier(make_model, method=keras_het.labels.methods.Heteroscedastic(), epochs=1)
    with texts_of_warnings() as texts, pytest.raises(ZeroDivisionError):
        estimator.fit(X, Y)
    assert any(re.match("The layer 'old' before the head .* is a softmax of as many classes", text) for text in texts)
