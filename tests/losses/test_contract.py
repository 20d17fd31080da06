"""Contract of every loss for noisy labels."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from tests.common import assert_finite, compiled, finite_differences, reloaded, to_numpy
from tests.gradients import value_and_gradients
from tests.losses.cases import CASES, EXAMPLES, LABELS, LOGITS, UNITS, VECTORS, WEIGHTS, expected
from tests.marks import grid

PROBABILITIES = special.softmax(LOGITS.astype("float64"), axis=-1).astype("float32")
every_loss = pytest.mark.parametrize(
    "case", grid(CASES, span=["forward", "smoothed", "generalized", "symmetric"]), indirect=True
)


@pytest.fixture
def case(request):
    return CASES[request.param]


def check(value, exact):
    assert_allclose(to_numpy(ops.cast(value, "float32")), exact, rtol=1e-6, atol=1e-6)


def check_gradient(function, oracle, point):
    _, (gradient,) = value_and_gradients(lambda tensors: function(tensors[0]), [point])
    assert_allclose(gradient, finite_differences(oracle, point), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "labels", [LABELS, LABELS[:, None], np.eye(UNITS)[LABELS], VECTORS], ids=["(N,)", "(N, 1)", "one-hot", "(N, K)"]
)
@every_loss
def test_values_of_logits_and_probabilities_with_and_without_weights(case, labels):
    exact = expected(case.oracle, labels[:, 0] if labels.shape[-1] == 1 else labels, LOGITS)
    check(case.make(from_logits=True, reduction="none")(labels, LOGITS), exact)
    check(case.make(reduction="none")(labels, PROBABILITIES), exact)
    check(case.make(from_logits=True)(labels, special.log_softmax(LOGITS, axis=-1)), exact.mean())
    for weights in (WEIGHTS, WEIGHTS[:, None]):
        check(case.make(from_logits=True)(labels, LOGITS, sample_weight=weights), np.mean(WEIGHTS * exact))
    assert case.make(from_logits=True, reduction="none")(labels[:0], LOGITS[:0]).shape == (0,)


@every_loss
@pytest.mark.on_tensorflow
def test_leading_axes_and_masked_steps(case):
    pixels, labels = np.stack([LOGITS, LOGITS[::-1]]), np.stack([LABELS, LABELS])
    exact = expected(case.oracle, labels, pixels)
    for y in (labels, labels[..., None], np.eye(UNITS)[labels]):
        check(case.make(from_logits=True, reduction="none")(y, pixels), exact)
    steps = keras.layers.Masking()(np.concatenate([LOGITS, np.zeros((2, UNITS), "float32")])[None])
    labels = np.concatenate([LABELS, [0, 1]])[None]
    check(case.make(from_logits=True)(labels, steps), expected(case.oracle, LABELS, LOGITS).mean())


@pytest.mark.parametrize("ignored", [-1, 255, 2])
@every_loss
def test_an_ignored_class_counts_neither_in_the_sum_nor_in_the_mean_nor_in_the_gradient(case, ignored):
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, ignored, np.where(LABELS == 2, 1, LABELS))
    kept = labels != ignored
    exact = expected(case.oracle, labels[kept], LOGITS[kept])
    loss = case.make(from_logits=True, ignore_class=ignored)
    for y in (labels, labels[:, None]):
        check(loss(y, LOGITS), exact.mean())
    for weights in (WEIGHTS, WEIGHTS[:, None]):
        check(loss(labels, LOGITS, sample_weight=weights), np.mean(WEIGHTS[kept] * exact))
    check(case.make(from_logits=True, ignore_class=ignored, reduction="sum")(labels, LOGITS), exact.sum())
    check(loss(np.full(EXAMPLES, ignored), LOGITS), 0.0)
    _, (gradient,) = value_and_gradients(lambda tensors: loss(labels, tensors[0]), [LOGITS])
    assert_array_equal(gradient[~kept], 0.0)
    assert (np.abs(gradient[kept]).sum(-1) > 0).all()


@pytest.mark.parametrize("labels", [LABELS, VECTORS], ids=["(N,)", "(N, K)"])
@every_loss
def test_gradients_are_finite_differences_of_the_oracle(case, labels):
    check_gradient(
        lambda logits: case.make(from_logits=True)(labels, logits),
        lambda point: expected(case.oracle, labels, point).mean(),
        LOGITS,
    )
    check_gradient(
        lambda p: case.make()(labels, p),
        lambda point: expected(case.oracle, labels, np.log(point)).mean(),
        PROBABILITIES.clip(0.01),
    )


@pytest.mark.parametrize("from_logits", [True, False])
@every_loss
def test_extremes_are_finite(case, from_logits):
    outputs = 1e4 * LOGITS if from_logits else np.eye(UNITS, dtype="float32")[(LABELS + 1) % UNITS]
    for labels in (LABELS, VECTORS):
        value, (gradient,) = value_and_gradients(
            lambda tensors, labels=labels: case.make(from_logits=from_logits)(labels, tensors[0]), [outputs]
        )
        assert_finite(value, [gradient])


@pytest.mark.parametrize("label", [-1, UNITS])
@every_loss
def test_labels_out_of_range_are_not_taken_for_zero_loss(case, label):
    each = to_numpy(case.make(from_logits=True, reduction="none")(np.array([0] * (EXAMPLES - 1) + [label]), LOGITS))
    assert np.isfinite(each[:-1]).all()
    assert np.isnan(each[-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@every_loss
def test_half_precision_is_rounded_once(case, dtype):
    value = case.make(from_logits=True, dtype=dtype)(LABELS, LOGITS)
    assert keras.backend.standardize_dtype(value.dtype) == dtype
    exact = ops.cast(ops.cast(expected(case.oracle, LABELS, LOGITS).mean(), dtype), "float32")
    assert float(ops.cast(value, "float32")) == pytest.approx(float(exact), rel=0.01 if dtype == "bfloat16" else 0.001)


@every_loss
def test_fit_and_a_round_trip_of_the_config(case, tmp_path):
    loss = case.make(from_logits=True, ignore_class=3)
    model = compiled(keras.Sequential([keras.Input((UNITS,)), keras.layers.Dense(UNITS)]), "sgd", loss)
    history = model.fit(LOGITS, LABELS, epochs=2, verbose=0, sample_weight=WEIGHTS).history["loss"]
    assert np.isfinite(history).all()
    assert history[1] != history[0]
    again = reloaded(model, tmp_path).loss
    assert again.get_config() == loss.get_config()
    check(again(LABELS, LOGITS), float(loss(LABELS, LOGITS)))
