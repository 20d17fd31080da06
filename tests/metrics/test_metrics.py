"""Calibration error against brute force in float64, for any batches."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import log_softmax, softmax

from keras_het import metrics
from keras_het.explain import calibration
from tests.common import number, refuses
from tests.marks import grid

EXAMPLES, UNITS = 40, 4
make = metrics.ExpectedCalibrationError


def case(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(UNITS, size=EXAMPLES), (2.0 * rng.normal(size=(EXAMPLES, UNITS))).astype("float32")


def case_with_ties(seed):
    rng = np.random.default_rng(seed)
    p = (rng.multinomial(8, softmax(case(seed)[1], axis=1)) + 1) / 12
    p[np.arange(EXAMPLES), p.argmax(1)] += 0.5
    return rng.integers(UNITS, size=EXAMPLES), (p / 1.5).astype("float32")


def ece(labels, p):
    return calibration(p, labels).error


def updated(metric, *data, batches=1):
    for batch in zip(*(np.array_split(x, batches) for x in data), strict=True):
        metric.update_state(*batch)
    return number(metric.result())


def test_against_brute_force():
    for seed in range(20):
        labels, logits = case(seed)
        result, batches = updated(make(from_logits=True), labels, logits, batches=1 + seed % 3), 1 + seed % 3
        assert result == pytest.approx(ece(labels, softmax(np.float64(logits), axis=1)), abs=1e-6)
        labels, p = case_with_ties(seed)
        assert updated(make(), labels, p, batches=batches) == pytest.approx(ece(labels, np.float64(p)), abs=1e-6)


def test_weights_vectors_masks_and_what_does_not_count():
    labels, logits = case(1)
    chosen = np.random.default_rng(2).random(EXAMPLES) < 0.5
    expected = pytest.approx(updated(make(from_logits=True), labels[chosen], logits[chosen]), abs=1e-6)
    hidden, weights = np.where(chosen, labels, -1), chosen.astype("float32")
    assert updated(make(from_logits=True, ignore_class=-1), hidden, logits) == expected
    assert np.isnan(updated(make(from_logits=True), hidden, logits))
    for y in (labels, hidden):
        assert updated(make(from_logits=True), y, logits, weights) == expected
    for form in (np.eye(UNITS, dtype="float32")[labels], labels[:, None]):
        result = updated(make(from_logits=True), form, logits)
        assert result == pytest.approx(updated(make(from_logits=True), labels, logits), abs=1e-6)


@pytest.mark.parametrize("labels", [np.zeros(0, "int32"), np.zeros((0, 1), "int32"), np.zeros((0, 3), "float32")])
def test_an_empty_batch_changes_nothing(labels):
    empty, (y, p) = np.zeros((0, 3), "float32"), case_with_ties(0)
    assert number(make().result()) == updated(make(), labels, empty) == 0.0
    metric = make()
    for batch in ((labels, empty), (y, p), (labels, empty)):
        metric.update_state(*batch)
    assert number(metric.result()) == pytest.approx(ece(y, np.float64(p)), abs=1e-6)


def test_a_weight_is_a_number_of_examples_and_its_unit_does_not_matter():
    labels, logits = (x[:13] for x in case(6))
    counts = np.random.default_rng(7).integers(4, size=13)
    weighted = updated(make(from_logits=True), labels, logits, counts.astype("float32"))
    halved = updated(make(from_logits=True), labels, logits, 0.5 * counts.astype("float32"))
    assert halved == pytest.approx(weighted, abs=1e-6)
    assert weighted != pytest.approx(updated(make(from_logits=True), labels, logits), abs=1e-3)
    repeated = updated(make(from_logits=True), labels.repeat(counts), logits.repeat(counts, axis=0))
    assert weighted == pytest.approx(repeated, abs=1e-6)


def test_in_fit_and_again_from_its_config():
    labels, logits = case(4)
    metric = make(from_logits=True)
    model = keras.Sequential([keras.Input((UNITS,)), keras.layers.Identity()])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=[metric])
    result = model.evaluate(logits, labels, batch_size=16, verbose=0, return_dict=True)  # the last batch is smaller
    again = type(metric).from_config(metric.get_config())
    assert again.get_config() == metric.get_config()
    assert result[metric.name] == pytest.approx(updated(again, labels, logits), abs=1e-6)


def test_what_is_no_probability_is_nan():
    """Log-probabilities, of a head, where `from_logits=True` was forgotten.

    An example that does not count may be anything.
    """
    labels, logits = case(3)
    log_p = log_softmax(logits, axis=1)
    assert np.isnan(updated(make(), labels, log_p))
    p, weights = np.exp(log_p), np.ones(EXAMPLES, "float32")
    expected = updated(make(), labels[1:], p[1:])
    p[0], weights[0] = -7.0, 0.0
    assert updated(make(), labels, p, weights) == pytest.approx(expected, abs=1e-6)


@pytest.mark.once
@pytest.mark.parametrize("label", [np.nan, 1.5, -0.5, np.inf, 2**32, 2**32 + 1, np.uint64(2**63)], ids=str)
def test_a_label_that_is_no_class_is_nan(label):
    labels, logits = case(3)
    wrong = labels.astype(np.result_type(label))
    wrong[7] = label
    assert np.isnan(updated(make(from_logits=True), wrong, logits))


@pytest.mark.once
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64"])
def test_labels_of_any_dtype(dtype):
    labels, logits = case(3)
    expected = updated(make(from_logits=True), labels % 2, logits)
    assert updated(make(from_logits=True), (labels % 2).astype(dtype), logits) == expected
    assert updated(make(from_logits=True, ignore_class=-1), (labels % 2).astype(dtype), logits) == expected
    labels, p = case_with_ties(8)
    half = ops.cast(p, "bfloat16" if dtype == "bool" else "float16")  # predictions in half precision
    expected = ece(labels, ops.convert_to_numpy(ops.cast(half, "float32")).astype("float64"))
    assert updated(make(), labels, half) == pytest.approx(expected, abs=1e-6)


TOKENS = np.array([[3, 1, 2, 0], [4, 0, 0, 0], [2, 2, 0, 0]])  # 0 is padding
STEPS = TOKENS > 0
STEP_LABELS = np.arange(12).reshape(TOKENS.shape) % UNITS
WEIGHTS = np.array([[1.0], [2.0], [5.0]])


@pytest.mark.on_jax
@pytest.mark.parametrize("name", grid(["none", "(N, T)"], span=["(N, T)"]))
def test_masked_steps_do_not_count_in_a_compiled_step(name):
    layers = [keras.layers.Embedding(5, 3, "normal", mask_zero=True), keras.layers.Dense(UNITS, "softmax")]
    model = keras.Sequential([keras.Input((4,), dtype="int32"), *layers])
    own = [make(1), metrics.AnnotatorsMetric(name="accuracy")]
    model.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=own)
    rows = None if name == "none" else WEIGHTS + np.arange(4.0)
    result = model.evaluate(TOKENS, STEP_LABELS, sample_weight=rows, verbose=0, return_dict=True)
    p, labels = model.predict(TOKENS, verbose=0)[STEPS].astype("float64"), STEP_LABELS[STEPS]
    weights = np.ones(len(p)) if rows is None else rows[STEPS]
    is_correct = p.argmax(1) == labels
    expected = {
        "ece": abs(np.average(is_correct - p.max(1), weights=weights)),
        "accuracy": np.average(is_correct, weights=weights),
    }
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    p = np.eye(UNITS, dtype="float32")[STEP_LABELS]
    p[0] = [0.7, 0.1, 0.1, 0.1]  # right in one of 4 steps: |1/4 - 0.7| with weight 1 of 1 + 2 + 5, in 4 steps each
    for weights in (WEIGHTS, WEIGHTS[:, 0]):  # a weight of each example counts for all its steps
        assert updated(make(1), STEP_LABELS, p, weights) == pytest.approx(0.45 / 8)


@pytest.mark.once
def test_outputs_and_labels_of_other_classes_are_refused_and_two_columns_give_the_error():
    p = np.array([[0.25], [0.75], [0.75]])
    with refuses(r"`y_pred` must have a probability for each class.* use \[1 - p, p\]. Received"):
        updated(make(), [0, 1, 0], p)
    assert updated(make(), [0, 1, 0], np.concatenate([1 - p, p], axis=1)) == pytest.approx(1 / 12)
    with refuses("`y_true` must have an entry for each of the 4 classes"):
        updated(make(from_logits=True), np.eye(5, dtype="float32")[:3], case(3)[1][:3])
