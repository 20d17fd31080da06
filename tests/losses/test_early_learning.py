"""Early-learning regularisation, against NumPy in float64."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from keras_het.losses import EarlyLearningRegularizedCrossentropy, with_index
from tests.gradients import value_and_gradients
from tests.losses import indexed_contract as contract

EXAMPLES, UNITS = 12, 4
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
WEIGHTS = RNG.random(EXAMPLES).astype("float32")
INDEX = with_index(EXAMPLES)


def make_loss(**kwargs):
    loss = EarlyLearningRegularizedCrossentropy(EXAMPLES, UNITS, **{"from_logits": True, "reduction": "none", **kwargs})
    return loss.attach(keras.Sequential([keras.Input((5,)), keras.layers.Dense(UNITS)]))


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def probabilities(logits):
    return special.softmax(np.asarray(logits, "float64"), axis=-1)


def oracle(memory, logits, targets, strength=3.0):
    """The loss of every example with what is remembered, targets being label vectors, float64."""
    p = probabilities(logits)
    return strength * np.log(1 - np.sum(memory * p, axis=-1)) - np.sum(targets * np.log(p), axis=-1)


def plain(logits, labels):
    return oracle(np.zeros(logits.shape), logits, np.eye(UNITS)[labels])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 1e-3)])
def test_values_and_memory_of_many_steps(dtype, tolerance):
    loss, memory, rng = make_loss(memory_dtype=dtype), np.zeros((EXAMPLES, UNITS)), np.random.default_rng(1)
    for _ in range(5):
        index = rng.permutation(EXAMPLES)[:7]
        logits = rng.normal(size=(7, UNITS)).astype("float32")
        memory[index] = 0.7 * memory[index] + 0.3 * probabilities(logits)
        exact = oracle(memory[index], logits, np.eye(UNITS)[LABELS[index]])
        np.testing.assert_allclose(
            numpy(loss(LABELS[index], logits, INDEX[index])), exact, rtol=tolerance, atol=tolerance
        )
    np.testing.assert_allclose(numpy(loss.memory), memory, atol=tolerance)
    assert keras.backend.standardize_dtype(loss.memory.dtype) == dtype


def test_gradients_are_finite_differences_with_the_memory_held():
    loss, before = make_loss(), RNG.dirichlet(np.ones(UNITS), size=EXAMPLES).astype("float32")
    loss.rows.assign(np.concatenate([before, np.zeros((1, UNITS))]))
    function = lambda tensors: ops.sum(loss(LABELS, tensors[0], INDEX))  # noqa: E731
    _, (gradient,) = stateless(loss, function)
    memory, targets = 0.7 * before.astype("float64") + 0.3 * probabilities(LOGITS), np.eye(UNITS)[LABELS]
    for index in np.ndindex(LOGITS.shape):
        step = np.zeros(LOGITS.shape)
        step[index] = 1e-5
        slope = (oracle(memory, LOGITS + step, targets).sum() - oracle(memory, LOGITS - step, targets).sum()) / 2e-5
        assert gradient[index] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def stateless(loss, function, logits=LOGITS):
    """Value and gradients of a function that assigns: JAX wants what it assigns as a part of the scope."""
    if keras.config.backend() != "jax":
        return value_and_gradients(function, [logits])

    def in_scope(tensors):
        with keras.StatelessScope(state_mapping=[(loss.rows, loss.rows.value)]):
            return function(tensors)

    return value_and_gradients(in_scope, [logits])


@pytest.mark.on_tensorflow
def test_a_strength_of_zero_is_plain_crossentropy_at_every_step():
    loss = make_loss(strength=0.0)
    for _ in range(3):
        np.testing.assert_allclose(numpy(loss(LABELS, LOGITS, INDEX)), plain(LOGITS, LABELS), rtol=1e-6, atol=1e-6)


def test_labels_of_every_form_and_probabilities():
    memory = 0.3 * probabilities(LOGITS)
    for labels in (LABELS, LABELS[:, None], np.eye(UNITS)[LABELS]):
        exact = oracle(memory, LOGITS, np.eye(UNITS)[LABELS])
        np.testing.assert_allclose(numpy(make_loss()(labels, LOGITS, INDEX)), exact, rtol=1e-6, atol=1e-6)
        of_probabilities = make_loss(from_logits=False)(labels, probabilities(LOGITS), INDEX)
        np.testing.assert_allclose(numpy(of_probabilities), exact, rtol=1e-6, atol=1e-6)
    vectors = RNG.dirichlet(np.ones(UNITS), size=EXAMPLES)
    np.testing.assert_allclose(
        numpy(make_loss()(vectors, LOGITS, INDEX)), oracle(memory, LOGITS, vectors), rtol=1e-6, atol=1e-6
    )


def test_weights_beside_the_index_and_ignored_labels():
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, -1, LABELS)
    kept = labels != -1
    exact = oracle(0.3 * probabilities(LOGITS), LOGITS, np.eye(UNITS)[LABELS])[kept]
    loss = make_loss(ignore_class=-1, reduction="sum_over_batch_size")
    assert float(numpy(loss(labels, LOGITS, with_index(EXAMPLES, WEIGHTS)))) == pytest.approx(
        np.mean(WEIGHTS[kept] * exact), rel=1e-6
    )


def test_examples_without_an_index_are_plain_and_not_remembered():
    loss = make_loss()
    weights = np.where(np.arange(EXAMPLES)[:, None] % 2 == 0, INDEX, [1.0, -1.0])
    loss(LABELS, LOGITS, weights)
    each, before = numpy(loss(LABELS, LOGITS, weights)), numpy(loss.memory)
    np.testing.assert_allclose(each[1::2], plain(LOGITS, LABELS)[1::2], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(before[1::2], 0.0)
    assert (np.abs(each - plain(LOGITS, LABELS))[::2] > 0.1).all()
    for without in (None, WEIGHTS, WEIGHTS[:, None]):
        exact = plain(LOGITS, LABELS) * (1.0 if without is None else WEIGHTS)
        np.testing.assert_allclose(numpy(loss(LABELS, LOGITS, without)).reshape(-1), exact, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(numpy(loss.memory), before)


def test_nan_of_one_example_without_an_index_stays_with_it():
    """All of them share a row of the memory: nan in it would come back as a gradient of others."""
    loss, none = make_loss(), np.tile([1.0, -1.0], (EXAMPLES, 1))
    loss(LABELS, LOGITS, INDEX)
    loss(LABELS, np.full_like(LOGITS, np.nan))
    value, (gradient,) = stateless(loss, lambda tensors: ops.sum(loss(LABELS, tensors[0], none)))
    np.testing.assert_allclose(value, plain(LOGITS, LABELS).sum(), rtol=1e-6)
    assert np.isfinite(gradient).all()


def test_an_index_or_a_label_that_is_none_is_nan():
    labels, weights = np.array([0, 1, UNITS]), np.array([[1.0, 0.0], [1.0, EXAMPLES], [1.0, 1.0]])
    np.testing.assert_array_equal(np.isnan(numpy(make_loss()(labels, LOGITS[:3], weights))), [False, True, True])


def test_of_an_index_twice_in_a_batch_one_prediction_is_remembered():
    loss = make_loss()
    loss(LABELS[:2], LOGITS[:2], np.array([[1.0, 5.0], [1.0, 5.0]]))
    memory, candidates = numpy(loss.memory), 0.3 * probabilities(LOGITS[:2])
    assert np.abs(memory[5] - candidates).max(axis=-1).min() < 1e-6
    assert np.count_nonzero(memory) == UNITS


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_certain_predictions_are_finite_for_many_epochs(from_logits, dtype):
    loss = make_loss(from_logits=from_logits, memory_dtype=dtype)
    outputs = 1e4 * LOGITS if from_logits else np.eye(UNITS, dtype="float32")[(LABELS + 1) % UNITS]
    for _ in range(60):
        each = numpy(loss(LABELS, outputs, INDEX))
    value, (gradient,) = stateless(loss, lambda tensors: ops.sum(loss(LABELS, tensors[0], INDEX)), outputs)
    assert np.isfinite(each).all()
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_an_empty_batch_and_half_precision():
    assert make_loss()(LABELS[:0], LOGITS[:0], INDEX[:0]).shape == (0,)
    half = make_loss(dtype="bfloat16", reduction="sum")(LABELS, LOGITS, INDEX)
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"
    exact = oracle(0.3 * probabilities(LOGITS), LOGITS, np.eye(UNITS)[LABELS]).sum()
    assert float(numpy(ops.cast(half, "float32"))) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 2.0**-24), ("float16", 2.0**-11)])
def test_the_gradient_of_a_trained_model_is_exact(dtype, rounding):
    """Once t and p are nearly one, rounding of 1 - sum t p must not come into the gradient.

    That rounding is a hundred times p's distance from one. The memory itself moves once more, and a compiler may round
    that step up or down.
    """
    loss = make_loss(memory_dtype=dtype)
    logits = np.where(np.arange(UNITS) == 1, 18.0, 3.0 * LOGITS).astype("float32")
    for _ in range(80):
        loss(LABELS, logits, INDEX)
    _, (gradient,) = stateless(loss, lambda tensors: ops.sum(loss(LABELS, tensors[0], INDEX)), logits)
    p, memory = probabilities(logits), numpy(loss.memory).astype("float64")
    tolerances = {"rtol": 0.02 if dtype == "float16" else 1e-3, "atol": 3e-4}
    fits = np.zeros(EXAMPLES, bool)
    for moved in (-rounding, 0.0, rounding):
        largest = memory.max(axis=-1, keepdims=True) + moved
        slopes = p * np.where(np.arange(UNITS) == 1, 0.0, largest - memory)  # of the rest, for log p
        rest = np.maximum(1 - largest, rounding) + slopes.sum(axis=-1, keepdims=True)
        exact = p - np.eye(UNITS)[LABELS] + 3.0 * (slopes - p * slopes.sum(axis=-1, keepdims=True)) / rest
        fits |= np.isclose(gradient, exact, **tolerances).all(axis=-1)
    assert fits.all()


def make(examples=8, units=3, **kwargs):
    return EarlyLearningRegularizedCrossentropy(examples, units, **kwargs)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: make(0), "`num_examples` must be an integer in [1, 16777216]. Received: num_examples=0"),
        (lambda: make(units=1), "`num_classes` must be an integer in [2, 16777216]. Received: num_classes=1"),
        (lambda: make(strength=-1.0), "`strength` must be a finite float32 number at least 0. Received: strength=-1.0"),
        (lambda: make(momentum=1.0), "`momentum` must be in [0, 1). Received: momentum=1.0"),
        (
            lambda: make(memory_dtype="int8"),
            "`memory_dtype` must be one of 'float32', 'float16'. Received: memory_dtype='int8'",
        ),
        (
            lambda: make(10**6, 1000),
            (
                "The memory must keep within 2 GiB, and has 3.73; "
                'memory_dtype="float16" takes half of what "float32" does. '
                "Received: num_examples=1000000, num_classes=1000, memory_dtype='float32'"
            ),
        ),
        (
            lambda: make_loss()(LABELS, LOGITS[:, :3], INDEX),
            "`y_pred` must have num_classes=4 classes. Received: shape (12, 3)",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == text


def test_a_round_trip_of_the_config():
    loss = make(strength=5.0, momentum=0.9, memory_dtype="float16", ignore_class=-1, from_logits=True)
    assert EarlyLearningRegularizedCrossentropy.from_config(loss.get_config()).get_config() == loss.get_config()


def test_the_contract_of_indexed_losses(tmp_path):
    def unattached(**kwargs):
        return EarlyLearningRegularizedCrossentropy(EXAMPLES, UNITS, **{"from_logits": True, **kwargs})

    contract.check_unattached_and_unindexed_are_refused(unattached)
    contract.check_saved_and_loaded(unattached, tmp_path)
