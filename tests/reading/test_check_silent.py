"""Models about which `check` is silent, and unknown ones; layers after flips; and the calls that run `check` first."""

import re
from functools import partial

import keras
import numpy as np
import pytest
from keras import layers, losses, metrics

import keras_het
from keras_het.callbacks import ReleaseTransition
from keras_het.labels import choose, clean
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.losses import GeneralizedCrossentropy, SmoothedCrossentropy
from tests.common import Subclassed, compiled, texts_of_warnings
from tests.layers.heads import HEADS, X, make_head, make_model
from tests.models.small_models import MODELS
from tests.reading.test_check import (
    LABELS,
    SPARSE,
    SPARSE_NAME,
    VECTOR_NAME,
    called,
    dense,
    flips,
    head,
    make,
    one_head_of_two,
    plain,
    probable,
    refused_symbols,
    sigmoid,
    two_heads,
)

pytestmark = pytest.mark.once


def custom(y_true, y_pred):
    return keras.ops.mean(y_pred)


class Own(losses.SparseCategoricalCrossentropy):
    """A subclass that takes probabilities of log-probabilities."""

    def call(self, y_true, y_pred):
        return super().call(y_true, keras.ops.exp(y_pred))


class Tempered(HeteroscedasticDense):
    def call(self, inputs, training=False):
        return keras.ops.exp(super().call(inputs, training))


BINARY = losses.BinaryCrossentropy(from_logits=True)
AUC = metrics.AUC(from_logits=True)
VECTORS_LOSS = losses.CategoricalCrossentropy(from_logits=True)


def binary_crossentropy(y_true, y_pred):
    """Returns something else than the loss of Keras with this name."""
    return keras.ops.mean(y_pred)


RIGHT = [
    (make,
     {"loss": SPARSE, "metrics": ["accuracy", "acc", metrics.SparseTopKCategoricalAccuracy(2),
                                   metrics.MeanIoU(3, sparse_y_pred=False)]}),
    (make, {"loss": VECTORS_LOSS, "metrics": [metrics.OneHotMeanIoU(3), metrics.OneHotIoU(3, [0]), AUC]}),
    (make, {"loss": "categorical_hinge"}),
    (make, {"loss": SmoothedCrossentropy(from_logits=True), "weighted_metrics": ["sparse_categorical_accuracy"]}),
    (make,
     {"loss": {"head": VECTORS_LOSS}, "metrics": [metrics.Precision(top_k=2), metrics.BinaryAccuracy(threshold=-0.7)]}),
    (sigmoid, {"loss": BINARY, "metrics": [metrics.BinaryAccuracy(threshold=0.0), metrics.BinaryIoU(threshold=0.0)]}),
    (sigmoid, {"loss": "hinge", "metrics": [metrics.Precision(thresholds=0), metrics.F1Score()]}),
    (lambda: make("sigmoid", units=1), {"metrics": [metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]}),
    (lambda: probable("softmax"), {"loss": VECTOR_NAME, "metrics": ["accuracy", metrics.AUC(), metrics.Precision()]}),
    (lambda: probable("sigmoid"), {"loss": "binary_crossentropy", "metrics": ["binary_accuracy", metrics.F1Score()]}),
    (lambda: make("softmax", layers.Softmax()), {"loss": VECTOR_NAME, "metrics": [metrics.AUC(), metrics.F1Score()]}),
    (lambda: make("softmax", layers.Softmax()), {"loss": "crossentropy", "metrics": ["mse"]}),
    (lambda: make("softmax", layers.Activation("exponential")), {"loss": "kl_divergence"}),
    (lambda: make("softmax", layers.Activation("log_softmax")), {"loss": SPARSE}),
    (lambda: make("sigmoid", layers.Activation("sigmoid")),
     {"loss": "binary_crossentropy", "metrics": [metrics.Precision()]}),
    (lambda: make("sigmoid", layers.Softmax()), {"loss": SPARSE_NAME}),  # whatever it is meant to be
    (lambda: make("softmax", layers.Dense(2)), {"loss": "mse"}),
    (two_heads, {"loss": [SPARSE, BINARY], "metrics": {"a": ["accuracy"]}}),
    (two_heads, {"loss": {"a": SPARSE, "b": None}}),
    (one_head_of_two, {"loss": [SPARSE, VECTOR_NAME], "metrics": [["accuracy"], [metrics.AUC()]]}),
    (lambda: called(Subclassed(head("softmax"), keras.ops.softmax)), {"loss": SPARSE_NAME}),
    (dense("softmax"), {"loss": VECTOR_NAME, "metrics": ["accuracy", metrics.AUC(), metrics.Precision(), "mse"]}),
    (dense("softmax", 2), {"loss": "binary_crossentropy"}),
    (dense("softmax"), {"loss": GeneralizedCrossentropy()}),
    (dense(), {"loss": BINARY, "metrics": [metrics.F1Score(), AUC]}),
    (dense(), {"loss": "hinge", "metrics": ["categorical_accuracy"]}),
    (dense(None, 1), {"loss": "mse", "metrics": ["mae", metrics.R2Score()]}),
    *((dense(), {"loss": loss, "metrics": [loss]}) for loss in ("mse", "mae", "msle", "mape", "poisson", "log_cosh")),
    (dense(), {"loss": losses.Huber(), "metrics": ["cosine_similarity"]}),
    (dense("sigmoid", 1), {"loss": "crossentropy", "metrics": ["accuracy", metrics.Precision(), metrics.AUC()]}),
    (dense("sigmoid"), {"loss": "mse", "metrics": ["mae"]}),
    (dense("log_softmax"), {"loss": SPARSE, "metrics": ["accuracy"]}),
    (dense(None, 12, layers.Reshape((4, 3)), layers.Softmax()), {"loss": SPARSE_NAME, "metrics": ["accuracy"]}),
    (plain(layers.Conv2D(1, 1, activation="sigmoid"), shape=(2, 2, 6)), {"loss": "bce", "metrics": ["accuracy"]}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "arguments"), RIGHT)
def test_nothing_is_said_of_what_is_right(make, arguments):
    assert keras_het.check(compiled(make(), "sgd", **arguments)) is None


@pytest.mark.parametrize(("make", "arguments", "text"), [
    (sigmoid, {"loss": BINARY, "metrics": [AUC, "accuracy"]},
     "Use keras.metrics.BinaryAccuracy(threshold=0.0), or 'categorical_accuracy' if each example has one label."),
    (sigmoid, {"loss": "hinge", "weighted_metrics": ["ACC"]}, "For weighted_metrics='ACC' Keras assumes one label"),
    (dense(), {"loss": BINARY, "metrics": ["accuracy"]}, "the layer 'last' predicts several. Use keras.metrics.Binary"),
    (dense("sigmoid"), {"loss": "bce", "metrics": ["accuracy"]}, "Use 'binary_accuracy', or 'categorical_accuracy' if"),
    (dense("sigmoid"), {"loss": "ce"}, "Use 'binary_crossentropy', or 'categorical_crossentropy' if each"),
    (two_heads, {"loss": [SPARSE, BINARY], "metrics": ["accuracy", "accuracy"]}, "the head 'b' predicts several"),
])  # fmt: skip
def test_a_string_for_one_label_is_named_where_an_example_can_have_several(make, arguments, text):
    with pytest.warns(UserWarning, match=re.escape(text)):
        keras_het.check(compiled(make(), "sgd", **arguments))


class OwnCall(keras.Model):
    def call(self, inputs):
        return self.after(super().call(inputs))


def with_own_call(after):
    inputs = keras.Input((6,))
    model = OwnCall(inputs, layers.Dense(3, name="last")(inputs))
    model.after = after
    return model


def test_a_functional_subclass_with_its_own_call_is_read_by_this_call_and_not_converted():
    model = with_own_call(lambda x: keras.ops.softmax(x))
    model.compile("sgd", SPARSE_NAME)
    keras_het.check(model)
    model.compile("sgd", SPARSE)
    with pytest.raises(ValueError, match="must accept probabilities, which the layer 'softmax"):
        keras_het.check(model)
    with pytest.raises(ValueError, match=r"^`model` must be a functional .* with its own `call` has no graph of what"):
        keras_het.heteroscedastic(model)


LOSS_UNKNOWN, LAYER_UNKNOWN = "is not from Keras or keras_het", "the outputs of the layer"


@pytest.mark.parametrize(("make", "arguments", "text"), [
    (make, {"loss": None}, "The model 'm' was not checked: it has no loss."),
    (make, {"loss": custom, "metrics": [custom, metrics.Mean()]},
     f"The model 'm' was not checked: the loss custom {LOSS_UNKNOWN}."),
    (make, {"loss": custom, "metrics": ["accuracy"]}, "The model 'm' was only partly checked: the loss custom is"),
    (make, {"loss": binary_crossentropy}, f"the loss binary_crossentropy {LOSS_UNKNOWN}"),
    (make, {"loss": Own()}, "the loss Own("),
    (make, {"loss": partial(custom), "metrics": [metrics.MeanMetricWrapper(custom)]}, LOSS_UNKNOWN),
    (lambda: make("softmax", layers.Softmax(axis=-2)), {"loss": "mse"}, LAYER_UNKNOWN),
    (lambda: make("softmax", layers.Rescaling(-1.0, name="scale")), {"loss": "mse"},
     f"The model 'm' was not checked: {LAYER_UNKNOWN} 'scale' (Rescaling) are unknown."),
    (lambda: keras.Sequential([keras.Input((6,)), Tempered(3)]), {"loss": SPARSE_NAME}, "(Tempered) are unknown"),
    (lambda: Subclassed(head("softmax")), {"loss": SPARSE_NAME}, "its layers cannot be read from its `call` (call i"),
    (lambda: with_own_call(lambda x: x + 1.0), {"loss": SPARSE_NAME}, f"{LAYER_UNKNOWN} 'add"),
    (lambda: called(Subclassed(head("softmax"), refused_symbols)), {"loss": SPARSE_NAME}, "its layers cannot be"),
    (dense(), {"loss": custom, "metrics": ["accuracy"]}, "was not checked"),
    (dense("relu"), {"loss": SPARSE}, f"{LAYER_UNKNOWN} 'last' (Dense) with the activation relu are"),
    (plain(layers.Conv2D(3, 2), shape=(2, 2, 6)), {"loss": SPARSE_NAME}, "(Conv2D) are unknown"),
    (one_head_of_two, {"loss": [SPARSE, custom]},
     f"The model 'm' was only partly checked: the loss custom {LOSS_UNKNOWN}"),
])  # fmt: skip
def test_what_is_not_known_is_left_alone_and_said(make, arguments, text):
    model = make()
    model.name = "m"
    model.compile("sgd", **arguments)
    with pytest.warns(UserWarning, match=re.escape(text)):
        keras_het.check(model)


def test_what_is_not_known_is_not_said_in_fit():
    model = compiled(flips(layers.Dense(3, "log_softmax")), "sgd", custom)
    model.fit(X, LABELS % 3, epochs=2, verbose=0, callbacks=[ReleaseTransition(1)])  # a warning would be an error here


def test_no_false_alarm_over_the_heads_and_models_of_this_suite():
    for kind in HEADS:
        keras_het.check(make_model(make_head(kind)))
        head = make_head(kind)
        is_sigmoid = getattr(getattr(head, "link", None), "activation", "") == "sigmoid"
        accuracy = metrics.BinaryAccuracy(threshold=0.0) if is_sigmoid else "accuracy"
        keras_het.check(make_model(head, layers.Dense(5), metrics=[accuracy]))
    for make_plain in MODELS.values():
        model = make_plain()
        logits = not np.allclose(model.predict(np.ones((2, *model.input_shape[1:])), verbose=0).sum(axis=1), 1.0)
        for checked in (model, keras_het.heteroscedastic(model, 1)):
            checked.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=logits), metrics=["accuracy"])
            keras_het.check(checked)


@pytest.mark.smoke
def test_the_call_of_a_subclassed_model_is_run_once_and_one_that_is_built_later_is_judged_then():
    runs, last = [], head("softmax")
    model = compiled(called(Subclassed(lambda x: runs.append(1) or x, last)), "sgd", SPARSE)
    keras_het.check(model)
    before = len(runs), len(last._inbound_nodes)
    keras_het.check(model)
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="must accept log-probabilities"):
        keras_het.check(model)
    assert (len(runs), len(last._inbound_nodes)) == before
    model = compiled(Subclassed(head("softmax")), "sgd", "sparse_categorical_crossentropy")
    with pytest.warns(UserWarning, match="was not checked"):
        keras_het.check(model)
    model(X)
    with pytest.raises(ValueError, match="must accept log-probabilities"):
        keras_het.check(model)


def before(*behind):
    return keras.Sequential([keras.Input((6,)), *flips(layers.Dense(3, "log_softmax")).layers, *behind])


@pytest.mark.parametrize(("make", "received"), [
    (lambda: before(head("softmax")), "'head', a HeteroscedasticDense"),
    (lambda: before(layers.Softmax(), layers.Dense(3, name="last")), "'last', a Dense"),
    (lambda: before(layers.Softmax(), layers.BatchNormalization(name="scale"), layers.Softmax()),
     "'scale', a BatchNormalization"),
    (lambda: keras.Sequential([before(), keras.Sequential([layers.Reshape((3,)), head("softmax")])]),
     "'head', a HeteroscedasticDense"),
    (lambda: called(Subclassed(before(), head("softmax"))), "'head', a HeteroscedasticDense"),
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
    text = "The layer 'old' before the head 'head' is a softmax over the same number of classes"
    with pytest.warns(UserWarning, match=text):
        keras_het.check(fitting(old, head("softmax")))
    for before in ([], [layers.ReLU()], [layers.Dense(4, "softmax")], [layers.Dense(3)]):
        keras_het.check(fitting(*before, head("softmax")))


Y = LABELS % 3


ONE_TO_K = r"`y` must be in \[0, 3\), the classes of the model \(use y - 1 if your labels start at 1"


@pytest.mark.parametrize("call", [lambda make, *data, **few: choose([make], *data, **few), clean])
@pytest.mark.parametrize(("x", "y", "loss", "text"), [
    (X, Y, keras_het.losses.GeneralizedCrossentropy(), "`loss` must accept logits, .* Use keras_het.losses.General"),
    (X, Y + 1, SPARSE, rf"{ONE_TO_K}|`y` must begin with 0: use y - 1 if labels begin with 1"),
    (X, Y, losses.CategoricalCrossentropy(from_logits=True),
     "`y` must be label vectors of shape|`make_model` must return models with a loss of integer labels"),
])  # fmt: skip
def test_nothing_is_trained_that_cannot_learn(call, x, y, loss, text, monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *arguments, **named: pytest.fail("it was trained"))
    with pytest.raises(ValueError, match=text):
        call(lambda: compiled(dense()(), "sgd", loss), x, y, epochs=1, folds=2, verbose=0)


def test_the_estimator_checks_its_network(monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *arguments, **named: 1 / 0)
    old = [layers.Dense(3, "softmax", name="old"), layers.Dense(3)]

    def make_model():
        return compiled(keras.Sequential([keras.Input(X.shape[1:]), *old]), "sgd", SPARSE)

    estimator = keras_het.labels.Classifier(make_model, method=keras_het.labels.methods.Heteroscedastic(), epochs=1)
    with texts_of_warnings() as texts, pytest.raises(ZeroDivisionError):
        estimator.fit(X, Y)
    assert re.search("The layer 'old' before the head .* is a softmax over the same number of classes", str(texts))
