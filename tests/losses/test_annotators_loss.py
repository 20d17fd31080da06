"""Losses and metrics of the labels of several annotators, against NumPy in float64."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from keras_het.layers import NoiseTransition
from keras_het.losses import AnnotatorsLoss, SmoothedCrossentropy
from keras_het.metrics import AnnotatorsMetric, ExpectedCalibrationError
from tests.common import compiled, finite_differences, number, sparse_crossentropy, to_numpy
from tests.gradients import value_and_gradients
from tests.marks import grid

pytestmark = pytest.mark.once

EXAMPLES, ANNOTATORS, UNITS = 9, 3, 4
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(EXAMPLES, ANNOTATORS, UNITS)).astype("float32")
LABELS = RNG.integers(UNITS, size=(EXAMPLES, ANNOTATORS))
LABELS[RNG.random(LABELS.shape) < 0.4] = -1
LABELS[2] = -1  # an example without any
GIVEN, WEIGHTS = LABELS >= 0, RNG.random(EXAMPLES).astype("float32")
LOSSES = {
    "Keras": lambda **kwargs: sparse_crossentropy(ignore_class=-1, **kwargs),
    "ours": lambda **kwargs: SmoothedCrossentropy(0.3, from_logits=True, ignore_class=-1, **kwargs),
}


def oracle(kind, logits, labels):
    log_p = special.log_softmax(np.broadcast_to(logits, (*labels.shape, UNITS)).astype("float64"), axis=-1)[labels >= 0]
    targets = np.eye(UNITS)[labels[labels >= 0]]
    smoothing = 0.0 if kind == "Keras" else 0.3
    return -np.sum(((1 - smoothing) * targets + smoothing / UNITS) * log_p, axis=-1)


@pytest.mark.parametrize("logits", [LOGITS, LOGITS[:, :1]], ids=["of each annotator", "of the true classes"])
@pytest.mark.parametrize("kind", LOSSES)
def test_missing_labels_count_neither_in_the_sum_nor_in_the_mean(kind, logits):
    expected = oracle(kind, logits, LABELS)
    predictions = logits[:, 0] if logits.shape[1] == 1 else logits
    loss, total = (AnnotatorsLoss(LOSSES[kind](reduction=name)) for name in ("sum_over_batch_size", "sum"))
    assert number(loss(LABELS, predictions)) == pytest.approx(expected.mean(), rel=1e-5)
    assert number(total(LABELS, predictions)) == pytest.approx(expected.sum(), rel=1e-5)
    rows = np.broadcast_to(WEIGHTS[:, None], LABELS.shape)
    for weights in (WEIGHTS, WEIGHTS[:, None], np.array(rows)):
        assert number(loss(LABELS, predictions, weights)) == pytest.approx(np.mean(rows[GIVEN] * expected), rel=1e-5)
    assert number(LOSSES[kind]()(LABELS, LOGITS)) == pytest.approx(oracle(kind, LOGITS, LABELS).mean(), rel=1e-5)
    assert number(loss(np.full_like(LABELS, -1), predictions)) == 0.0


@pytest.mark.smoke
@pytest.mark.parametrize("kind", LOSSES)
def test_gradients_against_finite_differences(kind):
    loss = AnnotatorsLoss(LOSSES[kind]())
    _, (gradient,) = value_and_gradients(lambda tensors: loss(LABELS, tensors[0]), [LOGITS])
    assert np.all(gradient[~GIVEN] == 0)
    slopes = finite_differences(lambda point: oracle(kind, point, LABELS).mean(), LOGITS)
    assert gradient == pytest.approx(slopes, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("kind", LOSSES)
def test_clean_labels_and_a_loss_that_is_saved_with_what_it_is_of(kind):
    clean, predictions = np.arange(EXAMPLES) % UNITS, LOGITS[:, 0]
    expected = oracle(kind, predictions, clean).mean()
    for labels in (clean, clean[:, None]):
        assert number(AnnotatorsLoss(LOSSES[kind]())(labels, predictions)) == pytest.approx(expected, rel=1e-5)
    loss = AnnotatorsLoss(LOSSES[kind](reduction="sum"), name="mine")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert (again.name, type(again.loss), again.get_config()) == ("mine", type(loss.loss), loss.get_config())
    assert number(again(LABELS, LOGITS)) == number(loss(LABELS, LOGITS))


@pytest.mark.parametrize("predictions", [LOGITS, LOGITS[:, 0]], ids=["of each annotator", "of the true classes"])
def test_metrics_leave_missing_labels_out(predictions):
    spread = np.broadcast_to(predictions.reshape(EXAMPLES, -1, UNITS), (*LABELS.shape, UNITS))
    right, metric = (spread.argmax(-1) == LABELS)[GIVEN], AnnotatorsMetric(name="accuracy")
    for part in (slice(0, 4), slice(4, None)):
        metric.update_state(LABELS[part], predictions[part])
    assert number(metric.result()) == pytest.approx(right.mean())
    plain = keras.metrics.SparseCategoricalAccuracy()
    assert number(plain(LABELS, spread)) < right.mean()  # which is why the metric is there
    metric.reset_state()
    rows = np.broadcast_to(WEIGHTS[:, None], LABELS.shape)[GIVEN]
    assert number(metric(LABELS, predictions, WEIGHTS)) == pytest.approx(np.average(right, weights=rows), rel=1e-5)
    ours = AnnotatorsMetric(ExpectedCalibrationError(from_logits=True))
    expected = number(ExpectedCalibrationError(from_logits=True)(LABELS[GIVEN], spread[GIVEN]))
    assert number(ours(LABELS, predictions)) == pytest.approx(expected, rel=1e-5)


def test_metrics_of_clean_labels_and_their_config():
    clean = np.arange(EXAMPLES) % UNITS
    metric = AnnotatorsMetric(keras.metrics.SparseTopKCategoricalAccuracy(2))
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert again.get_config() == metric.get_config()
    expected = number(keras.metrics.SparseTopKCategoricalAccuracy(2)(clean, LOGITS[:, 0]))
    for labels in (clean, clean[:, None]):
        again.reset_state()
        assert number(again(labels, LOGITS[:, 0])) == pytest.approx(expected)


@pytest.mark.smoke
@pytest.mark.parametrize("wrong", grid([-2, UNITS, np.nan, 0.5], span=[-2, np.nan]))
@pytest.mark.parametrize("kind", grid(LOSSES, span=["Keras"]))
def test_a_label_that_is_no_class_makes_the_loss_nan(kind, wrong):
    """Of unsigned labels, -1, a missing label, would become class 255."""
    clean, loss = np.arange(EXAMPLES, dtype="uint8")[:, None] % UNITS, AnnotatorsLoss(LOSSES[kind]())
    assert number(loss(clean, LOGITS[:, 0])) == number(loss(clean.astype("int32"), LOGITS[:, 0]))
    assert np.isnan(number(loss(clean + np.uint8(252), LOGITS[:, 0])))
    labels = LABELS.astype("float32")
    for reduction in ("sum_over_batch_size", "sum", "none"):
        loss = AnnotatorsLoss(LOSSES[kind](reduction=reduction))
        for predictions in (LOGITS, LOGITS[:, 0]):
            assert np.isfinite(to_numpy(loss(labels, predictions))).all()
            for index in ((0, 2), (2, 0)):  # also of an example whose other labels are missing
                spoiled = labels.copy()
                spoiled[index] = wrong
                assert np.isnan(to_numpy(loss(spoiled, predictions))).all()
                assert np.isnan(to_numpy(loss(spoiled, predictions, WEIGHTS))).all()
                if wrong in (-2, UNITS):
                    assert np.isnan(to_numpy(loss(spoiled.astype("int64"), predictions))).all()


@pytest.mark.smoke
@pytest.mark.on_tensorflow
@pytest.mark.parametrize("wrong", grid([-2, UNITS, np.nan], span=[-2, np.nan]))
@pytest.mark.parametrize("is_eager", [True, False], ids=["eager", "compiled"])
def test_in_fit_a_label_that_is_no_class_makes_the_loss_nan(is_eager, wrong):
    labels = np.where(GIVEN, LABELS, -1.0)
    labels[0, 2] = wrong
    layers = [keras.layers.Dense(UNITS, "log_softmax"), NoiseTransition(UNITS, num_annotators=ANNOTATORS)]
    model = compiled(keras.Sequential([keras.Input((2,)), *layers]), "sgd", AnnotatorsLoss(), run_eagerly=is_eager)
    assert np.isnan(model.fit(np.ones((EXAMPLES, 2)), labels, verbose=0).history["loss"][0])


@pytest.mark.parametrize("axes", [1, 2], ids=["(N, K)", "(N, M, K)"])
def test_masked_predictions_do_not_count(axes):
    logits = keras.layers.Masking()(np.where(np.arange(EXAMPLES)[:, None] < 4, LOGITS[:, 0], 0.0))
    labels = LABELS if axes == 1 else LABELS[None, :, 0]
    predictions = logits if axes == 1 else keras.layers.Masking()(ops.convert_to_numpy(logits)[None])
    counted = LABELS[:4] if axes == 1 else LABELS[:4, :1]
    expected = oracle("Keras", LOGITS[:4, :1], counted).mean()
    assert number(AnnotatorsLoss()(labels, predictions)) == pytest.approx(expected, rel=1e-5)
    metric = AnnotatorsMetric()
    metric.update_state(labels, predictions)
    hits = (LOGITS[:4, 0].argmax(1)[:, None] == counted)[counted >= 0]
    assert number(metric.result()) == pytest.approx(hits.mean())
