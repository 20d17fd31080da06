"""`check` names losses and metrics that do not fit a model, and others that do, which compute the same value."""

import keras
import numpy as np
import pytest
from keras import layers, losses, metrics

import keras_het
from keras_het.callbacks import ReleaseTransition, TransitionMonitor
from keras_het.criteria.criterion import Criterion, find_rule
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.losses import (
    AnnotatorsLoss,
    ForwardCorrectedCrossentropy,
    GeneralizedCrossentropy,
    SmoothedCrossentropy,
)
from keras_het.reading.ending import endings
from tests.common import Subclassed, assert_same_arrays, compiled, refuses
from tests.layers.heads import UNITS, X, make_head, make_model, targets

pytestmark = pytest.mark.once

LABELS = np.arange(8) % UNITS
VECTORS = np.eye(UNITS, dtype="float32")[LABELS]
SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)
SPARSE_NAME, VECTOR_NAME = "sparse_categorical_crossentropy", "categorical_crossentropy"
SOFTMAX_MEND = "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
VECTOR_MEND = "keras.losses.CategoricalCrossentropy(from_logits=True)"
MISSING = "must accept the labels of 3 annotators, with -1 for missing. Use keras_het."
SIGMOID_MEND = "keras.losses.BinaryCrossentropy(from_logits=True)"


def head(link, units=3, name="head"):
    return HeteroscedasticDense(units, 1, link=link, name=name)


def make(link="softmax", *behind, units=3):
    return keras.Sequential([keras.Input((6,)), head(link, units), *behind])


def probable(link, *behind):
    return keras.Sequential(
        [keras.Input((6,)), HeteroscedasticDense(3, 1, link=link, activation=link, name="head"), *behind]
    )


def sigmoid():
    return make("sigmoid")


def plain(*end, shape=(6,)):
    return lambda: keras.Sequential([keras.Input(shape), layers.Dense(4, "relu"), *end])


def dense(activation=None, units=3, *behind):
    return plain(layers.Dense(units, activation, name="last"), *behind)


def two_heads(as_dict=False):
    inputs = keras.Input((6,))
    a, b = head("softmax", name="a")(inputs), head("sigmoid", name="b")(inputs)
    return keras.Model(inputs, {"first": a, "second": b} if as_dict else [a, b])


def one_head_of_two():
    inputs = keras.Input((6,))
    return keras.Model(inputs, [head("softmax", name="a")(inputs), layers.Dense(2, "softmax", name="b")(inputs)])


def flips(*before, **arguments):
    return keras.Sequential([keras.Input((6,)), *before, NoiseTransition(3, name="flips", **arguments)])


def of_annotators():
    return flips(layers.Dense(3, "log_softmax"), num_annotators=3)


def moved(move):
    inputs = keras.Input((6,))
    return keras.Model(inputs, move(head("softmax")(inputs)))


def refused_symbols(x):
    if keras.utils.is_keras_tensor(x):
        raise TypeError("numbers alone")
    return x


def called(model, x=X):
    model(x)
    return model


def wrong(make, argument, value, *parts):
    return make, {argument: value}, parts


def loss(make, value, *parts):
    return wrong(make, "loss", value, *parts)


def metric(make, value, *parts):
    return wrong(make, "metrics", value, *parts)


def both(make, fitting, value, *parts):
    return make, {"loss": fitting, "metrics": [value]}, ("`metrics` must", *parts)


@pytest.mark.parametrize(("make", "arguments", "parts"), [
    loss(make, VECTOR_NAME, VECTOR_MEND),
    loss(make, losses.SparseCategoricalCrossentropy, SOFTMAX_MEND, "loss=keras.losses.SparseCategoricalCrossentropy"),
    loss(make, losses.SparseCategoricalCrossentropy(ignore_class=0), "Crossentropy(from_logits=True, ignore_class=0)"),
    loss(make, {"class_name": "CategoricalCrossentropy", "config": {}}, VECTOR_MEND),
    loss(make, [losses.SparseCategoricalCrossentropy()], SOFTMAX_MEND),
    loss(make, {"head": SPARSE_NAME}, SOFTMAX_MEND),
    loss(make, "crossentropy", SOFTMAX_MEND),
    loss(make, "kl_divergence", SOFTMAX_MEND, "or give the head activation=\"softmax\""),
    loss(make, "hinge", SOFTMAX_MEND),
    loss(make, losses.Dice(), SOFTMAX_MEND),
    loss(make, losses.CategoricalGeneralizedCrossEntropy(q=0.7), "GeneralizedCrossEntropy(q=0.7)"),
    loss(make, losses.BinaryCrossentropy(from_logits=True), "(or CategoricalCrossentropy for label vectors), or",
        "give the head link=\"sigmoid\" if an example", "loss=keras.losses.BinaryCrossentropy(from_logits=True)"),
    loss(make, ForwardCorrectedCrossentropy(np.eye(10)), "(transition=..., from_logits=True)"),
    loss(make, losses.Poisson, "to use a loss of probabilities. Received: loss=keras.losses.Poisson"),
    loss(sigmoid, "binary_crossentropy", SIGMOID_MEND, "must accept logits, which the head 'head' returns."),
    loss(sigmoid, SPARSE, SIGMOID_MEND),
    metric(make, [metrics.Accuracy()], "must accept log-probabilities", "returns. Use 'accuracy'."),
    metric(sigmoid, [metrics.Accuracy()], "must accept logits", "Use keras.metrics.BinaryAccuracy(threshold=0.0)"),
    both(make, SPARSE, "categorical_accuracy", "accept integers, as loss=keras.losses.SparseCategorical"),
    both(dense("softmax"), SPARSE_NAME, "mse", "and a loss of label vectors. Received: metrics='mse'"),
    both(dense("softmax"), VECTOR_NAME, metrics.SparseTopKCategoricalAccuracy(2), "accept label vectors, as loss="),
    metric(make, ["accuracy", SPARSE_NAME], "metrics.SparseCategoricalCrossentropy(from_logits=True)"),
    metric(make, [metrics.Precision()], "Give the head activation=\"softmax\" to use a metric of probabilities"),
    metric(make, {"head": [metrics.F1Score()]}, "`metrics` must accept log-probabilities"),
    metric(make, [metrics.AUC(thresholds=np.array([0.25, 0.5]))],
        "Use keras.metrics.AUC(from_logits=True, thresholds=[0.25, 0.5]), or give the head activation=\"softmax\"."),
    wrong(make, "weighted_metrics", [metrics.PrecisionAtRecall(0.9)], "`weighted_metrics` must", "PrecisionAtRecall(r"),
    metric(sigmoid, [metrics.binary_accuracy], "Received: metrics=keras.metrics.binary_accuracy"),
    metric(sigmoid, [metrics.Recall(thresholds=0.3)], "Give the head activation=\"sigmoid\""),
    metric(lambda: make("sigmoid", units=1), ["accuracy"], "keras.metrics.BinaryAccuracy(threshold=0.0)"),
    both(dense("sigmoid", 1), "bce", "categorical_accuracy", "accept one class, which", "Use 'binary_accuracy'."),
    both(dense(None, 1), losses.BinaryCrossentropy(from_logits=True), metrics.SparseCategoricalAccuracy(),
        "Use keras.metrics.BinaryAccuracy(threshold=0.0)", "metrics=keras.metrics.SparseCategoricalAccuracy()"),
    loss(lambda: probable("sigmoid"), losses.BinaryCrossentropy(from_logits=True), "keras.losses.BinaryCrossentropy()"),
    metric(lambda: probable("softmax"), [metrics.AUC(from_logits=True)], "keras.metrics.AUC()."),
    loss(lambda: make("sigmoid", layers.Activation("sigmoid")), VECTOR_NAME, "keras.losses.BinaryCrossentropy()"),
    loss(lambda: make("softmax", layers.Reshape((3, 1, 1)), layers.Flatten()), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: moved(lambda x: keras.ops.reshape(x, (-1, 3, 1))[..., 0]), VECTOR_NAME, "(from_logits=True)"),
    loss(lambda: moved(lambda x: keras.ops.cast(x, "float16")), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: moved(lambda x: keras.ops.squeeze(keras.ops.expand_dims(x, 1), 1)), "kl_divergence", SOFTMAX_MEND),
    loss(make, keras.ops.sparse_categorical_crossentropy, SOFTMAX_MEND, "Received: loss=" + SPARSE_NAME),
    loss(two_heads, [SPARSE_NAME, losses.BinaryCrossentropy(from_logits=True)], SOFTMAX_MEND, "'a'"),
    loss(two_heads, {"a": SPARSE, "b": "binary_crossentropy"}, SIGMOID_MEND, "'b'"),
    loss(two_heads, "binary_crossentropy", SOFTMAX_MEND, "'a'"),
    loss(lambda: two_heads(as_dict=True), {"first": SPARSE, "second": "bce"}, SIGMOID_MEND, "'b'"),
    metric(two_heads, [["accuracy"], [metrics.AUC()]], "keras.metrics.AUC(from_logits=True)", "'b'"),
    loss(lambda: flips(head("softmax")), SPARSE_NAME, SOFTMAX_MEND, "which the layer 'flips' returns"),
    loss(lambda: keras.Sequential([keras.Sequential([layers.Dense(4), head("softmax")])]), VECTOR_NAME, "'head'"),
    loss(lambda: called(Subclassed(lambda x: x["x"], head("softmax")), {"x": X}), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: called(Subclassed(head("sigmoid"), layers.Activation("sigmoid"))), SPARSE, "keras.losses.BinaryCross"),
    loss(dense(), GeneralizedCrossentropy(),
        "which the layer 'last' returns. Use keras_het.losses.GeneralizedCrossentropy(from_logits=True)"),
    loss(dense(), SPARSE_NAME, SOFTMAX_MEND),
    loss(dense(), "binary_crossentropy", SIGMOID_MEND),
    loss(dense(), "kl_divergence", SOFTMAX_MEND, "or put keras.layers.Softmax() after it"),
    loss(dense(), AnnotatorsLoss(losses.SparseCategoricalCrossentropy(ignore_class=-1)), "keras_het.losses.Annotators"),
    loss(dense(None, 1), "crossentropy", SIGMOID_MEND),
    loss(dense(None, 1), SPARSE, SIGMOID_MEND),
    loss(dense("softmax"), SPARSE, "must accept probabilities, which the layer", "SparseCategoricalCrossentropy()."),
    loss(dense("sigmoid"), SPARSE_NAME, "the probabilities of a sigmoid, which", "keras.losses.BinaryCrossentropy()"),
    loss(dense("log_softmax"), "binary_crossentropy", "or replace the softmax by a sigmoid if an example can have"),
    loss(dense("log_softmax", 3, layers.Softmax()), SPARSE, "which an activation after the layer 'last' returns"),
    loss(dense(None, 3, layers.Rescaling(2.0), layers.Activation("softmax", name="p")), SPARSE, "the layer 'p'"),
    loss(plain(layers.TimeDistributed(layers.Dense(3)), shape=(2, 6)), SPARSE_NAME, SOFTMAX_MEND),
    loss(lambda: keras.Sequential([layers.Dense(3)]), SPARSE_NAME, SOFTMAX_MEND),
    loss(one_head_of_two, [SPARSE, SPARSE], "must accept probabilities, which the layer 'b' returns"),
    both(dense(), losses.BinaryCrossentropy(from_logits=True), metrics.AUC(), "keras.metrics.AUC(from_logits=True)"),
    both(dense(None, 1), "hinge", "accuracy", "keras.metrics.BinaryAccuracy(threshold=0.0)"),
    both(dense("softmax"), SPARSE_NAME, metrics.MeanIoU(3), "Use keras.metrics.MeanIoU(num_classes=3, sparse_y_pred=F"),
    both(dense(), SPARSE, metrics.OneHotMeanIoU(3),
        "accept integers, as loss=", "Use keras.metrics.MeanIoU(num_classes=3, sparse_y_pred=False), or to_cat"),
    both(sigmoid, losses.BinaryCrossentropy(from_logits=True), metrics.MeanIoU(3, sparse_y_pred=False),
        "Use keras.metrics.BinaryIoU(threshold=0.0)"),
    metric(dense("sigmoid"), [SPARSE_NAME], "keras.metrics.BinaryCrossentropy()"),
    loss(of_annotators, losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
        f"{MISSING}losses.AnnotatorsLoss(). Received: loss=keras.losses.SparseCategoricalCrossentropy("),
    loss(of_annotators, AnnotatorsLoss(SmoothedCrossentropy(ignore_class=-1)), "Use keras_het.losses.AnnotatorsLoss("),
    metric(of_annotators, ["accuracy"], f"{MISSING}metrics.AnnotatorsMetric(...). Received: metrics='accuracy'"),
    wrong(of_annotators, "weighted_metrics", [metrics.SparseCategoricalAccuracy()], f"`weighted_metrics` {MISSING}"),
])  # fmt: skip
def test_a_wrong_compile_is_caught_and_the_mend_named(make, arguments, parts):
    model = compiled(make(), "sgd", **arguments)
    with pytest.raises(ValueError, match=r"^`(loss|metrics|weighted_metrics)` must accept .* Received: ") as error:
        keras_het.check(model)
    assert [part for part in parts if part not in str(error.value)] == []


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")  # Keras, when it calls the layer
@pytest.mark.parametrize("loss", ["binary_crossentropy", "categorical_crossentropy", "mse"])
@pytest.mark.parametrize("end", [(layers.Dense(1, "softmax"),), (layers.Dense(1), layers.Softmax())])
def test_a_softmax_of_one_class_is_refused_because_it_is_constant(loss, end):
    model = plain(*end)()
    assert np.ptp(model.predict(X, verbose=0)) == 0
    model.compile("sgd", loss)
    text = r"A softmax must have two classes or more, because of one class it is always 1\. Use a sigmoid\. Received: o"
    with pytest.raises(ValueError, match=text):
        keras_het.check(model)


AFTER_HEAD = "The activation after the head 'head' must be {}, because the head 'head' returns {}. Received: '{}'"


@pytest.mark.parametrize(("model", "arguments", "text"), [
    (make, {"loss": SPARSE_NAME},
     ("`loss` must accept log-probabilities, which the head 'head' returns. Use "
      "keras.losses.SparseCategoricalCrossentropy(from_logits=True), or give the head activation=\"softmax\". "
      "Received: loss='sparse_categorical_crossentropy'")),
    (lambda: make("softmax", layers.Activation("sigmoid")), {"loss": "binary_crossentropy"},
     AFTER_HEAD.format("keras.layers.Softmax() or none", "log-probabilities", "sigmoid")),
    (lambda: make("sigmoid", layers.Activation("exponential")), {"loss": "binary_crossentropy"},
     AFTER_HEAD.format("keras.layers.Activation('sigmoid') or none", "logits", "exponential")),
    (lambda: probable("softmax", layers.Softmax()), {"loss": SPARSE_NAME},
     AFTER_HEAD.format("none", "probabilities", "softmax")),
])  # fmt: skip
def test_errors_word_for_word(model, arguments, text):
    with pytest.raises(ValueError) as error:
        keras_het.check(compiled(model(), **arguments))
    assert str(error.value) == text


def test_a_model_that_is_not_compiled_is_told_so():
    with refuses(r"`model` must be compiled: call model.compile\(...\). Received: model='plain', not compiled"):
        keras_het.check(keras.Sequential([head("softmax")], name="plain"))


@pytest.mark.parametrize("callback", [ReleaseTransition(after=1), TransitionMonitor()])
def test_the_callbacks_check_at_the_start_of_fit(callback):
    model = compiled(flips(layers.Dense(3, "log_softmax")), "sgd", SPARSE_NAME)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(ValueError, match="`loss` must accept log-probabilities"):
        model.fit(X, LABELS % 3, verbose=0, callbacks=[callback])
    assert_same_arrays(model.weights, before)


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
    assert_same_arrays(model.weights, before)
    model.fit(X, targets("softmax"), verbose=0)


@pytest.mark.parametrize(("kind", "role", "identifier", "labels"), [
    ("full", "loss", "sparse_categorical_crossentropy", LABELS),
    ("full", "loss", losses.SparseCategoricalCrossentropy(ignore_class=1), LABELS),
    ("full", "loss", losses.CategoricalCrossentropy(label_smoothing=0.1), VECTORS),
    ("full", "loss", losses.categorical_focal_crossentropy, VECTORS),
    ("full", "loss", ForwardCorrectedCrossentropy(0.7 * np.eye(UNITS) + 0.3 / UNITS), LABELS),
    ("full", "loss", GeneralizedCrossentropy(q=0.4), LABELS),
    ("full", "loss", keras_het.losses.SymmetricCrossentropy(beta=0.5), LABELS),
    ("full", "metrics", "categorical_crossentropy", VECTORS),
    ("full", "metrics", metrics.BinaryAccuracy(threshold=0.3), VECTORS),
    ("sigmoid", "loss", "bce", VECTORS),
    ("sigmoid", "loss", losses.BinaryFocalCrossentropy(gamma=3.0, apply_class_balancing=True), VECTORS),
    ("sigmoid", "metrics", metrics.BinaryAccuracy(threshold=0.3), VECTORS),
    ("sigmoid", "metrics", metrics.Precision(), VECTORS),
    ("sigmoid", "metrics", metrics.AUC(), VECTORS),
    ("full", "metrics", keras_het.metrics.ExpectedCalibrationError(num_bins=3), LABELS),
])  # fmt: skip
def test_the_mend_gives_the_value_of_probabilities(kind, role, identifier, labels):
    """With noise to spare, so that a loss of log-probabilities that forgot a setting would differ."""
    model = make_model(make_head(kind))
    module = getattr(keras, {"loss": "losses"}.get(role, role))
    fitting = Criterion(identifier, module).match(endings(model)[0])
    assert fitting is not identifier
    outputs = keras.ops.convert_to_tensor(model.predict(X, verbose=0))
    p = keras.ops.exp(outputs) if kind == "full" else keras.ops.sigmoid(outputs)

    def value(which, predictions):
        return float(keras.ops.mean(module.get(which)(labels, predictions)))

    assert value(fitting, outputs) == pytest.approx(value(identifier, p), rel=1e-5)


@pytest.mark.parametrize("metric", [metrics.MeanIoU(2), metrics.OneHotMeanIoU(UNITS), metrics.OneHotIoU(UNITS, [0, 2])])
@pytest.mark.parametrize("form", ["integers", "vectors"])
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # JAX, of the metrics of Keras
def test_the_overlap_that_is_named_has_the_value_of_its_definition(metric, form):
    model = make_model(make_head("full"))
    criterion = Criterion(metric, metrics)
    criterion = Criterion(criterion.with_labels(form), metrics)
    assert criterion.metric_label_form == form
    overlap = criterion.match(endings(model)[0])
    outputs = model.predict(X, verbose=0)
    classes, predicted = range(UNITS) if "Mean" in type(metric).__name__ else [0, 2], outputs.argmax(axis=1)
    pairs = [(k == LABELS, k == predicted) for k in classes]
    expected = np.mean([(true & flags).sum() / (true | flags).sum() for true, flags in pairs if (true | flags).any()])
    assert float(overlap(LABELS if form == "integers" else VECTORS, outputs)) == pytest.approx(expected)


def test_what_needs_exclusive_classes_fits_no_logits_of_each_label_and_every_loss_of_this_package_is_known():
    output = endings(make_model(make_head("sigmoid")))[0]
    assert Criterion(keras_het.metrics.ExpectedCalibrationError(), metrics).match(output) is None
    assert Criterion(keras_het.losses.SymmetricCrossentropy()).match(output) is None
    kinds = {getattr(keras_het.losses, name) for name in keras_het.losses.__all__}
    losses = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, keras.losses.Loss)}
    unknown = {kind for kind in losses if find_rule(kind) is None}
    assert unknown == {AnnotatorsLoss}  # which is judged by the loss that it wraps
