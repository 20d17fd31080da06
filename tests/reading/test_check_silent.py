"""Correct models, about which `check` is silent, and unknown models, about which it warns."""

import re
from functools import partial

import keras
import numpy as np
import pytest
from keras import layers, losses, metrics

import keras_het
from keras_het.callbacks import ReleaseTransition
from keras_het.layers import HeteroscedasticDense
from keras_het.losses import GeneralizedCrossentropy, SmoothedCrossentropy, SymmetricCrossentropy
from tests.layers.heads import HEADS, X, make_head, make_model
from tests.models.small_models import MODELS
from tests.reading.test_check import (
    LABELS,
    SPARSE,
    SPARSE_NAME,
    VECTOR_NAME,
    Subclassed,
    called,
    dense,
    flips,
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
    """A head that returns something else."""

    def call(self, inputs, training=False):
        return keras.ops.exp(super().call(inputs, training))


BINARY = losses.BinaryCrossentropy(from_logits=True)
VECTORS_LOSS = losses.CategoricalCrossentropy(from_logits=True)


def binary_crossentropy(y_true, y_pred):
    """Returns something else than the loss of Keras with this name."""
    return keras.ops.mean(y_pred)


RIGHT = [
    (make,
     {"loss": SPARSE, "metrics": ["accuracy", "acc", metrics.SparseTopKCategoricalAccuracy(2),
                                   metrics.MeanIoU(3, sparse_y_pred=False)]}),
    (make, {"loss": VECTORS_LOSS, "metrics": [metrics.OneHotMeanIoU(3), metrics.OneHotIoU(3, [0])]}),
    (sigmoid, {"loss": losses.BinaryCrossentropy(from_logits=True), "metrics": [metrics.BinaryIoU(threshold=0.0)]}),
    (make, {"loss": VECTORS_LOSS, "metrics": [metrics.AUC(from_logits=True)]}),
    (make, {"loss": "categorical_hinge"}),
    (make, {"loss": {"class_name": "CategoricalCrossentropy", "config": {"from_logits": True}}}),
    (make, {"loss": SmoothedCrossentropy(from_logits=True), "weighted_metrics": ["sparse_categorical_accuracy"]}),
    (make,
     {"loss": {"head": VECTORS_LOSS}, "metrics": [metrics.Precision(top_k=2), metrics.BinaryAccuracy(threshold=-0.7)]}),
    (sigmoid,
     {"loss": losses.BinaryCrossentropy(from_logits=True), "metrics": [metrics.BinaryAccuracy(threshold=0.0)]}),
    (sigmoid, {"loss": "hinge", "metrics": [metrics.Precision(thresholds=0), metrics.F1Score()]}),
    (lambda: make("sigmoid", units=1), {"metrics": [metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]}),
    (lambda: probable("softmax"), {"loss": VECTOR_NAME, "metrics": ["accuracy", metrics.AUC(), metrics.Precision()]}),
    (lambda: probable("sigmoid"), {"loss": "binary_crossentropy", "metrics": ["binary_accuracy", metrics.F1Score()]}),
    (lambda: make("softmax", layers.Softmax()), {"loss": VECTOR_NAME, "metrics": [metrics.AUC(), metrics.F1Score()]}),
    (lambda: make("softmax", layers.Softmax()), {"loss": "binary_crossentropy"}),
    (lambda: make("softmax", layers.Softmax()), {"loss": "crossentropy", "metrics": ["mse"]}),
    (lambda: make("softmax", layers.Activation("exponential")), {"loss": "kl_divergence"}),
    (lambda: make("softmax", layers.Activation("log_softmax")), {"loss": SPARSE}),
    (lambda: make("sigmoid", layers.Activation("sigmoid")),
     {"loss": "binary_crossentropy", "metrics": [metrics.Precision()]}),
    (lambda: make("sigmoid", layers.Softmax()), {"loss": SPARSE_NAME}),  # whatever it is meant to be
    (lambda: make("softmax", layers.Dense(2)), {"loss": "mse"}),
    (two_heads, {"loss": [SPARSE, losses.BinaryCrossentropy(from_logits=True)], "metrics": {"a": ["accuracy"]}}),
    (two_heads, {"loss": {"a": SPARSE, "b": None}}),
    (one_head_of_two, {"loss": [SPARSE, VECTOR_NAME], "metrics": [["accuracy"], [metrics.AUC()]]}),
    (lambda: flips(layers.Dense(3, "log_softmax")), {"loss": SPARSE}),
    (lambda: called(Subclassed(behind=keras.ops.softmax)), {"loss": SPARSE_NAME}),
    (dense("softmax"), {"loss": VECTOR_NAME, "metrics": ["accuracy", metrics.AUC(), metrics.Precision(), "mse"]}),
    (dense("softmax", 2), {"loss": "binary_crossentropy"}),
    (dense("softmax"), {"loss": GeneralizedCrossentropy()}),
    (dense(), {"loss": SPARSE, "metrics": ["accuracy", metrics.SparseTopKCategoricalAccuracy(2)]}),
    (dense(), {"loss": SymmetricCrossentropy(from_logits=True)}),
    (dense(), {"loss": losses.BinaryCrossentropy(from_logits=True), "metrics": [metrics.F1Score()]}),
    (dense(), {"loss": losses.BinaryCrossentropy(from_logits=True), "metrics": [metrics.AUC(from_logits=True)]}),
    (dense(), {"loss": "hinge", "metrics": ["categorical_accuracy"]}),
    (dense(None, 1), {"loss": "mse", "metrics": ["mae", metrics.R2Score()]}),
    *((dense(), {"loss": loss, "metrics": [loss]}) for loss in ("mse", "mae", "msle", "mape", "poisson", "log_cosh")),
    (dense(), {"loss": losses.Huber(), "metrics": ["cosine_similarity"]}),
    (dense("sigmoid", 1), {"loss": "crossentropy", "metrics": ["accuracy", metrics.Precision(), metrics.AUC()]}),
    (dense("sigmoid"), {"loss": "mse", "metrics": ["mae"]}),
    (dense("log_softmax"), {"loss": SPARSE, "metrics": ["accuracy"]}),
    (dense(None, 3, layers.Rescaling(2.0), layers.Softmax()), {"loss": VECTOR_NAME}),
    (dense(None, 12, layers.Reshape((4, 3)), layers.Softmax()), {"loss": SPARSE_NAME, "metrics": ["accuracy"]}),
    (plain(layers.Conv2D(1, 1, activation="sigmoid"), shape=(2, 2, 6)), {"loss": "bce", "metrics": ["accuracy"]}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "arguments"), RIGHT)
def test_nothing_is_said_of_what_is_right(make, arguments):
    model = make()
    model.compile("sgd", **arguments)
    assert keras_het.check(model) is None


@pytest.mark.parametrize(("make", "arguments", "text"), [
    (sigmoid, {"loss": BINARY, "metrics": [metrics.AUC(from_logits=True), "accuracy"]},
     "Use keras.metrics.BinaryAccuracy(threshold=0.0), or 'categorical_accuracy' if each example has one label."),
    (sigmoid, {"loss": "hinge", "weighted_metrics": ["ACC"]}, "For weighted_metrics='ACC' Keras assumes one label"),
    (dense(), {"loss": BINARY, "metrics": ["accuracy"]}, "the layer 'last' predicts several. Use keras.metrics.Binary"),
    (dense("sigmoid"), {"loss": "bce", "metrics": ["accuracy"]}, "Use 'binary_accuracy', or 'categorical_accuracy' if"),
    (dense("sigmoid"), {"loss": "ce"}, "Use 'binary_crossentropy', or 'categorical_crossentropy' if each"),
    (two_heads, {"loss": [SPARSE, BINARY], "metrics": ["accuracy", "accuracy"]}, "the head 'b' predicts several"),
])  # fmt: skip
def test_a_string_for_one_label_is_named_where_an_example_can_have_several(make, arguments, text):
    model = make()
    model.compile("sgd", **arguments)
    with pytest.warns(UserWarning, match=re.escape(text)):
        keras_het.check(model)


class OwnCall(keras.Model):
    """A functional model whose class computes something after its graph."""

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
    with pytest.raises(ValueError, match="A subclass with its own `call` has no graph of what it computes"):
        keras_het.heteroscedastic(model)


LOSS_UNKNOWN, LAYER_UNKNOWN = "is not from Keras or keras_het", "the outputs of the layer"


@pytest.mark.parametrize(("make", "arguments", "text"), [
    (make, {"loss": None}, "The model 'm' was not checked: it has no loss."),
    (make, {"loss": custom, "metrics": [custom, metrics.Mean()]},
     f"The model 'm' was not checked: the loss custom {LOSS_UNKNOWN}."),
    (make, {"loss": custom, "metrics": ["accuracy"]}, "The model 'm' was only partly checked: the loss custom is"),
    (make, {"loss": lambda y_true, y_pred: keras.ops.mean(y_pred)}, LOSS_UNKNOWN),
    (make, {"loss": binary_crossentropy}, f"the loss binary_crossentropy {LOSS_UNKNOWN}"),
    (make, {"loss": Own()}, "the loss Own("),
    (make, {"loss": partial(custom), "metrics": [metrics.MeanMetricWrapper(custom)]}, LOSS_UNKNOWN),
    (lambda: make("softmax", layers.Softmax(axis=-2)), {"loss": "mse"}, LAYER_UNKNOWN),
    (lambda: make("softmax", layers.Rescaling(-1.0, name="scale")), {"loss": "mse"},
     f"The model 'm' was not checked: {LAYER_UNKNOWN} 'scale' (Rescaling) are unknown."),
    (lambda: keras.Sequential([keras.Input((6,)), Tempered(3)]), {"loss": SPARSE_NAME}, "(Tempered) are unknown"),
    (Subclassed, {"loss": SPARSE_NAME}, "its layers cannot be read from its `call` (call it once)"),
    (lambda: with_own_call(lambda x: x + 1.0), {"loss": SPARSE_NAME}, f"{LAYER_UNKNOWN} 'add"),
    (lambda: called(Subclassed(behind=refused_symbols)), {"loss": SPARSE_NAME}, "its layers cannot be"),
    (dense(), {"loss": custom, "metrics": ["accuracy"]}, "was not checked"),
    (dense(None, 1), {"loss": custom, "metrics": ["accuracy", metrics.AUC()]}, "was not checked"),
    (dense("relu"), {"loss": SPARSE}, f"{LAYER_UNKNOWN} 'last' (Dense) with the activation relu are"),
    (dense(None, 3, layers.Rescaling(2.0)), {"loss": SPARSE_NAME}, "(Rescaling) are unknown"),
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
    model = flips(layers.Dense(3, "log_softmax"))
    model.compile("sgd", custom)
    model.fit(
        X, LABELS % 3, epochs=2, verbose=0, callbacks=[ReleaseTransition(after=1)]
    )  # a warning would be an error here


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
        model.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=logits), metrics=["accuracy"])
        keras_het.check(model)
        new = keras_het.heteroscedastic(model, 1)
        new.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=logits), metrics=["accuracy"])
        keras_het.check(new)
