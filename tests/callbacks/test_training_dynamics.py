"""The record of training examples, against a record computed by hand."""

import keras
import numpy as np
import pytest
from scipy import special

from keras_het.callbacks import TrainingDynamics, training_record
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from tests.checks import refusals
from tests.common import compiled, refuses, sparse_crossentropy

pytestmark = pytest.mark.once

UNITS, EXAMPLES = 3, 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, 5)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
FLIPS = [[0.6, 0.4, 0.0], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]]


def model_of(kind="log-probabilities"):
    keras.utils.set_random_seed(0)
    activation = {"logits": None, "probabilities": "softmax"}.get(kind, "log_softmax")
    dense, head = keras.layers.Dense(UNITS, activation, name="last"), HeteroscedasticDense(UNITS, 1, seed=0)
    noisy = [NoiseTransition(UNITS, transition=FLIPS, trainable=False)] if kind == "noisy" else []
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, "relu"), head if kind == "head" else dense, *noisy]
    )
    for weight in model.trainable_weights:  # each backend draws its own, and some of them learn too little
        weight.assign(np.random.default_rng(1).normal(scale=0.2, size=weight.shape))
    return compiled(model, keras.optimizers.Adam(0.1), sparse_crossentropy(from_logits=kind != "probabilities"))


class ByHand(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logits = []

    def on_epoch_end(self, epoch, logs=None):
        first, last = self.model.layers[0].get_weights(), self.model.get_layer("last").get_weights()
        self.logits.append(np.maximum(X.astype("float64") @ first[0] + first[1], 0.0) @ last[0] + last[1])


def expected(logits):
    own = logits[:, np.arange(EXAMPLES), LABELS]
    others = np.where(np.eye(UNITS, dtype=bool)[LABELS], -np.inf, logits).max(axis=-1)
    return own - others, special.logsumexp(logits, axis=-1) - own


def fit(model, *callbacks, **arguments):
    arguments = {"epochs": 5, "batch_size": 8, "shuffle": False, "verbose": 0} | arguments
    return model.fit(X, LABELS, callbacks=list(callbacks), **arguments)


@pytest.mark.parametrize("kind", ["logits", "probabilities", "log-probabilities", "noisy"])
def test_the_record_is_that_by_hand(kind):
    dynamics, by_hand = TrainingDynamics(X, LABELS, batch_size=16), ByHand()
    fit(model_of(kind), dynamics, by_hand)
    margins, losses = expected(logits := np.array(by_hand.logits))
    weights = losses.mean(axis=1)
    assert weights.max() > 1.2 * weights.min()
    means = [np.average(each, axis=0, weights=weights) for each in (margins, special.softmax(logits, axis=-1))]
    np.testing.assert_allclose(dynamics.mean_margin, means[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dynamics.mean_probabilities, means[1], atol=1e-5)
    np.testing.assert_allclose(dynamics.margins, margins, rtol=1e-3, atol=1e-3)
    assert dynamics.epochs == 5
    assert dynamics.margins.dtype == "float16"


@pytest.mark.parametrize("kind", [pytest.param("noisy", marks=pytest.mark.smoke), "head"])
def test_one_epoch_on_every_backend(kind):
    dynamics = TrainingDynamics(X, LABELS, history=False)
    fit(model := model_of(kind), dynamics, epochs=1)
    layers = model.layers[:-1] if kind == "noisy" else model.layers
    log_p = keras.ops.convert_to_numpy(keras.Sequential(layers)(X)).astype("float64")
    others = np.where(np.eye(UNITS, dtype=bool)[LABELS], -np.inf, log_p).max(axis=-1)
    np.testing.assert_allclose(dynamics.mean_margin, log_p[np.arange(EXAMPLES), LABELS] - others, rtol=1e-4, atol=1e-5)


def test_margins_are_far_from_rounding_and_within_float16():
    log_p = np.array([[-200.0, 0.0, -300.0], [-1e6, 0.0, -3e6], [0.0, -np.inf, -np.inf]], "float32")
    margins, losses = training_record.margins_and_losses(log_p, np.array([0, 0, 1]))
    np.testing.assert_array_equal(margins, [-200.0, -65504.0, -65504.0])
    np.testing.assert_array_equal(losses, [200.0, 65504.0, 65504.0])
    assert np.isinf(log_p[2, 1])  # the argument is not changed


@pytest.mark.parametrize("y", [np.eye(UNITS)[LABELS], LABELS[:, None], LABELS.astype("float32"), LABELS.tolist()])
def test_labels_of_other_forms_are_the_same(y):
    np.testing.assert_array_equal(TrainingDynamics(X, y).labels, LABELS)


@pytest.mark.smoke
def test_a_later_fit_goes_on_or_starts_anew():
    dynamics, whole, model = TrainingDynamics(X, LABELS), TrainingDynamics(X, LABELS), model_of()
    fit(model, dynamics, epochs=2)
    fit(model, dynamics, initial_epoch=2)
    fit(model_of(), whole)
    for name in ("mean_margin", "mean_probabilities", "margins", "epochs"):
        np.testing.assert_array_equal(getattr(dynamics, name), getattr(whole, name))
    fit(model, dynamics, epochs=1)
    assert dynamics.epochs == 1
    fit(model, dynamics, initial_epoch=7, epochs=9)
    assert (dynamics.epochs, dynamics.record.first) == (2, 7)


def test_without_history_the_sums_are_the_same_and_the_rest_is_refused():
    short, full = TrainingDynamics(X, LABELS, history=False), TrainingDynamics(X, LABELS)
    fit(model_of(), short, full)
    np.testing.assert_array_equal(short.mean_margin, full.mean_margin)
    with refuses(r"`history` must be True for the values of every epoch\. Received: history=False"):
        short.margins  # noqa: B018


test_errors_say_what_is_wrong = refusals([
    (lambda: TrainingDynamics(iter([]), LABELS),
     "`x` must be arrays, so that every example has an index. Received: a list_iterator"),
    (lambda: TrainingDynamics(X[:0], LABELS[:0]), "`x` must have at least one example. Received: none"),
    (lambda: TrainingDynamics(X, LABELS[:3]), "`y` must have an entry for each of the 40 examples. Received: 3"),
    (lambda: TrainingDynamics(X[:3], ["b", "a", "b"]),
     ("`y` must be integers of shape (N,): number names in the order of the model's classes, "
      "[class_names.index(label) for label in y]. Received: shape (3,), dtype <U1")),
    (lambda: TrainingDynamics(X, np.full((EXAMPLES, 3), 0.3)),
     "`y` must name one class for each example. Received: vectors that are not one-hot"),
    (lambda: TrainingDynamics(X, LABELS, history=1), "`history` must be True or False. Received: history=1"),
    (lambda: TrainingDynamics(X, LABELS, batch_size=0),
     "`batch_size` must be an integer at least 1. Received: batch_size=0"),
    (lambda: TrainingDynamics(X, LABELS).mean_margin,
     "TrainingDynamics must record an epoch first: pass it to `fit`. Received: no epoch"),
    (lambda: fit(model_of(), TrainingDynamics(X, LABELS + 1)), "`y` must be in [0, 3). Received: 3 at [4]"),
], whole=True)  # fmt: skip


def test_a_model_of_labels_that_are_not_exclusive_is_refused():
    model = keras.Sequential([keras.Input((5,)), HeteroscedasticDense(3, 1, link="sigmoid")], name="several")
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    rule = "must predict exclusive classes, whose probabilities sum to 1"
    with refuses(f"`model` {rule}. Received: model='several', which returns logits of each label"):
        model.fit(X, np.eye(3)[LABELS], verbose=0, callbacks=[TrainingDynamics(X, LABELS)])
