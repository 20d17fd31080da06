"""Mistakes that were once silent, each with the words that it gets now.

What each of them computes is tested beside its own code.
"""

import keras
import numpy as np
import pytest

import keras_het
from keras_het import callbacks, label_noise, layers, losses, models
from tests.layers.heads import FEATURES, LABELS, UNITS, X

pytestmark = pytest.mark.once


def compiled(loss="sparse_categorical_crossentropy", metrics=None, head=None):
    model = keras.Sequential(
        [keras.Input((FEATURES,)), head or layers.HeteroscedasticDense(UNITS, seed=0, name="head")]
    )
    model.compile("sgd", loss, metrics=metrics)
    return model


def check(*arguments, **named):
    keras_het.check(compiled(*arguments, **named))


def model_with_flips(*before, behind=(), **arguments):
    flips = layers.NoiseTransition(UNITS, name="flips", **arguments)
    model = keras.Sequential([keras.Input((FEATURES,)), *before, flips, *behind])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def fitting(*layers):
    """A model with a loss that fits, of layers behind a Dense layer of as many units as there are classes."""
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(UNITS), *layers])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Subclassed(keras.Model):
    """A model without a graph, whose layer of flips gets logits."""

    def __init__(self):
        super().__init__()
        self.logits, self.flips = keras.layers.Dense(UNITS), layers.NoiseTransition(UNITS)

    def call(self, x, training=None):
        return self.flips(self.logits(x), training=training)


def first_loss_of_logits_without_a_graph():
    model = Subclassed()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    loss = model.fit(X, LABELS, batch_size=len(X), verbose=0).history["loss"][0]
    raise ValueError(f"the loss is {loss}")


def stored_transition(rows):
    layer = layers.NoiseTransition(UNITS)
    layer.build((None, UNITS))
    layer.load_own_variables({"transition": np.asarray(rows, "float32")})


def other_width():
    layer = layers.NoiseTransition(UNITS)
    layer.build((None, UNITS))
    layer(np.log(np.full((1, UNITS + 1), 1 / (UNITS + 1), "float32")))


def weights_of_two_layers():
    maps = {"loc_layer": 3, "diag_layer": 3, "scale_layer": 6}
    weights = {
        f"{name}/{kind}:0": np.ones((8, width)[kind == "bias" :])
        for name, width in maps.items()
        for kind in ("kernel", "bias")
    }
    models.from_edward2({**weights, "other/loc_layer/kernel:0": np.zeros((8, 3))})


def rematerialised():
    with keras.RematScope(mode="full"):
        layers.HeteroscedasticDense(3)(np.zeros((2, 4), "float32"), training=True)


def early_stop_by_val_loss():
    """T moves away from labels that are right, so that the noisy `val_loss` grows."""
    model = model_with_flips(keras.layers.Dense(UNITS, "log_softmax"), regularizer=keras.regularizers.L2(1.0))
    model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    monitor = callbacks.TransitionMonitor()
    monitor.set_model(model)
    monitor.on_train_begin()
    model.layers[-1].kernel.assign(label_noise.symmetric(UNITS, 0.3))
    monitor.on_epoch_end(0, {"loss": 1.0, "val_loss": 1.0})
    monitor.on_epoch_end(1, {"loss": 0.9, "val_loss": 1.1})


SILENT = {
    "a vote of nan": (
        lambda: losses.AnnotatorsLoss()([[0.0, float("nan")]], [[[0.0, 0.0], [0.0, 0.0]]]),
        "`y_true` must be in [0, 2), or -1 where an annotator gave no label; keras_het.check(model, x, y) says which",
    ),
    "a loss given as a string": (
        check,
        "`loss` must take log-probabilities: keras.losses.SparseCategoricalCrossentropy(from_logits=True)",
    ),
    "label vectors": (
        lambda: check("categorical_crossentropy"),
        "keras.losses.CategoricalCrossentropy(from_logits=True",
    ),
    "kl_divergence": (lambda: check("kl_divergence"), "`loss` must take log-probabilities, as keras.losses."),
    "AUC": (
        lambda: check(losses.BootstrappedCrossentropy(from_logits=True), [keras.metrics.AUC()]),
        "`metrics` must take log-probabilities: keras.metrics.AUC(",
    ),
    "a crossentropy as a metric": (
        lambda: check(
            losses.BootstrappedCrossentropy(from_logits=True), [keras.metrics.SparseCategoricalCrossentropy()]
        ),
        "keras.metrics.SparseCategoricalCrossentropy(",
    ),
    "a threshold of probabilities": (
        lambda: check(
            keras.losses.BinaryCrossentropy(from_logits=True),
            ["binary_accuracy"],
            layers.HeteroscedasticDense(3, link="sigmoid", seed=0),
        ),
        "`metrics` must take logits: keras.metrics.BinaryAccuracy(",
    ),
    "from_logits behind a softmax": (
        lambda: check(
            losses.BootstrappedCrossentropy(from_logits=True),
            head=keras.Sequential([layers.HeteroscedasticDense(3, seed=0), keras.layers.Softmax()]),
        ),
        "`loss` must take probabilities",
    ),
    "a callback and a loss given as a string": (
        lambda: fit_with_monitor("sparse_categorical_crossentropy"),
        "`loss` must take log-probabilities",
    ),
    "probabilities into a layer of flips": (
        lambda: model_with_flips(keras.layers.Dense(UNITS, "softmax")),
        "must be log-probabilities",
    ),
    "logits into a layer of flips": (lambda: model_with_flips(keras.layers.Dense(UNITS)), "must be log-probabilities"),
    "a softmax before a head": (
        lambda: keras_het.check(
            fitting(keras.layers.Dense(UNITS, "softmax", name="old"), layers.HeteroscedasticDense(UNITS, name="head"))
        ),
        "The layer 'old' before the head 'head' is a softmax of as many classes",
    ),
    "a softmax layer before a head": (
        lambda: keras_het.check(fitting(keras.layers.Softmax(name="old"), layers.HeteroscedasticDense(UNITS))),
        "The layer 'old' before",
    ),
    "an activation as the second argument": (
        lambda: layers.HeteroscedasticDense(UNITS, "softmax"),
        "a head has no activation",
    ),
    "flips before a head": (
        lambda: model_with_flips(
            keras.layers.Dense(UNITS, "relu"), behind=[layers.HeteroscedasticDense(UNITS, seed=0)]
        ),
        "must be log-probabilities",
    ),
    "flips of log-probabilities before a head": (
        lambda: keras_het.check(
            model_with_flips(
                keras.layers.Dense(UNITS, "log_softmax"),
                behind=[layers.HeteroscedasticDense(UNITS, seed=0, name="head")],
            )
        ),
        "The layer 'flips' must be the last",
    ),
    "logits into flips, without a graph": (first_loss_of_logits_without_a_graph, "the loss is nan"),
    "flips in half precision": (
        lambda: layers.NoiseTransition(3, dtype="float16"),
        '`dtype` must be "float32" or "float64"',
    ),
    "a stored T of nan": (lambda: stored_transition(np.full((UNITS, UNITS), np.nan)), "must be finite"),
    "a stored T that is negative": (
        lambda: stored_transition(2 * np.eye(UNITS) - 1 / UNITS),
        "`transition` must not be negative",
    ),
    "a stored T that is not normalised": (
        lambda: stored_transition(2 * np.eye(UNITS)),
        "`transition` must have rows that sum to one",
    ),
    "flips of another width": (other_width, f"expected axis -1 of input shape to have value {UNITS}"),
    "val_loss under flips": (early_stop_by_val_loss, 'EarlyStopping("val_noisy_nll", mode="min")'),
    "the weights of two layers": (weights_of_two_layers, "`weights` must be those of one layer"),
    "a head that is run twice": (rematerialised, "The head must not be rematerialised"),
}


def fit_with_monitor(loss):
    model = model_with_flips(keras.layers.Dense(UNITS, "log_softmax"))
    model.compile("sgd", loss)
    model.fit(X, LABELS, verbose=0, callbacks=[callbacks.TransitionMonitor()])


@pytest.mark.parametrize("mistake", SILENT)
def test_what_was_silent_is_loud(mistake):
    call, words = SILENT[mistake]
    with pytest.raises((ValueError, UserWarning)) as error:  # warnings are errors here
        call()
    assert words in str(error.value)


def test_what_is_no_softmax_of_as_many_classes_may_stand_before_a_head():
    """Warnings are errors here."""
    head = layers.HeteroscedasticDense
    for before in ([], [keras.layers.ReLU()], [keras.layers.Dense(UNITS + 1, "softmax")], [keras.layers.Dense(UNITS)]):
        keras_het.check(fitting(*before, head(UNITS)))
