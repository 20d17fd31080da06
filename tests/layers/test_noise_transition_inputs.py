"""What a transition takes: log-probabilities, and nothing else in silence."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_array_equal

from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.layers.log_probabilities import nan_unless_log_probabilities
from tests.common import to_numpy
from tests.layers.test_noise_transition import EXAMPLES, FEATURES, LABELS, LOG_P, LOSS, UNITS, T, X

pytestmark = pytest.mark.once

D = keras.layers.Dense
WRONG = {
    "logits": ([D(UNITS, name="made")], "the output of 'made', a Dense with activation='linear'"),
    "probabilities": ([D(UNITS, "softmax", name="made")], "the output of 'made', a Dense with activation='softmax'"),
    "a layer of probabilities": ([D(UNITS), keras.layers.Softmax(name="made")], "the output of 'made', a Softmax"),
    "an activation": ([D(UNITS), keras.layers.Activation("sigmoid", name="made")],
        "Activation with activation='sigmoid'"),
    "features, before the head": ([D(UNITS, "relu", name="made")],
        "the output of 'made', a Dense with activation='relu'"),
    "through an identity": ([D(UNITS, name="made"), keras.layers.Identity()], "the output of 'made', a Dense"),
    "through a linear activation": ([D(UNITS, name="made"), keras.layers.Activation("linear")],
        "the output of 'made', a Dense"),
    "a model inside": ([keras.Sequential([keras.Input((FEATURES,)), D(UNITS, name="made")])],
        "the output of 'made', a Dense"),
    "half precision": ([D(UNITS, name="made", dtype="mixed_bfloat16")], "the output of 'made', a Dense"),
    "labels that are not exclusive": ([HeteroscedasticDense(UNITS, link="sigmoid", name="made")],
        "HeteroscedasticDense with link=Sigmoid()"),
    "probabilities of a head": ([HeteroscedasticDense(UNITS, activation="softmax", name="made")],
        "HeteroscedasticDense with activation='softmax'"),
}  # fmt: skip


def stack(layers, functional):
    if not functional:
        return keras.Sequential([keras.Input((FEATURES,)), *layers])
    tensor = keras.Input((FEATURES,))
    for layer in layers:
        tensor = layer(tensor)
    return tensor


@pytest.mark.parametrize("functional", [True, False])
@pytest.mark.parametrize("kind", WRONG)
def test_a_model_whose_layer_gets_no_log_probabilities_is_refused(kind, functional):
    layers, text = WRONG[kind]
    with pytest.raises(ValueError) as error:
        stack([*layers, NoiseTransition(UNITS)], functional)
    assert "must be log-probabilities, as of Dense(K, 'log_softmax') or HeteroscedasticDense(K)" in str(error.value)
    assert text in str(error.value)


class Own(keras.layers.Dense):
    """Somebody's layer, of which nothing can be said."""

    def call(self, inputs):
        return ops.log_softmax(super().call(inputs))


@pytest.mark.parametrize(
    "layer", [D(UNITS, "log_softmax"), keras.layers.Activation("log_softmax"), Own(UNITS), D(UNITS, ops.log_softmax)]
)
def test_what_may_make_log_probabilities_is_allowed(layer):
    behind = [keras.layers.Identity(), keras.layers.Activation("linear", dtype="float32"), NoiseTransition(UNITS)]
    model = keras.Sequential([keras.Input((UNITS,)), layer, *behind])
    model.compile("sgd", LOSS)
    assert np.isfinite(model.fit(X[:, :UNITS], LABELS, verbose=0).history["loss"][0])


@pytest.mark.smoke
@pytest.mark.parametrize("inputs", ["logits", "probabilities", "one row"])
def test_training_on_what_are_no_log_probabilities_is_not_silent(inputs):
    """Where no graph tells: rows that do not sum to one are nan, and so is the loss; the others are what they were."""
    wrong = {
        "logits": 3 + LOG_P,
        "probabilities": np.exp(LOG_P),
        "one row": np.where(np.arange(EXAMPLES)[:, None] == 3, 1, LOG_P),
    }[inputs]
    layer = NoiseTransition(UNITS, transition=T, trainable=False)
    outputs = to_numpy(layer(wrong.astype("float32"), training=True))
    spoiled = np.isnan(outputs).all(axis=1)
    assert spoiled.sum() == (1 if inputs == "one row" else EXAMPLES)
    assert_array_equal(outputs[~spoiled], to_numpy(layer(LOG_P, training=True))[~spoiled])


@pytest.mark.parametrize("units", [2, 1000, 20_000])
def test_log_probabilities_of_half_precision_are_right(units):
    logits = np.random.default_rng(0).normal(size=(8, units)).astype("float32")
    for row in (logits, 0 * logits, 20 * logits):
        rounded = ops.cast(ops.cast(ops.log_softmax(row), "bfloat16"), "float32")
        assert np.isfinite(to_numpy(nan_unless_log_probabilities(rounded, rounded))).all()
