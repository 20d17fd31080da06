"""Mistakes that were once silent, each with the words that it gets now.

What each of them computes is tested beside its own code.
"""

import keras
import numpy as np
import pandas
import pytest
import scipy.sparse

import keras_het
from keras_het import callbacks, explain, labels, layers, losses, models
from keras_het.labels import diagnose, find_issues, symmetric
from keras_het.labels.estimation import estimate_by_confident_joint
from keras_het.labels.report.findings import collect
from keras_het.labels.synthetic import look_alike_transitions
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


def rematerialised():
    with keras.RematScope(mode="full"):
        layers.HeteroscedasticDense(3)(np.zeros((2, 4), "float32"), training=True)


def fit_distribution(head, loss):
    inputs = keras.Input((FEATURES,))
    model = models.DistributionModel(inputs, head(inputs))
    model.compile("sgd", loss)
    model.fit(X, LABELS[:, None] % 2, batch_size=len(X), verbose=0)


def early_stop_by_val_loss():
    """T moves away from labels that are right, so that the noisy `val_loss` grows."""
    model = model_with_flips(keras.layers.Dense(UNITS, "log_softmax"), regularizer=keras.regularizers.L2(1.0))
    model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    monitor = callbacks.TransitionMonitor()
    monitor.set_model(model)
    monitor.on_train_begin()
    model.layers[-1].kernel.assign(symmetric(UNITS, 0.3))
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
        lambda: check(losses.SmoothedCrossentropy(from_logits=True), [keras.metrics.AUC()]),
        "`metrics` must take log-probabilities: keras.metrics.AUC(",
    ),
    "a crossentropy as a metric": (
        lambda: check(losses.SmoothedCrossentropy(from_logits=True), [keras.metrics.SparseCategoricalCrossentropy()]),
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
            losses.SmoothedCrossentropy(from_logits=True),
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
    "a regression by the squared error": (
        lambda: fit_distribution(layers.HeteroscedasticNormal(1), "mse"),
        "`loss` must take distributions: keras_het.losses.MultivariateNormalNLL(), for the model ",
    ),
    "one label of each for five": (
        lambda: fit_distribution(layers.JointHeteroscedasticDense(5, 2), losses.JointMultiLabelCrossentropy(4)),
        f"`y` must have shape (N, 5), 0 or 1 for each class. Received: shape ({len(X)}, 1)",
    ),
    "one label of each for five, without a model of distributions": (
        lambda: losses.JointMultiLabelCrossentropy(4)(LABELS[:, None] % 2, np.ones((len(X), 21))),
        "`y_true` must have shape (..., K), with K the units of the head",
    ),
    "a metric of the tensor of a distribution": (
        lambda: check(losses.MultivariateNormalNLL(), ["mae"], layers.HeteroscedasticNormal(1, name="head")),
        "`metrics` must be those of a keras_het.models.DistributionModel, for the head 'head' returns a distribution",
    ),
    "a head that is run twice": (rematerialised, "The head must not be rematerialised"),
}
CLASSES = np.arange(30) % 3
P = 0.85 * np.eye(3)[CLASSES] + 0.05
POINTS = np.eye(3, dtype="float32")[CLASSES] + 1.0
BLANK = "at [1], no label: leave such examples out (keep those of y != -1)"


def plain():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])


def untrained():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax", kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    return model


def choose(y=CLASSES, x=POINTS, **arguments):
    given = {"methods": [], "epochs": 1, "folds": 2, "verbose": 0, **arguments}
    return labels.choose(lambda: compiled(), x, y, **given)


def clean(y=CLASSES, x=POINTS, **arguments):
    return labels.clean(lambda: compiled(), x, y, **{"probabilities": P, "epochs": 1, "verbose": 0, **arguments})


def classifier(y, x=POINTS, **arguments):
    return labels.Classifier(epochs=1).fit(x, y, **arguments)


def changed(value, place=1):
    """The labels, one of which is another."""
    return np.where(np.arange(30) == place, value, CLASSES)


class Weighted(keras.utils.PyDataset):
    """Three batches with weights."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        part = slice(10 * index, 10 * index + 10)
        return POINTS[part], CLASSES[part], np.full(10, 2.0)


SPARSE = scipy.sparse.csr_matrix(POINTS)
DENSE = "must be dense: "
SILENT |= {
    "a -1 among labels for scikit-learn": (lambda: classifier(changed(-1)), BLANK),
    "a -1 in choose": (lambda: choose(changed(-1)), "`y` must have a label for each example"),
    "a -1 in clean": (lambda: clean(changed(-1)), BLANK),
    "labels from 1 on": (lambda: choose(CLASSES + 1), "`y` must begin with 0 (y - 1, for labels that begin with 1;"),
    "an id": (lambda: choose(changed(123456)), "is it an id? Make names texts. Received: 123456 at [1]"),
    "an id beside probabilities": (
        lambda: clean(changed(123456)),
        "is it an id? Make names texts. Received: 123456 at [1]",
    ),
    "weights of two data sets": (
        lambda: clean(sample_weight=np.ones(60)),
        "`sample_weight` must have shape (30,). Received: shape (60,)",
    ),
    "negative weights": (lambda: clean(sample_weight=-np.ones(30)), "must be finite and not negative. Received: -1.0"),
    "weights of nan": (
        lambda: clean(sample_weight=np.full(30, np.nan)),
        "finite and not negative. Received: nan",
    ),
    "weights twice": (lambda: clean(None, Weighted(), sample_weight=np.ones(30)), "must be None for a data set with w"),
    "weights where they do not count": (
        lambda: models.scale_temperature(compiled(), Weighted()),
        "`x` must be (x, y), for weights do not count. Received: a data set with weights",
    ),
    "weights for a callback": (
        lambda: callbacks.TransitionMonitor(validation_data=(POINTS, CLASSES, CLASSES)),
        "`validation_data` must be (x, y), for weights do not count. Received: three parts",
    ),
    "a squared error in choose": (
        lambda: labels.choose(lambda: compiled("mse"), POINTS, CLASSES, epochs=1, verbose=0),
        'a loss of integers: compile(loss="sparse_categorical_crossentropy"). Received: loss=',
    ),
    "a list of models that learned nothing": (
        lambda: labels.choose([untrained], POINTS, CLASSES, epochs=1, verbose=0),
        "The model must predict held-out labels better than the largest class does",
    ),
    "a sparse matrix in choose": (lambda: choose(x=SPARSE), "`x` must be dense: x.toarray(). Received: a csr_matrix"),
    "a sparse matrix in clean": (lambda: clean(x=SPARSE), DENSE),
    "a sparse matrix of labels": (lambda: choose(scipy.sparse.csr_matrix(P)), "`y` must be dense: y.toarray()"),
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


def frame(rows, values):
    """A frame or a series with the rows in another order than the index says."""
    return (pandas.DataFrame if np.ndim(values) == 2 else pandas.Series)(values, index=rows)


OTHER_ORDER = {
    "calibration": lambda p, y: explain.calibration(p, y),
    "diagnose": diagnose,
    "find_issues": lambda p, y: find_issues(p, y),
    "a model's issues": lambda p, y: find_issues(compiled(), y, p),
    "find_target_issues": lambda p, y: explain.find_target_issues(p, y),
    "estimate_by_confident_joint": lambda p, y: estimate_by_confident_joint(y, p),
    "look_alike_transitions": lambda p, y: look_alike_transitions(p, y, 0.1),
    "report": lambda p, y: collect(plain(), p, y),
    "temperature": lambda p, y: models.scale_temperature(compiled(), p, y),
    "TrainingDynamics": lambda p, y: callbacks.TrainingDynamics(p, y),
    "choose": lambda p, y: choose(y, p),
    "clean": lambda p, y: clean(y, p),
    "probabilities": lambda p, y: clean(y, probabilities=p),
    "weights": lambda p, y: clean(x=p, sample_weight=y),
    "Classifier": lambda p, y: classifier(y, p),
    "weights of a Classifier": lambda p, y: classifier(CLASSES, p, sample_weight=y),
}


@pytest.mark.parametrize("call", OTHER_ORDER)
def test_rows_of_pandas_in_another_order_are_not_paired_by_place(call):
    rows = np.arange(30)
    with pytest.raises(ValueError, match=r"`[\w\[\]]+` must have the index of `[\w\[\]]+`.*\. Received: \d+ at"):
        OTHER_ORDER[call](frame(rows, P), frame(rows[::-1], CLASSES[::-1]))
