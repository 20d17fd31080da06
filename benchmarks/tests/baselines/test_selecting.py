"""The losses that keep the examples of small loss, against NumPy in float64."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import CoTeaching, SelfPacedCrossentropy
from tests.gradients import value_and_gradients
from tests.marks import grid

UNITS, EXAMPLES = 4, 11
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(EXAMPLES, 2, UNITS)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
WEIGHTS = np.where(np.arange(EXAMPLES) % 4 == 1, 0.0, RNG.random(EXAMPLES) + 0.1).astype("float32")
KINDS = {
    "co-teaching": lambda **kwargs: CoTeaching(**kwargs),
    "self-paced": lambda **kwargs: SelfPacedCrossentropy(**kwargs),
}
JOINT = {}  # of losses of two networks that choose together, as a baseline does
SHARE = 0.55


def made(kind, **kwargs):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(UNITS)])
    return KINDS[kind](**{"from_logits": True, "kept_share": SHARE, **kwargs}).attach(model)


def outputs_of(kind, logits=LOGITS):
    return logits[:, 0] if kind == "self-paced" else logits


def number(tensor):
    return float(ops.convert_to_numpy(tensor))


def smallest(losses, counts, share):
    """Which of the examples that count have the smallest losses."""
    among = np.flatnonzero(counts)
    kept = among[np.argsort(losses[among], kind="stable")[: int(np.floor(share * len(among) + 0.5))]]
    return np.isin(np.arange(len(losses)), kept)


def oracle(kind, logits, labels, counts=True, share=SHARE, own=False):
    """The losses, `(B,)` or `(B, M)`, and which are kept.

    A planted bug: with `own` a network learns from its own choice.
    """
    counts = np.broadcast_to(counts, len(labels))
    log_p = special.log_softmax(logits.astype("float64"), axis=-1)
    if kind == "self-paced":
        losses = -log_p[np.arange(len(labels)), labels]
        return losses, counts & (losses <= losses[smallest(losses, counts, share)].max())
    each = [-log_p[np.arange(len(labels)), m, labels] for m in (0, 1)]
    if kind == "co-teaching":
        chosen = [smallest(losses, counts, share) for losses in each]
        return np.stack(each, axis=1), np.stack(chosen if own else chosen[::-1], axis=1)
    losses = JOINT[kind](each, log_p)
    return losses[:, None], smallest(losses, counts, share)[:, None]


def kept_mean(losses, kept, weights=None):
    weights = np.ones(len(losses)) if weights is None else weights.astype("float64")
    return np.sum(np.where(kept, losses, 0.0).reshape(len(losses), -1) * weights[:, None]) / kept.sum()


@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None], np.eye(UNITS)[LABELS]], ids=["(B,)", "(B, 1)", "(B, K)"])
@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_values_of_logits_and_probabilities(kind, labels):
    losses, kept = oracle(kind, outputs_of(kind), LABELS)
    assert 0 < kept.sum() < kept.size
    each = ops.convert_to_numpy(made(kind, reduction="none")(labels, outputs_of(kind)))
    np.testing.assert_allclose(each, np.where(kept, losses, 0.0), rtol=1e-6, atol=1e-6)
    assert number(made(kind)(labels, outputs_of(kind))) == pytest.approx(kept_mean(losses, kept), rel=1e-6, abs=1e-6)
    p = special.softmax(outputs_of(kind), axis=-1)
    assert number(made(kind, from_logits=False)(labels, p)) == pytest.approx(
        kept_mean(losses, kept), rel=1e-6, abs=1e-6
    )
    total = number(made(kind, reduction="sum")(labels, outputs_of(kind)))
    assert total == pytest.approx(np.where(kept, losses, 0.0).sum(), rel=1e-6)


@pytest.mark.planted
def test_choosing_by_the_own_loss_is_told_apart():
    losses, kept = oracle("co-teaching", LOGITS, LABELS)
    wrong = kept_mean(*oracle("co-teaching", LOGITS, LABELS, own=True))
    assert number(made("co-teaching")(LABELS, LOGITS)) != pytest.approx(wrong, rel=1e-2)
    assert wrong < kept_mean(losses, kept)


@pytest.mark.parametrize("shape", [(EXAMPLES,), (EXAMPLES, 1)])
@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_what_has_no_weight_is_not_among_the_kept(kind, shape):
    losses, kept = oracle(kind, outputs_of(kind), LABELS, WEIGHTS > 0)
    weights = WEIGHTS.reshape(shape)
    value = number(made(kind)(LABELS, outputs_of(kind), weights))
    assert value == pytest.approx(kept_mean(losses, kept, WEIGHTS), rel=1e-6)
    assert not kept[WEIGHTS == 0].any()
    tensor = ops.convert_to_tensor(weights)
    made(kind)(LABELS, outputs_of(kind), tensor)
    np.testing.assert_array_equal(ops.convert_to_numpy(tensor), weights)  # Keras multiplies in place on PyTorch


@pytest.mark.parametrize("ignored", [-1, 2])
@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_an_ignored_class_is_not_among_the_kept(kind, ignored):
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, ignored, np.where(LABELS == 2, 1, LABELS))
    losses, kept = oracle(kind, outputs_of(kind), np.maximum(labels, 0), labels != ignored)
    loss = made(kind, ignore_class=ignored)
    for y in (labels, labels[:, None]):
        assert number(loss(y, outputs_of(kind))) == pytest.approx(kept_mean(losses, kept), rel=1e-6)
    assert number(loss(np.full(EXAMPLES, ignored), outputs_of(kind))) == 0.0


@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_gradients_against_finite_differences(kind):
    logits = outputs_of(kind)
    loss = made(kind)
    _, (gradient,) = value_and_gradients(lambda tensors: loss(LABELS, tensors[0]), [logits])
    kept = oracle(kind, logits, LABELS)[1]
    expected = np.empty(logits.shape)
    for index in np.ndindex(logits.shape):
        ends = []
        for sign in (-1, 1):
            point = logits.astype("float64")
            point[index] += sign * 1e-5
            ends.append(kept_mean(oracle(kind, point, LABELS)[0], kept))
        expected[index] = (ends[1] - ends[0]) / 2e-5
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_keeping_all_is_the_plain_mean(kind):
    losses, _ = oracle(kind, outputs_of(kind), LABELS, share=1.0)
    assert number(made(kind, kept_share=1.0)(LABELS, outputs_of(kind))) == pytest.approx(losses.mean(), rel=1e-6)


def test_limits_that_the_papers_state():
    plain = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    first, second = (number(plain(LABELS, LOGITS[:, m])) for m in (0, 1))
    assert number(made("co-teaching", kept_share=1.0)(LABELS, LOGITS)) == pytest.approx((first + second) / 2, rel=1e-6)
    assert number(made("co-teaching")(LABELS, LOGITS[:, :1])) == pytest.approx(first, rel=1e-6)


@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.04, 0), (0.05, 1), (0.55, 6), (1.0, EXAMPLES)])
def test_the_number_kept_is_rounded(kind, share, count):
    each = ops.convert_to_numpy(made(kind, kept_share=share, reduction="none")(LABELS, outputs_of(kind)))
    if kind == "self-paced" and count == 0:
        count = EXAMPLES  # without a percentile there is no threshold yet
    assert np.count_nonzero(each) == count * (2 if kind == "co-teaching" else 1)


@pytest.mark.parametrize("kind", ["co-teaching"])
def test_of_equal_losses_the_first_are_kept(kind):
    logits = np.zeros((6, 2, UNITS), "float32")
    each = ops.convert_to_numpy(made(kind, kept_share=0.5, reduction="none")(np.zeros(6), logits))
    np.testing.assert_array_equal(each[:, 0] > 0, [True, True, True, False, False, False])


@pytest.mark.parametrize("label", [-1, UNITS])
@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_a_label_that_is_no_class_is_not_thrown_out_as_a_large_loss(kind, label):
    labels = np.where(np.arange(EXAMPLES) == 3, label, LABELS)
    assert np.isnan(number(made(kind)(labels, outputs_of(kind))))


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_extremes_are_finite(kind, from_logits):
    logits = (
        1e4 * LOGITS
        if from_logits
        else np.eye(UNITS, dtype="float32")[np.stack([LABELS + 1, LABELS + 2], axis=1) % UNITS]
    )
    loss = made(kind, from_logits=from_logits)
    value, (gradient,) = value_and_gradients(lambda tensors: loss(LABELS, tensors[0]), [outputs_of(kind, logits)])
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", grid(KINDS, span=["co-teaching", "self-paced"]))
def test_half_precision_and_an_empty_batch(kind):
    losses, kept = oracle(kind, outputs_of(kind), LABELS)
    value = made(kind, dtype="bfloat16")(LABELS, outputs_of(kind))
    assert keras.backend.standardize_dtype(value.dtype) == "bfloat16"
    assert number(ops.cast(value, "float32")) == pytest.approx(kept_mean(losses, kept), rel=1e-2)
    assert made(kind, reduction="none")(LABELS[:0], outputs_of(kind)[:0]).shape[0] == 0


def test_the_threshold_moves_as_the_percentile_of_batches():
    loss, threshold = made("self-paced", decay=0.8), np.inf
    for _ in range(4):
        logits, labels = 2 * RNG.normal(size=(9, UNITS)).astype("float32"), RNG.integers(UNITS, size=9)
        losses = oracle("self-paced", logits, labels)[0]
        percentile = np.sort(losses)[int(np.floor(SHARE * 9 + 0.5)) - 1]
        threshold = percentile if np.isinf(threshold) else 0.8 * threshold + 0.2 * percentile
        assert number(loss(labels, logits)) == pytest.approx(losses[losses <= threshold].mean(), rel=1e-5)
        assert number(loss.threshold) == pytest.approx(threshold, rel=1e-5)
    loss.kept_share.assign(1.0)
    assert number(loss(labels, logits)) == pytest.approx(losses.mean(), rel=1e-5)
    assert number(loss.threshold) == pytest.approx(threshold, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_trip_of_the_config(kind):
    loss = made(kind, ignore_class=3)
    again = keras.losses.deserialize(keras.losses.serialize(loss)).attach(keras.Sequential())
    for each in (loss, again):
        each.kept_share.assign(0.5)
    assert number(again(LABELS, outputs_of(kind))) == number(loss(LABELS, outputs_of(kind)))
    assert again.final_share == SHARE


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: CoTeaching(kept_share=1.5), "`kept_share` must be in [0, 1]. Received: kept_share=1.5"),
        (lambda: SelfPacedCrossentropy(0.5, decay=1.0), "`decay` must be in [0, 1). Received: decay=1.0"),
        (lambda: made("self-paced")(LABELS, LOGITS), "`y_pred` must have shape (B, K). Received: shape (11, 2, 4)"),
        (
            lambda: made("co-teaching")(LABELS, LOGITS[:, 0]),
            (
                "`y_pred` must have shape (B, 2, K), those of two networks, as of benchmarks.baselines.PeerNetworks. "
                "Received: shape (11, 4)"
            ),
        ),
        (
            lambda: made("co-teaching")(LABELS, LOGITS, np.ones((11, 2))),
            "`sample_weight` must have shape (B,) or (B, 1). Received: shape (11, 2)",
        ),
        (
            lambda: CoTeaching(0.5)(LABELS, LOGITS),
            "The loss 'co_teaching' must be attached to the model that it trains",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)
