"""Confusion matrices, and the likelihood of noisy labels."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.explain import confusion_matrices, noisy_nll
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from tests.checks import refusals
from tests.common import Batches, Subclassed

pytestmark = pytest.mark.once

UNITS, EXAMPLES, FEATURES = 4, 60, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
LABELS = np.arange(EXAMPLES) % UNITS
T = 0.6 * np.eye(UNITS) + 0.4 * np.random.default_rng(1).dirichlet(np.ones(UNITS), size=UNITS)


def make_model(**arguments):
    layers = keras.layers.Dense(UNITS, "log_softmax"), NoiseTransition(UNITS, **arguments)
    return keras.Sequential([keras.Input((FEATURES,)), *layers])


def by_hand(model, layer_input):
    p = np.exp(layer_input.astype("float64"))
    q = p @ ops.convert_to_numpy(model.layers[-1].transition).astype("float64")
    return (np.stack([m[[k == i for k in LABELS]].mean(axis=0) for i in range(UNITS)]) for m in (p, q))


@pytest.mark.smoke
@pytest.mark.parametrize("trainable", [False, True])
def test_both_matrices_and_that_one_is_the_other_times_t(trainable):
    model = make_model(transition=T, trainable=trainable)
    before, found = model.get_weights(), confusion_matrices(model, X, LABELS, batch_size=16)
    assert all(map(np.array_equal, model.get_weights(), before))
    clean, noisy = by_hand(model, ops.convert_to_numpy(model.layers[0](X)))
    np.testing.assert_allclose(found.clean, clean, atol=1e-6)
    np.testing.assert_allclose(found.noisy, noisy, atol=1e-6)
    assert found.error < 1e-6
    log_p = model.predict(X, verbose=0)
    noisy = ops.convert_to_numpy(model.layers[-1](log_p, training=True))
    for expected, predicted in ((found.clean, log_p), (found.noisy, noisy)):
        np.testing.assert_allclose(np.exp(predicted)[LABELS == 1].mean(axis=0), expected[1], atol=1e-6)


def test_a_subclassed_model_and_a_heteroscedastic_head():
    flips = NoiseTransition(UNITS, transition=T, trainable=False)
    assert confusion_matrices(Subclassed(HeteroscedasticDense(UNITS, seed=0), flips), X, LABELS).error < 1e-6


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_what_are_not_log_probabilities_is_refused(activation):
    own = keras.layers.Lambda(keras.activations.get(activation))  # of which a graph tells nothing
    layers = [keras.layers.Dense(UNITS), own, NoiseTransition(UNITS)]
    with pytest.raises(ValueError, match=r"from Dense.*, and NoiseTransition must be the last layer"):
        confusion_matrices(keras.Sequential([keras.Input((FEATURES,)), *layers]), X, LABELS)


class Shuffled(Batches):
    """Batches in another order at every pass, as a shuffled data set has them."""

    passes = 0

    def __getitem__(self, index):
        self.passes += index == 0
        order = np.random.default_rng(self.passes).permutation(EXAMPLES)[index * self.size : (index + 1) * self.size]
        return tuple(array[order] for array in self.arrays)


def as_tf_data(x, y):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).batch(16)


DATA_SETS = {
    "PyDataset": Shuffled,
    "generator": lambda x, y: ((x[i : i + 16], y[i : i + 16]) for i in range(0, len(x), 16)),
    "with weights": lambda x, y: iter([(x, y, np.ones(len(x)))]),
    "lists": lambda x, y: iter([[x, y]]),
}
if keras.config.backend() == "tensorflow":
    DATA_SETS["tf.data"] = as_tf_data


@pytest.mark.smoke
@pytest.mark.parametrize("kind", DATA_SETS)
def test_a_data_set_is_as_good_as_arrays(kind):
    model, make = make_model(transition=T, trainable=False), DATA_SETS[kind]
    assert noisy_nll(model, make(X, LABELS)) == pytest.approx(noisy_nll(model, X, LABELS), rel=1e-5)
    found, expected = confusion_matrices(model, make(X, LABELS)), confusion_matrices(model, X, LABELS)
    np.testing.assert_allclose(found.noisy, expected.noisy, rtol=1e-5)


PLAIN = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(4)], name="plain")
test_errors_say_what_is_wrong = refusals([
    (lambda: confusion_matrices(keras.Model(PLAIN.inputs, PLAIN.outputs * 2), X, LABELS), "must have one output: pass"),
    (lambda: noisy_nll(make_model(), Batches(X, LABELS), LABELS),
     "`y` must be labels for arrays, and None for a data set, which has its own labels. Received: y=labels, x a Batch"),
    (lambda: confusion_matrices(make_model(), X), "`labels` must be labels for arrays"),
    (lambda: noisy_nll(make_model(), iter([X])), "pairs of inputs and labels, in batches. Received: a data set withou"),
    (lambda: noisy_nll(make_model(), X.tolist(), LABELS), "use np.asarray for lists. Received: a list of float"),
    (lambda: noisy_nll(make_model(), X, LABELS, 0), "`batch_size` must be an integer at least 1. Received: "),
    (lambda: confusion_matrices(make_model(), X, LABELS, -1), "at least 1. Received: batch_size=-1"),
    (lambda: noisy_nll(make_model(), iter([])), "`x` must have at least one example. Received: none"),
    (lambda: confusion_matrices(make_model(), X, LABELS % 3), "an example of every class. Received: none of class 3"),
    (lambda: confusion_matrices(make_model(), X, LABELS + 1), "`labels` must be in [0, 4). Received: 4 at [3]"),
    (lambda: confusion_matrices(make_model(), X, LABELS[:8]), "an entry for each of the 60 examples. Received: 8"),
    (lambda: confusion_matrices(PLAIN, X, LABELS), "in its only NoiseTransition layer. Received: model='plain' with 0"),
    (lambda: noisy_nll(make_model(), X, LABELS[:8]), "`y` must have an entry for each of the 60 examples. Received: 8"),
])  # fmt: skip
