"""Probabilities of whatever a model returns."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.explain import predict_probabilities
from keras_het.layers import HeteroscedasticDense
from tests.common import Batches

pytestmark = pytest.mark.once

X = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, -1.0]], "float32")
SOFTMAX = ops.convert_to_numpy(ops.softmax(X))
SIGMOID = ops.convert_to_numpy(ops.sigmoid(X))


def model_of(activation, loss=None):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Activation(activation)])
    if loss is not None:
        model.compile(loss=loss)
    return model


@pytest.mark.parametrize(
    ("activation", "loss", "expected"),
    [
        ("softmax", None, SOFTMAX),
        ("log_softmax", None, SOFTMAX),
        ("softmax", "sparse_categorical_crossentropy", SOFTMAX),
        ("linear", keras.losses.SparseCategoricalCrossentropy(from_logits=True), SOFTMAX),
        ("log_softmax", keras.losses.SparseCategoricalCrossentropy(from_logits=True), SOFTMAX),
        ("linear", keras.losses.BinaryCrossentropy(from_logits=True), SIGMOID),
        ("sigmoid", "binary_crossentropy", SIGMOID),
    ],
    ids=["softmax", "log_softmax", "compiled", "logits", "log_softmax as logits", "binary logits", "sigmoid"],
)
def test_other_models(activation, loss, expected):
    np.testing.assert_allclose(predict_probabilities(model_of(activation, loss), X), expected, rtol=1e-5)


@pytest.mark.smoke
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
@pytest.mark.parametrize("with_activation", [False, True])
def test_heads_need_no_loss(link, with_activation):
    head = HeteroscedasticDense(4, num_factors=1, link=link)
    behind = [keras.layers.Activation(link)] if with_activation else []
    model = keras.Sequential([keras.Input((3,)), head, *behind])
    np.testing.assert_allclose(
        predict_probabilities(model, X, batch_size=2), ops.convert_to_numpy(head.probabilities(X)), rtol=1e-5
    )


def test_a_data_set_gives_its_batches():
    data = Batches(X, np.zeros(3), size=2)
    np.testing.assert_allclose(predict_probabilities(model_of("softmax"), data), SOFTMAX, rtol=1e-5)


def two_outputs():
    inputs = keras.Input((3,))
    return keras.Model(inputs, [inputs, keras.layers.Softmax()(inputs)], name="two")


ERRORS = [
    (model_of("linear"), X, "be compiled with a loss that has from_logits=True. Received: model="),
    (model_of("linear"), X, "which returns numbers from -1 to 3, whose rows do not sum to 1"),
    (model_of("sigmoid"), X, "whose rows do not sum to 1"),
    (model_of("softmax"), X * np.nan, "has its training diverged, or is there nan in `x`? Received: nan for example 0"),
    (model_of("softmax"), X[:0], "`x` must have at least one example. Received: none"),
    (two_outputs(), X,
     "`model` must have one output of shape (N, K). Received: model='two' with outputs of shapes [(3, 3), (3, 3)]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "x", "message"), ERRORS, ids=["logits", "range", "sigmoid", "nan", "empty", "two outputs"]
)
def test_what_cannot_be_told_is_an_error(model, x, message):
    with pytest.raises(ValueError) as error:
        predict_probabilities(model, x)
    assert message in str(error.value)
