"""Losses and metrics that do not take what a head returns are named, with those that do; nothing else is."""

import ast
import pathlib
from functools import partial

import keras
import numpy as np
import pytest
from keras import layers, losses, metrics

import keras_het
from keras_het.callbacks import ReleaseTransition, TransitionMonitor
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.losses import BootstrappedCrossentropy, ForwardCorrectedCrossentropy
from tests.layers.heads import HEADS, UNITS, X, make_head, make_model, targets
from tests.models.small_models import MODELS

pytestmark = pytest.mark.once

LABELS = np.arange(8) % UNITS
VECTORS = np.eye(UNITS, dtype="float32")[LABELS]
SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)
SPARSE_NAME, VECTOR_NAME = "sparse_categorical_crossentropy", "categorical_crossentropy"
SOFTMAX_MEND = "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
VECTOR_MEND = "keras.losses.CategoricalCrossentropy(from_logits=True)"
SIGMOID_MEND = "keras.losses.BinaryCrossentropy(from_logits=True)"


def head(link, units=3, name="head"):
    return HeteroscedasticDense(units, 1, link=link, name=name)


def make(link="softmax", *behind, units=3):
    return keras.Sequential([keras.Input((6,)), head(link, units), *behind])


def sigmoid():
    return make("sigmoid")


def two_heads(as_dict=False):
    inputs = keras.Input((6,))
    a, b = head("softmax", name="a")(inputs), head("sigmoid", name="b")(inputs)
    return keras.Model(inputs, {"first": a, "second": b} if as_dict else [a, b])


def one_head_of_two():
    inputs = keras.Input((6,))
    return keras.Model(inputs, [head("softmax", name="a")(inputs), layers.Dense(2, "softmax", name="b")(inputs)])


def flips(*before):
    return keras.Sequential([keras.Input((6,)), *before, NoiseTransition(3, name="flips")])


class Subclassed(keras.Model):
    """A head, with what is given behind it."""

    def __init__(self, link="softmax", behind=None, inputs=None):
        super().__init__()
        self.head, self.behind, self.names = head(link), behind, inputs

    def call(self, inputs):
        x = self.head(inputs if self.names is None else inputs[self.names])
        return x if self.behind is None else self.behind(x)


def steps():
    inputs = keras.Input((2, 6))
    return keras.Model(inputs, layers.TimeDistributed(head("softmax"))(inputs))


def moved(move):
    inputs = keras.Input((6,))
    return keras.Model(inputs, move(head("softmax")(inputs)))


def called(model, x=X):
    model(x)
    return model


def wrong(make, argument, value, *parts):
    return make, {argument: value}, parts


def loss(make, value, *parts):
    return wrong(make, "loss", value, *parts)


def metric(make, value, *parts):
    return wrong(make, "metrics", value, *parts)


WRONG = [
    loss(make, SPARSE_NAME, SOFTMAX_MEND, "Received: loss='sparse_categorical_crossentropy'"),
    loss(make, VECTOR_NAME, VECTOR_MEND),
    loss(make, losses.SparseCategoricalCrossentropy, SOFTMAX_MEND, "loss=keras.losses.SparseCategoricalCrossentropy"),
    loss(make, losses.SparseCategoricalCrossentropy(ignore_class=0), "Crossentropy(from_logits=True, ignore_class=0)"),
    loss(make, losses.categorical_crossentropy, VECTOR_MEND),
    loss(make, losses.CategoricalCrossentropy(label_smoothing=0.1), "(from_logits=True, label_smoothing=0.1)"),
    loss(make, "categorical_focal_crossentropy", "keras.losses.CategoricalFocalCrossentropy(from_logits=True)"),
    loss(
        make, partial(losses.categorical_crossentropy, label_smoothing=0.2), "(from_logits=True, label_smoothing=0.2)"
    ),
    loss(make, {"class_name": "CategoricalCrossentropy", "config": {}}, VECTOR_MEND),
    loss(make, [losses.SparseCategoricalCrossentropy()], SOFTMAX_MEND),
    loss(make, {"head": SPARSE_NAME}, SOFTMAX_MEND),
    loss(make, "crossentropy", SOFTMAX_MEND),
    loss(make, "kl_divergence", SOFTMAX_MEND, "or put keras.layers.Softmax() behind it"),
    loss(make, losses.KLDivergence(), SOFTMAX_MEND, "Received: loss=keras.losses.KLDivergence()"),
    loss(make, "poisson", SOFTMAX_MEND),
    loss(make, "mse", SOFTMAX_MEND),
    loss(make, "hinge", SOFTMAX_MEND),
    loss(make, losses.Dice(), SOFTMAX_MEND),
    loss(make, losses.CategoricalGeneralizedCrossEntropy(q=0.7), "GeneralizedCrossEntropy(q=0.7)"),
    loss(make, "binary_crossentropy", SOFTMAX_MEND),
    loss(make, losses.BinaryCrossentropy(from_logits=True), SOFTMAX_MEND, "loss=" + SIGMOID_MEND),
    loss(make, BootstrappedCrossentropy(), "keras_het.losses.BootstrappedCrossentropy(from_logits=True, beta=0.95)"),
    loss(make, ForwardCorrectedCrossentropy(np.eye(3)), "ForwardCorrectedCrossentropy(from_logits=True, transition="),
    loss(sigmoid, "binary_crossentropy", SIGMOID_MEND, "must take logits", "for the head 'head' returns them"),
    loss(sigmoid, losses.BinaryFocalCrossentropy(), "keras.losses.BinaryFocalCrossentropy(from_logits=True)"),
    loss(sigmoid, SPARSE, SIGMOID_MEND),
    loss(lambda: make("sigmoid", units=1), "crossentropy", SIGMOID_MEND),
    metric(make, [metrics.AUC()], "keras.metrics.AUC(from_logits=True)"),
    metric(make, ["accuracy", SPARSE_NAME], "metrics.SparseCategoricalCrossentropy(from_logits=True)"),
    metric(make, [metrics.Precision()], "or put keras.layers.Softmax() behind it, for a metric of probabilities"),
    metric(make, {"head": [metrics.F1Score()]}, "`metrics` must take log-probabilities"),
    metric(make, [metrics.BinaryAccuracy()], "keras.metrics.BinaryAccuracy(threshold=-0.693"),
    wrong(
        make,
        "weighted_metrics",
        [metrics.PrecisionAtRecall(0.9)],
        "`weighted_metrics` must",
        "PrecisionAtRecall(recall=0.9)",
    ),
    metric(sigmoid, ["binary_accuracy"], "keras.metrics.BinaryAccuracy(threshold=0.0)"),
    metric(sigmoid, [metrics.binary_accuracy], "Received: metrics=keras.metrics.binary_accuracy"),
    metric(sigmoid, [metrics.Recall()], "keras.metrics.Recall(thresholds=0.0)"),
    metric(sigmoid, [metrics.Recall(thresholds=0.3)], "put keras.layers.Activation('sigmoid') behind it"),
    metric(sigmoid, [metrics.F1Score(threshold=0.5)], "Received: metrics=keras.metrics.F1Score(threshold=0.5)"),
    metric(sigmoid, ["mse"], "Received: metrics='mse'"),
    metric(lambda: make("sigmoid", units=1), ["accuracy"], "keras.metrics.BinaryAccuracy(threshold=0.0)"),
    loss(lambda: make("softmax", layers.Softmax()), SPARSE, "keras.losses.SparseCategoricalCrossentropy(),"),
    loss(lambda: make("sigmoid", layers.Activation("sigmoid")), VECTOR_NAME, "keras.losses.BinaryCrossentropy()"),
    loss(lambda: make("softmax", layers.Reshape((3, 1, 1)), layers.Flatten()), SPARSE_NAME, SOFTMAX_MEND),
    loss(steps, SPARSE_NAME, SOFTMAX_MEND, "'head'"),
    loss(lambda: moved(lambda x: keras.ops.reshape(x, (-1, 3, 1))[..., 0]), VECTOR_NAME, "(from_logits=True)"),
    loss(lambda: moved(lambda x: keras.ops.cast(x, "float16")), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: moved(lambda x: keras.ops.squeeze(keras.ops.expand_dims(x, 1), 1)), "kl_divergence", SOFTMAX_MEND),
    loss(make, partial(losses.sparse_categorical_crossentropy), SOFTMAX_MEND, ".sparse_categorical_crossentropy)"),
    loss(make, keras.ops.sparse_categorical_crossentropy, SOFTMAX_MEND, "Received: loss=" + SPARSE_NAME),
    loss(sigmoid, keras.ops.binary_crossentropy, SIGMOID_MEND),
    metric(
        make,
        [metrics.MeanMetricWrapper(metrics.categorical_crossentropy, name="ce", label_smoothing=0.1)],
        "keras.metrics.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)",
    ),
    loss(two_heads, [SPARSE_NAME, losses.BinaryCrossentropy(from_logits=True)], SOFTMAX_MEND, "'a'"),
    loss(two_heads, {"a": SPARSE, "b": "binary_crossentropy"}, SIGMOID_MEND, "'b'"),
    loss(two_heads, "binary_crossentropy", SOFTMAX_MEND, "'a'"),
    loss(lambda: two_heads(as_dict=True), {"first": SPARSE, "second": "bce"}, SIGMOID_MEND, "'b'"),
    metric(two_heads, {"b": [metrics.Precision()]}, "keras.metrics.Precision(thresholds=0.0)"),
    metric(two_heads, [["accuracy"], [metrics.AUC()]], "keras.metrics.AUC(from_logits=True)", "'b'"),
    loss(one_head_of_two, {"a": VECTOR_NAME, "b": VECTOR_NAME}, "'a'"),
    loss(lambda: flips(head("softmax")), SPARSE_NAME, SOFTMAX_MEND, "for the layer 'flips' returns them"),
    loss(lambda: flips(layers.Dense(3, "log_softmax")), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: keras.Sequential([layers.Dense(4), head("softmax")]), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: keras.Sequential([keras.Sequential([layers.Dense(4), head("softmax")])]), VECTOR_NAME, "'head'"),
    loss(lambda: called(Subclassed()), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: called(Subclassed(inputs="x"), {"x": X}), SPARSE_NAME, SOFTMAX_MEND),
    loss(
        lambda: called(Subclassed("sigmoid", layers.Activation("sigmoid"))), SPARSE, "keras.losses.BinaryCrossentropy()"
    ),
]


@pytest.mark.parametrize(("make", "arguments", "parts"), WRONG)
def test_a_wrong_compile_is_caught_and_the_mend_named(make, arguments, parts):
    model = make()
    model.compile("sgd", **arguments)
    with pytest.raises(ValueError, match=r"^`(loss|metrics|weighted_metrics)` must take .* Received: ") as error:
        keras_het.check(model)
    assert [part for part in parts if part not in str(error.value)] == []


@pytest.mark.parametrize(
    ("model", "arguments", "text"),
    [
        (
            make,
            {"loss": SPARSE_NAME},
            (
                "`loss` must take log-probabilities: keras.losses.SparseCategoricalCrossentropy(from_logits=True), "
                "for the head 'head' returns them. Received: loss='sparse_categorical_crossentropy'"
            ),
        ),
        (
            sigmoid,
            {"metrics": [metrics.F1Score(threshold=0.5)]},
            (
                "`metrics` must take logits, for the head 'head' returns them; "
                "or put keras.layers.Activation('sigmoid') behind it, for a metric of probabilities. "
                "Received: metrics=keras.metrics.F1Score(threshold=0.5)"
            ),
        ),
        (
            lambda: make("softmax", layers.Softmax()),
            {"loss": SPARSE},
            (
                "`loss` must take probabilities: keras.losses.SparseCategoricalCrossentropy(), "
                "for an activation behind the head 'head' makes them. "
                "Received: loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
            ),
        ),
        (
            make,
            {"loss": losses.BinaryCrossentropy(from_logits=True)},
            (
                "`loss` must take log-probabilities, as keras.losses.SparseCategoricalCrossentropy(from_logits=True) "
                "(or CategoricalCrossentropy, for label vectors), for the head 'head' returns them; "
                'or, if an example may have several labels, give the head link="sigmoid". '
                "Received: loss=keras.losses.BinaryCrossentropy(from_logits=True)"
            ),
        ),
        (
            make,
            {"metrics": [metrics.AUC(thresholds=np.array([0.25, 0.5]))]},
            (
                "`metrics` must take log-probabilities: keras.metrics.AUC(from_logits=True, thresholds=[0.25, 0.5]), "
                "for the head 'head' returns them. Received: metrics=keras.metrics.AUC(thresholds=[0.25, 0.5])"
            ),
        ),
        (
            make,
            {"loss": ForwardCorrectedCrossentropy(np.eye(10))},
            (
                "`loss` must take log-probabilities: "
                "keras_het.losses.ForwardCorrectedCrossentropy(from_logits=True, transition=...), "
                "for the head 'head' returns them. "
                "Received: loss=keras_het.losses.ForwardCorrectedCrossentropy(transition=...)"
            ),
        ),
        (
            lambda: make("softmax", layers.Activation("sigmoid")),
            {"loss": "binary_crossentropy"},
            (
                "The activation behind the head 'head' must be keras.layers.Softmax(), or none, "
                "for it returns log-probabilities. Received: 'sigmoid'"
            ),
        ),
        (
            lambda: keras.Sequential([keras.Input((6,)), head("sigmoid"), layers.Activation("exponential")]),
            {"loss": "binary_crossentropy"},
            (
                "The activation behind the head 'head' must be keras.layers.Activation('sigmoid'), or none, "
                "for it returns logits. Received: 'exponential'"
            ),
        ),
        (
            make,
            {"loss": losses.Poisson},
            (
                "`loss` must take log-probabilities, as keras.losses.SparseCategoricalCrossentropy(from_logits=True) "
                "(or CategoricalCrossentropy, for label vectors), for the head 'head' returns them; "
                "or put keras.layers.Softmax() behind it, for a loss of probabilities. "
                "Received: loss=keras.losses.Poisson"
            ),
        ),
    ],
)
def test_errors_word_for_word(model, arguments, text):
    model = model()
    model.compile(**arguments)
    with pytest.raises(ValueError) as error:
        keras_het.check(model)
    assert str(error.value) == text


def test_a_model_that_is_not_compiled_is_told_so():
    with pytest.raises(
        ValueError, match=r"`model` must be compiled: model.compile\(...\). Received: model='plain', which is not"
    ):
        keras_het.check(keras.Sequential([head("softmax")], name="plain"))


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


def binary_crossentropy(y_true, y_pred):
    """Not that of Keras."""
    return keras.ops.mean(y_pred)


RIGHT = [
    (
        make,
        {
            "loss": SPARSE,
            "metrics": ["accuracy", "acc", metrics.SparseTopKCategoricalAccuracy(2), metrics.AUC(from_logits=True)],
        },
    ),
    (make, {"loss": None}),
    (make, {"loss": custom, "metrics": [custom, metrics.Mean()]}),
    (make, {"loss": lambda y_true, y_pred: keras.ops.mean(y_pred)}),
    (make, {"loss": binary_crossentropy}),
    (make, {"loss": Own()}),
    (make, {"loss": "categorical_hinge"}),
    (make, {"loss": partial(custom), "metrics": [metrics.MeanMetricWrapper(custom)]}),
    (make, {"loss": partial(SPARSE)}),
    (make, {"loss": partial(losses.categorical_crossentropy, from_logits=True)}),
    (make, {"loss": {"class_name": "CategoricalCrossentropy", "config": {"from_logits": True}}}),
    (make, {"loss": BootstrappedCrossentropy(from_logits=True), "weighted_metrics": ["sparse_categorical_accuracy"]}),
    (make, {"loss": {"head": SPARSE}, "metrics": [metrics.Precision(top_k=2), metrics.BinaryAccuracy(threshold=-0.7)]}),
    (
        sigmoid,
        {"loss": losses.BinaryCrossentropy(from_logits=True), "metrics": [metrics.BinaryAccuracy(threshold=0.0)]},
    ),
    (sigmoid, {"loss": "hinge", "metrics": [metrics.Precision(thresholds=0), "accuracy", metrics.F1Score()]}),
    (lambda: make("sigmoid", units=1), {"metrics": [metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]}),
    (lambda: make("softmax", layers.Softmax()), {"loss": SPARSE_NAME, "metrics": [metrics.AUC(), metrics.F1Score()]}),
    (lambda: make("softmax", layers.Softmax()), {"loss": "binary_crossentropy"}),
    (lambda: make("softmax", layers.Softmax()), {"loss": "crossentropy", "metrics": ["mse"]}),
    (lambda: make("softmax", layers.Activation("exponential")), {"loss": "kl_divergence"}),
    (lambda: make("softmax", layers.Activation("log_softmax")), {"loss": SPARSE}),
    (
        lambda: make("sigmoid", layers.Activation("sigmoid")),
        {"loss": "binary_crossentropy", "metrics": [metrics.Precision()]},
    ),
    (lambda: make("sigmoid", layers.Softmax()), {"loss": SPARSE_NAME}),  # whatever it is meant to be
    (lambda: make("softmax", layers.Softmax(axis=-2)), {"loss": "mse"}),
    (lambda: make("softmax", layers.Dense(2)), {"loss": "mse"}),
    (lambda: make("softmax", layers.Rescaling(-1.0)), {"loss": "mse"}),
    (lambda: keras.Sequential([keras.Input((6,)), layers.Dense(3, "softmax")]), {"loss": SPARSE_NAME}),
    (lambda: keras.Sequential([keras.Input((6,)), Tempered(3)]), {"loss": SPARSE_NAME}),
    (two_heads, {"loss": [SPARSE, losses.BinaryCrossentropy(from_logits=True)], "metrics": {"a": ["accuracy"]}}),
    (two_heads, {"loss": {"a": SPARSE, "b": None}}),
    (one_head_of_two, {"loss": [SPARSE, VECTOR_NAME], "metrics": [["accuracy"], [metrics.AUC()]]}),
    (lambda: flips(layers.Dense(3, "log_softmax")), {"loss": SPARSE}),
    (lambda: flips(layers.Dense(3, "log_softmax")), {"loss": SPARSE}),
    (Subclassed, {"loss": SPARSE_NAME}),  # not known before it is built
    (lambda: called(Subclassed(behind=keras.ops.softmax)), {"loss": SPARSE_NAME}),
    (lambda: called(Subclassed(behind=lambda x: keras.ops.convert_to_numpy(x) + 1)), {"loss": SPARSE_NAME}),
]


@pytest.mark.parametrize(("make", "arguments"), RIGHT)
def test_what_is_right_or_not_known_is_left_alone(make, arguments):
    model = make()
    model.compile("sgd", **arguments)
    assert keras_het.check(model) is None


def test_no_false_alarm_over_the_heads_and_models_of_this_suite():
    for kind in HEADS:
        keras_het.check(make_model(make_head(kind)))
        keras_het.check(make_model(make_head(kind), layers.Dense(5), metrics=["accuracy"]))
    for make_plain in MODELS.values():
        model = make_plain()
        model.compile("sgd", SPARSE_NAME, metrics=["accuracy", metrics.AUC()])
        keras_het.check(model)
        new = keras_het.heteroscedastic(model, 1)
        new.compile("sgd", SPARSE, metrics=["accuracy"])
        keras_het.check(new)


ROOT = pathlib.Path(keras_het.__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if "```python" in page.read_text()),
]
PROGRAMS = [ROOT / "keras_het" / "commands" / "demo.py", *sorted((ROOT / "guides").glob("*.py")), *PAGES]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_no_false_alarm_over_the_compile_calls_of_demo_guides_and_readme(path):
    blocks = (
        [path.read_text()]
        if path.suffix == ".py"
        else [part.split("```")[0] for part in path.read_text().split("```python\n")[1:]]
    )
    calls = [ast.unparse(node) for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    calls = [call for call in calls if call.startswith("model.compile(")]
    assert calls
    for call in calls:
        model = make()
        # Of the guide to the index of an example.
        with_parameters = keras_het.rivals.DataParametersCrossentropy(8, 3, from_logits=True).attach(model)
        names = {
            "keras": keras,
            "keras_het": keras_het,
            "model": model,
            "learning_rate": 1e-3,
            "optimizer": "adam",
            "loss": with_parameters,
        }
        eval(call, names)
        keras_het.check(model)


@pytest.mark.parametrize("callback", [ReleaseTransition(after=1), TransitionMonitor()])
def test_the_callbacks_check_at_the_start_of_fit(callback):
    model = flips(layers.Dense(3, "log_softmax"))
    model.compile("sgd", SPARSE_NAME)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(ValueError, match="`loss` must take log-probabilities"):
        model.fit(X, LABELS % 3, verbose=0, callbacks=[callback])
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)


def test_a_callback_without_fit_checks_nothing():
    model = flips(layers.Dense(3, "log_softmax"))
    with pytest.raises(ValueError):  # the model is one that `check` refuses
        keras_het.check(model)
    callback = TransitionMonitor()
    callback.set_model(model)
    assert callback.on_train_begin() is None


@pytest.mark.smoke
def test_the_check_changes_nothing_and_a_checked_model_trains():
    model = make_model(make_head("full"))
    before = [weight.numpy() for weight in model.weights]
    keras_het.check(model)
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)
    model.fit(X, targets("softmax"), verbose=0)
