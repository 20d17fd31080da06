"""The losses of noisy labels, against NumPy in float64."""

import copy

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from keras_het import label_noise
from keras_het.layers import NoiseTransition
from keras_het.losses import BackwardCorrectedCrossentropy, BootstrappedCrossentropy, ForwardCorrectedCrossentropy
from tests.gradients import value_and_gradients

UNITS, EXAMPLES = 4, 7
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
T = 0.6 * np.eye(UNITS) + 0.4 * RNG.dirichlet(np.ones(UNITS), size=UNITS)
WEIGHTS = RNG.random(EXAMPLES).astype("float32")
KINDS = {
    "forward": lambda **kwargs: ForwardCorrectedCrossentropy(T, **kwargs),
    "backward": lambda **kwargs: BackwardCorrectedCrossentropy(T, **kwargs),
    "soft": lambda **kwargs: BootstrappedCrossentropy(0.7, **kwargs),
    "hard": lambda **kwargs: BootstrappedCrossentropy(0.7, hard=True, **kwargs),
}


def oracle(kind, logits, labels):
    """The loss of every example, float64."""
    log_p = special.log_softmax(logits.astype("float64"), axis=-1)
    one_hot = np.eye(UNITS)[labels]
    if kind == "forward":
        return -np.log(np.sum(one_hot * (np.exp(log_p) @ T), axis=-1))
    if kind == "backward":
        return -np.sum((one_hot @ np.linalg.inv(T)) * log_p, axis=-1)
    own = np.eye(UNITS)[log_p.argmax(-1)] if kind == "hard" else np.exp(log_p)
    return -np.sum((0.7 * one_hot + 0.3 * own) * log_p, axis=-1)


def number(tensor):
    return float(ops.convert_to_numpy(tensor))


@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None], np.eye(UNITS)[LABELS]], ids=["(N,)", "(N, 1)", "(N, K)"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_of_logits_and_probabilities(kind, labels):
    expected = oracle(kind, LOGITS, LABELS)
    each = KINDS[kind](from_logits=True, reduction="none")(labels, LOGITS)
    np.testing.assert_allclose(ops.convert_to_numpy(each), expected, rtol=1e-5, atol=1e-6)
    assert number(KINDS[kind]()(labels, special.softmax(LOGITS, axis=-1))) == pytest.approx(expected.mean(), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_sample_weights_and_leading_axes(kind):
    expected = oracle(kind, LOGITS, LABELS)
    for weights in (WEIGHTS, WEIGHTS[:, None]):
        value = KINDS[kind](from_logits=True)(LABELS, LOGITS, sample_weight=weights)
        assert number(value) == pytest.approx(np.mean(WEIGHTS * expected), rel=1e-5)
    pixels = KINDS[kind](from_logits=True)(np.stack([LABELS, LABELS]), np.stack([LOGITS, LOGITS]))
    assert number(pixels) == pytest.approx(expected.mean(), rel=1e-5)


@pytest.mark.parametrize("ignored", [-1, 255, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_an_ignored_class_counts_neither_in_the_sum_nor_in_the_mean(kind, ignored):
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, ignored, np.where(LABELS == 2, 1, LABELS))
    kept = labels != ignored
    expected = oracle(kind, LOGITS[kept], labels[kept])
    loss = KINDS[kind](from_logits=True, ignore_class=ignored)
    for y in (labels, labels[:, None]):
        assert number(loss(y, LOGITS)) == pytest.approx(expected.mean(), rel=1e-5)
    for weights in (WEIGHTS, WEIGHTS[:, None]):
        assert number(loss(labels, LOGITS, sample_weight=weights)) == pytest.approx(np.mean(WEIGHTS[kept] * expected), rel=1e-5)
    total = KINDS[kind](from_logits=True, ignore_class=ignored, reduction="sum")(labels, LOGITS)
    assert number(total) == pytest.approx(expected.sum(), rel=1e-5)
    assert number(loss(np.full(EXAMPLES, ignored), LOGITS)) == 0.0


def test_ignoring_agrees_with_keras():
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, -1, LABELS)
    for reduction in ("sum_over_batch_size", "sum", "mean_with_sample_weight"):
        ours = BootstrappedCrossentropy(1.0, from_logits=True, ignore_class=-1, reduction=reduction)
        theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1, reduction=reduction)
        for weights in (None, WEIGHTS, WEIGHTS[:, None]):
            assert number(ours(labels, LOGITS, weights)) == pytest.approx(number(theirs(labels, LOGITS, weights)), rel=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("ignored", [None, 2])
def test_masks_agree_with_keras(policy, ignored):
    tokens, labels = np.array([[1, 2, 3, 0], [2, 0, 0, 0]]), np.array([[0, 2, 1, 3], [1, 2, 0, 0]])
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Embedding(4, 8, mask_zero=True, dtype=policy), keras.layers.Dense(UNITS, dtype=policy)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    ours = BootstrappedCrossentropy(1.0, from_logits=True, ignore_class=ignored)
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
    values = []
    for loss in (ours, theirs):
        model.compile("sgd", loss)
        values.append(model.evaluate(tokens, labels, verbose=0))
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    assert values[0] != pytest.approx(np.mean(number(loss(labels, model(tokens) * 1.0))), rel=1e-3)  # what it is without the mask


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_against_finite_differences(kind):
    loss = KINDS[kind](from_logits=True)
    _, (gradient,) = value_and_gradients(lambda tensors: loss(LABELS, tensors[0]), [LOGITS])
    for index in np.ndindex(LOGITS.shape):
        ends = []
        for sign in (-1, 1):
            point = LOGITS.astype("float64")
            point[index] += sign * 1e-5
            ends.append(oracle(kind, point, LABELS).mean())
        assert gradient[index] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_extremes_are_finite(kind, from_logits):
    outputs = 1e4 * LOGITS if from_logits else np.eye(UNITS, dtype="float32")[(LABELS + 1) % UNITS]
    value, (gradient,) = value_and_gradients(lambda tensors: KINDS[kind](from_logits=from_logits)(LABELS, tensors[0]), [outputs])
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_the_identity_is_the_plain_crossentropy(kind):
    plain = special.logsumexp(LOGITS, axis=-1) - LOGITS[np.arange(EXAMPLES), LABELS]
    loss = {"forward": ForwardCorrectedCrossentropy, "backward": BackwardCorrectedCrossentropy}[kind]
    assert number(loss(np.eye(UNITS), from_logits=True)(LABELS, LOGITS)) == pytest.approx(plain.mean(), rel=1e-5)


def test_the_forward_correction_is_the_layer_with_a_fixed_t():
    layer = NoiseTransition(UNITS, transition=T, trainable=False)
    noisy = layer(ops.log_softmax(LOGITS), training=True)
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(LABELS, noisy)
    assert number(KINDS["forward"](from_logits=True)(LABELS, LOGITS)) == pytest.approx(number(theirs), rel=1e-5)


def test_the_backward_correction_is_unbiased_and_its_transpose_would_not_be():
    clean = special.logsumexp(LOGITS, axis=-1)[:, None] - LOGITS

    def mean_over_noise(matrix):
        loss = BackwardCorrectedCrossentropy(matrix, from_logits=True, reduction="none")
        each = np.stack([ops.convert_to_numpy(loss(np.full(EXAMPLES, j), LOGITS)) for j in range(UNITS)], axis=-1)
        return each @ T.T

    np.testing.assert_allclose(mean_over_noise(T), clean, rtol=1e-4, atol=1e-5)
    assert np.abs(mean_over_noise(T.T / T.T.sum(axis=1, keepdims=True)) - clean).max() > 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch(kind):
    each = KINDS[kind](from_logits=True, reduction="none")(LABELS[:0], LOGITS[:0])
    assert each.shape == (0,)


@pytest.mark.parametrize("label", [-1, UNITS])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_out_of_range_are_not_taken_for_zero_loss(kind, label):
    labels = np.array([0] * (EXAMPLES - 1) + [label])
    assert np.isnan(number(KINDS[kind](from_logits=True)(labels, LOGITS)))


@pytest.mark.parametrize(("dtype", "units"), [("bfloat16", 1000), ("float16", 3000)])
@pytest.mark.parametrize("way", ["dtype", "floatx"])
def test_labels_stay_integers_in_half_precision(dtype, units, way):
    """bfloat16 has no integers between 256 and 258, float16 none between 2048 and 2050."""
    label = units - 699  # 301 and 2301: neither is a number of its dtype
    logits, before = 40.0 * np.eye(units, dtype="float32")[[label]], keras.config.floatx()
    keras.config.set_floatx(dtype if way == "floatx" else before)
    try:
        for ignored in (None, label - 1, label + 1):
            loss = BootstrappedCrossentropy(1.0, from_logits=True, ignore_class=ignored, dtype=dtype if way == "dtype" else None)
            for y in ([label], [[label]]):
                value = loss(np.array(y), logits)
                assert number(ops.cast(value, "float32")) < 1e-3
                assert keras.backend.standardize_dtype(value.dtype) == dtype
        assert np.isnan(number(ops.cast(loss(np.array([units]), logits), "float32")))
    finally:
        keras.config.set_floatx(before)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight", "none"])
def test_half_precision_reduces_as_keras_does(reduction):
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, -1, LABELS)
    arguments = {"from_logits": True, "ignore_class": -1, "reduction": reduction, "dtype": "bfloat16"}
    ours, theirs = BootstrappedCrossentropy(1.0, **arguments), keras.losses.SparseCategoricalCrossentropy(**arguments)
    for weights in (None, WEIGHTS):
        values = [ops.convert_to_numpy(ops.cast(loss(labels, LOGITS, weights), "float32")) for loss in (ours, theirs)]
        np.testing.assert_allclose(*values, rtol=0.03, atol=0.02)  # theirs is rounded to 8 bits at every step


def test_ignoring_makes_no_layer_at_a_call(monkeypatch):
    made, make = [], keras.layers.Layer.__init__
    monkeypatch.setattr(keras.layers.Layer, "__init__", lambda self, *args, **kwargs: (made.append(self), make(self, *args, **kwargs))[1])
    loss = BootstrappedCrossentropy(1.0, from_logits=True, ignore_class=2)
    for again in (loss, copy.deepcopy(loss)):
        assert number(again(LABELS, LOGITS)) == number(loss(LABELS, LOGITS))
    assert made == []


def test_a_symbolic_loss_ignores_too():
    """In a functional graph, where a layer keeps every call; twice, so that one graph does not see the other's."""
    for _ in range(2):
        y, logits = keras.Input((), dtype="int32"), keras.Input((UNITS,))
        outputs = BootstrappedCrossentropy(1.0, from_logits=True, ignore_class=2, reduction="none")(y, logits)
        each = keras.Model([y, logits], outputs)([LABELS, LOGITS])
        np.testing.assert_array_equal(ops.convert_to_numpy(each)[LABELS == 2], 0.0)
        assert np.all(ops.convert_to_numpy(each)[LABELS != 2] > 0)


@pytest.mark.parametrize("kind", KINDS)
def test_fit_and_a_round_trip_of_the_config(kind, tmp_path):
    loss = KINDS[kind](from_logits=True, ignore_class=3)
    model = keras.Sequential([keras.Input((UNITS,)), keras.layers.Dense(UNITS)])
    model.compile("sgd", loss)
    history = model.fit(LOGITS, LABELS, epochs=2, verbose=0, sample_weight=WEIGHTS).history["loss"]
    assert np.isfinite(history).all()
    assert history[1] != history[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").loss
    assert again.get_config() == loss.get_config()
    assert number(again(LABELS, LOGITS)) == number(loss(LABELS, LOGITS))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ForwardCorrectedCrossentropy(np.ones((2, 3))), "`transition` must be a square matrix. Received: shape (2, 3)"),
        (lambda: BackwardCorrectedCrossentropy([[1.1, -0.1], [0, 1]]), "must not be negative. Received: -0.1 at [0, 1]"),
        (lambda: BackwardCorrectedCrossentropy([[1, 0], [0.5, 0.4]]), "Received: row 1 sums to 0.9"),
        (lambda: BackwardCorrectedCrossentropy([[0.5, 0.5]] * 2), "condition number of at most 100 to be inverted. Received: inf"),
        (lambda: BackwardCorrectedCrossentropy(label_noise.pair_flip(4, 0.499)), "Received: 500"),
        (lambda: ForwardCorrectedCrossentropy(np.eye(3))(LABELS, LOGITS), "`transition` must have shape (4, 4). Received: shape (3, 3)"),
        (lambda: BootstrappedCrossentropy(1.5), "`beta` must be in [0, 1]. Received: beta=1.5"),
        (lambda: BootstrappedCrossentropy(from_logits="yes"), "`from_logits` must be True or False. Received: from_logits='yes'"),
        (lambda: BootstrappedCrossentropy(ignore_class=1)(np.eye(UNITS), np.eye(UNITS)), "`ignore_class` must be None for label vectors"),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)


def test_a_larger_condition_number_can_be_allowed():
    assert BackwardCorrectedCrossentropy(label_noise.pair_flip(4, 0.499), max_condition=1e3).max_condition == 1e3


def test_the_default_weights_are_those_of_the_paper():
    assert BootstrappedCrossentropy().beta == 0.95
    assert BootstrappedCrossentropy(hard=True).beta == 0.8
