"""`check` of subclassed models and of layers after a `NoiseTransition`, and the calls that run `check` first."""

import re

import keras
import pytest
from keras import layers, losses

import keras_het
from keras_het.labels import choose, clean
from keras_het.layers import NoiseTransition
from tests.common import compiled, texts_of_warnings
from tests.layers.heads import X
from tests.reading.test_check import LABELS, SPARSE, called, dense, head

pytestmark = pytest.mark.once


class Counted(keras.Model):
    def __init__(self):
        super().__init__()
        self.head, self.runs = head("softmax"), 0

    def call(self, inputs):
        self.runs += 1
        return self.head(inputs)


@pytest.mark.smoke
def test_the_call_of_a_subclassed_model_is_run_once():
    model = compiled(called(Counted()), "sgd", SPARSE)
    keras_het.check(model)
    runs, nodes = model.runs, len(model.head._inbound_nodes)
    keras_het.check(model)
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="must accept log-probabilities"):
        keras_het.check(model)
    assert (model.runs, len(model.head._inbound_nodes)) == (runs, nodes)


def test_a_subclassed_model_that_is_built_later_is_judged_then():
    model = compiled(Counted(), "sgd", "sparse_categorical_crossentropy")
    with pytest.warns(UserWarning, match="was not checked"):
        keras_het.check(model)
    model(X)
    with pytest.raises(ValueError, match="must accept log-probabilities"):
        keras_het.check(model)


class AfterFlips(keras.Model):
    def __init__(self):
        super().__init__()
        self.features, self.flips, self.head = (
            layers.Dense(3, "log_softmax"),
            NoiseTransition(3, name="flips"),
            head("softmax"),
        )

    def call(self, inputs):
        return self.head(self.flips(self.features(inputs)))


def before(*behind):
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(3, "log_softmax"), NoiseTransition(3, name="flips"), *behind]
    )


@pytest.mark.parametrize(("make", "received"), [
    (lambda: before(head("softmax")), "'head', a HeteroscedasticDense"),
    (lambda: before(layers.Softmax(), layers.Dense(3, name="last")), "'last', a Dense"),
    (lambda: before(layers.Softmax(), layers.BatchNormalization(name="scale"), layers.Softmax()),
     "'scale', a BatchNormalization"),
    (lambda: keras.Sequential([before(), keras.Sequential([layers.Reshape((3,)), head("softmax")])]),
     "'head', a HeteroscedasticDense"),
    (lambda: called(AfterFlips()), "'head', a HeteroscedasticDense"),
])  # fmt: skip
def test_no_layer_learns_of_what_flips_give(make, received):
    model = compiled(make(), "sgd", SPARSE)
    with pytest.raises(ValueError) as error:
        keras_het.check(model)
    assert str(error.value) == (
        "The layer 'flips' must be the last layer, because it returns the log-probabilities of the noisy labels for "
        f"the loss. Only activations and layers that reshape can follow. Received: {received}, after it"
    )


def test_what_only_changes_form_may_stand_behind_flips():
    inputs = keras.Input((6,))
    first, second = before(layers.Reshape((1, 3)), layers.Flatten()), before(NoiseTransition(3))
    for model in (first, second):
        model.compile("sgd", SPARSE)
        keras_het.check(model)
    model = compiled(keras.Model(inputs, layers.Average()([first(inputs), second(inputs)])), "sgd", SPARSE)
    with pytest.warns(UserWarning, match=r"the outputs of the layer 'average' \(Average\) are unknown"):
        keras_het.check(model)


def fitting(*ending):
    return compiled(keras.Sequential([keras.Input((6,)), layers.Dense(3), *ending]), "sgd", SPARSE)


@pytest.mark.parametrize("old", [layers.Dense(3, "softmax", name="old"), layers.Softmax(name="old")])
def test_a_softmax_of_as_many_classes_before_a_head_is_warned_of_and_no_other_layer(old):
    with pytest.warns(
        UserWarning, match="The layer 'old' before the head 'head' is a softmax over the same number of classes"
    ):
        keras_het.check(fitting(old, head("softmax")))
    for before in ([], [layers.ReLU()], [layers.Dense(4, "softmax")], [layers.Dense(3)]):
        keras_het.check(fitting(*before, head("softmax")))


Y = LABELS % 3


def make(loss=SPARSE):
    return compiled(dense()(), "sgd", loss)


def compare(x, y, loss=SPARSE):
    choose([lambda: make(loss)], x, y, epochs=1, folds=2, verbose=0)


def find_errors(x, y, loss=SPARSE):
    clean(lambda: make(loss), x, y, epochs=1, folds=2, verbose=0)


ONE_TO_K = r"`y` must be in \[0, 3\), the classes of the model \(use y - 1 if your labels start at 1"


@pytest.mark.parametrize("call", [compare, find_errors])
@pytest.mark.parametrize(("x", "y", "loss", "text"), [
    (X, Y, keras_het.losses.GeneralizedCrossentropy(), "`loss` must accept logits, .* Use keras_het.losses.General"),
    (X, Y + 1, SPARSE, rf"{ONE_TO_K}|`y` must begin with 0: use y - 1 if labels begin with 1"),
    (X, Y, losses.CategoricalCrossentropy(from_logits=True),
     "`y` must be label vectors of shape|`make_model` must return models with a loss of integer labels"),
])  # fmt: skip
def test_nothing_is_trained_that_cannot_learn(call, x, y, loss, text, monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *arguments, **named: pytest.fail("it was trained"))
    with pytest.raises(ValueError, match=text):
        call(x, y, loss)


def test_the_estimator_checks_its_network(monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *arguments, **named: 1 / 0)
    old = [layers.Dense(3, "softmax", name="old"), layers.Dense(3)]

    def make_model():
        return compiled(keras.Sequential([keras.Input(X.shape[1:]), *old]), "sgd", SPARSE)

    estimator = keras_het.labels.Classifier(make_model, method=keras_het.labels.methods.Heteroscedastic(), epochs=1)
    with texts_of_warnings() as texts, pytest.raises(ZeroDivisionError):
        estimator.fit(X, Y)
    assert any(
        re.match("The layer 'old' before the head .* is a softmax over the same number of classes", text)
        for text in texts
    )
