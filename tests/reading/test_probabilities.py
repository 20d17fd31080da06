"""Probabilities and features of models with any outputs, and the noise of a head."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_het.base.validation import as_float64
from keras_het.explain import features, predict_probabilities
from keras_het.layers import HeteroscedasticDense, HeteroscedasticNormal, JointHeteroscedasticDense
from keras_het.reading.head_noise import average_noise, logit_normal, variances
from tests.checks import refusals
from tests.common import Batches, texts_of_warnings
from tests.layers.heads import HEADS, built_head

pytestmark = pytest.mark.once

X = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, -1.0]], "float32")
SOFTMAX = ops.convert_to_numpy(ops.softmax(X))
SIGMOID = ops.convert_to_numpy(ops.sigmoid(X))


def model_of(activation, loss=None):
    model = keras.Sequential([keras.Input((3,)), layers.Activation(activation)])
    if loss is not None:
        model.compile(loss=loss)
    return model


@pytest.mark.parametrize(("activation", "loss", "expected"), [
    ("softmax", None, SOFTMAX),
    ("log_softmax", None, SOFTMAX),
    ("softmax", "sparse_categorical_crossentropy", SOFTMAX),
    ("linear", keras.losses.SparseCategoricalCrossentropy(from_logits=True), SOFTMAX),
    ("log_softmax", keras.losses.SparseCategoricalCrossentropy(from_logits=True), SOFTMAX),
    ("linear", keras.losses.BinaryCrossentropy(from_logits=True), SIGMOID),
    ("sigmoid", "binary_crossentropy", SIGMOID),
])  # fmt: skip
def test_other_models(activation, loss, expected):
    for x in (X, Batches(X, np.zeros(3), size=2)):
        np.testing.assert_allclose(predict_probabilities(model_of(activation, loss), x), expected, rtol=1e-5)


@pytest.mark.smoke
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
@pytest.mark.parametrize("with_activation", [False, True])
def test_heads_need_no_loss(link, with_activation):
    head = HeteroscedasticDense(4, num_factors=1, link=link)
    behind = [layers.Activation(link)] if with_activation else []
    model = keras.Sequential([keras.Input((3,)), head, *behind])
    p = ops.convert_to_numpy(head.probabilities(X))
    np.testing.assert_allclose(predict_probabilities(model, X, batch_size=2), p, rtol=1e-5)


TOKENS = np.array([[4, 5, 0, 0], [6, 1, 2, 3]])


def token_model(read, **embedding):
    inputs = keras.Input((4,), dtype="int32")
    tokens = keras.Model(inputs, layers.Embedding(8, 5, **embedding)(inputs))
    outputs = layers.Dense(2)(read(tokens(inputs)))
    return ops.convert_to_numpy(tokens(TOKENS)), keras.Model(inputs, outputs)


def pool(tokens):
    return layers.Dropout(0.5)(layers.Dense(3, "tanh", name="pool")(tokens[:, 0]))


@pytest.mark.smoke
@pytest.mark.parametrize("read", [pool, lambda x: x[:, -1], layers.GlobalMaxPooling1D(), lambda x: x])
def test_the_mean_over_tokens_leaves_padding_out(read):
    for options, lengths in (({"mask_zero": True}, (2, 4)), ({}, (4, 4))):
        tokens, model = token_model(read, **options)
        expected = [row[:length].mean(axis=0) for row, length in zip(tokens, lengths, strict=True)]
        np.testing.assert_allclose(features(model, TOKENS, pooling="mean"), expected, rtol=1e-5)
    name = model.layers[1].name
    np.testing.assert_allclose(features(model, TOKENS, name, pooling="mean"), tokens.mean(axis=1), rtol=1e-5)


@pytest.mark.parametrize(("read", "count"), [
    (pool, 1), (lambda x: x[:, 0], 0), (layers.Flatten(), 0),
    (lambda x: layers.Dense(4, "relu")(x[:, -1]), 0),  # the last step of a recurrent layer
])  # fmt: skip
def test_only_a_pooler_gets_a_warning(read, count):
    _, model = token_model(read)
    with texts_of_warnings() as texts:
        features(model, TOKENS)
    assert ["outputs of 'pool', a pooler of one token" in text for text in texts] == [True] * count


def two_outputs():
    inputs = keras.Input((3,))
    return keras.Model(inputs, [inputs, layers.Softmax()(inputs)], name="two")


def dense():
    return keras.Sequential([keras.Input((3,)), layers.Dense(2)])


test_what_cannot_be_told_is_an_error = refusals([
    (lambda: predict_probabilities(model_of("linear"), X),
     "with a loss that has from_logits=True...which returns numbers from -1 to 3, with rows that do not sum to 1"),
    (lambda: predict_probabilities(model_of("sigmoid"), X), "with rows that do not sum to 1"),
    (lambda: predict_probabilities(model_of("softmax"), X * np.nan),
     "its training has diverged, or `x` has nan. Received: nan for example 0"),
    (lambda: predict_probabilities(model_of("softmax"), X[:0]), "`x` must have at least one example. Received: none"),
    (lambda: features(dense(), X[:0]), "`x` must have at least"),
    (lambda: features(dense(), X, pooling="mean"),
     "`pooling` must be None for features without tokens. Otherwise name a `layer` with an output (N, ..., D). Rec"),
    (lambda: features(dense(), X, pooling="avg"), "`pooling` must be one of None, 'mean'. Received: pooling='avg'"),
    (lambda: predict_probabilities(two_outputs(), X),
     "`model` must have one output: pass keras.Model(model.input, model.outputs[0]) for "),
])  # fmt: skip


RNG = np.random.default_rng(0)


@pytest.mark.smoke
@pytest.mark.parametrize("head", [layers.Dense, HeteroscedasticDense, JointHeteroscedasticDense, HeteroscedasticNormal])
def test_features_are_what_comes_into_the_head_or_out_of_a_layer(head):
    hidden = layers.Dense(6, "relu", name="hidden")
    model = keras.Sequential([keras.Input((4,)), hidden, layers.Dense(5, "tanh", name="last"), head(3)])
    x = RNG.normal(size=(7, 4)).astype("float32")
    np.testing.assert_allclose(features(model, x, "hidden", batch_size=3), ops.convert_to_numpy(hidden(x)), rtol=1e-5)
    last = ops.convert_to_numpy(model.get_layer("last")(hidden(x)))
    np.testing.assert_allclose(features(model, x), last, rtol=1e-5)
    with pytest.raises(ValueError, match="`layer` must be one of 'hidden', 'last'"):
        features(model, x, "other")
    model.add(layers.BatchNormalization())
    with pytest.raises(ValueError, match="Otherwise pass the name of the layer before the head as `layer`"):
        features(model, x)


def test_a_list_of_texts_is_as_good_as_an_array_of_them():
    """As for `predict` of a KerasHub task, whose preprocessor gets the texts."""

    class OfTexts(keras.Sequential):
        def preprocess_samples(self, x):
            return np.array([[len(text)] for text in x], "float32")

    model = OfTexts([keras.Input((1,)), layers.Dense(1, kernel_initializer="ones"), layers.Dense(2)])
    texts = ["good", "a bad one", "so"]
    np.testing.assert_array_equal(features(model, texts, batch_size=2), [[4.0], [9.0], [2.0]])
    np.testing.assert_array_equal(features(model, np.array(texts), batch_size=2), [[4.0], [9.0], [2.0]])


INPUTS = RNG.normal(size=(5, 6)).astype("float32")


@pytest.mark.parametrize("kind", HEADS)
def test_variances_are_those_of_the_dense_matrix(kind):
    head = built_head(kind, units=7, temperature=2.0)
    dense = as_float64(head.logit_covariance(INPUTS)) / 4.0  # centred where the link is blind to it
    found = variances(head, logit_normal(head, INPUTS))
    np.testing.assert_allclose(found, np.diagonal(dense, axis1=1, axis2=2), rtol=1e-4, atol=1e-5)


def test_a_large_shift_hides_nothing():
    """A part of V that all classes share, a thousand times the rest: no difference of large numbers is taken."""
    head = built_head("full", units=7, num_factors=3)
    expected, matrices = variances(head, logit_normal(head, INPUTS)), as_float64(head.logit_covariance(INPUTS))
    bias = ops.convert_to_numpy(head.covariance.factor_layer.bias).reshape(7, 3)
    head.covariance.factor_layer.bias.assign((bias + 1000.0).ravel())
    np.testing.assert_allclose(variances(head, logit_normal(head, INPUTS)), expected, rtol=1e-2)
    np.testing.assert_allclose(as_float64(head.logit_covariance(INPUTS)), matrices, rtol=1e-2, atol=1e-3)


def test_masked_steps_have_no_part_in_the_mean():
    x = np.concatenate([INPUTS, np.zeros_like(INPUTS)])[None]
    head, inputs = built_head("full"), keras.Input((10, 6))
    masked = keras.Model(inputs, head(layers.Masking()(inputs)))
    plain = keras.Model(inputs := keras.Input((6,)), head(inputs))
    for found, expected in zip(average_noise(masked, x)[1:], average_noise(plain, INPUTS)[1:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
