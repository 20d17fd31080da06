"""Data parameters, against steps in NumPy, float64, whose gradients are finite differences of the loss."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import DataParametersCrossentropy
from keras_het.losses import with_index
from tests.gradients import value_and_gradients
from tests.losses import indexed_contract as contract
from tests.losses.indexed_contract import EXAMPLES, LABELS, LOGITS, UNITS, make_model, number, without_state

pytestmark = pytest.mark.once

RNG = np.random.default_rng(1)
RATES = {"instance_rate": 0.3, "class_rate": 0.2}


def make_loss(**kwargs):
    return DataParametersCrossentropy(EXAMPLES, UNITS, **{"from_logits": True, **kwargs})


def oracle_loss(s_n, s_k, logits, label, start):
    """The loss of one example, float64."""
    sigma = start[0] * np.exp(s_n) + start[1] * np.exp(s_k[label])
    return -special.log_softmax(np.asarray(logits, "float64") / sigma)[label]


def oracle_step(s_n, s_k, logits, labels, index, rates, penalty=0.0, largest=20.0, planted=1.0):
    """The losses of a batch, and s after it; a batch has every example once."""
    learned = [float(rate > 0) for rate in rates]
    start, limit, e = [one / sum(learned) for one in learned], np.log(largest), 1e-6
    losses = np.array([oracle_loss(s_n[i], s_k, z, y, start) for i, z, y in zip(index, logits, labels, strict=True)])
    new_n, new_k, slopes = s_n.copy(), s_k.copy(), [[] for _ in s_k]
    for i, z, y in zip(index, logits, labels, strict=True):
        slope = (oracle_loss(s_n[i] + e, s_k, z, y, start) - oracle_loss(s_n[i] - e, s_k, z, y, start)) / (2 * e)
        new_n[i] = np.clip(s_n[i] - rates[0] * (planted * slope + penalty * s_n[i]), -limit, limit)
        near = np.eye(len(s_k))[y] * e
        slopes[y].append(
            (oracle_loss(s_n[i], s_k + near, z, y, start) - oracle_loss(s_n[i], s_k - near, z, y, start)) / (2 * e)
        )
    for k, found in enumerate(slopes):
        if found:
            new_k[k] = np.clip(s_k[k] - rates[1] * (np.mean(found) + penalty * s_k[k]), -limit, limit)
    return losses, new_n, new_k


def distance_to_oracle(planted=1.0, **kwargs):
    """How far losses and temperatures are from the oracle, over eight batches."""
    arguments = {**RATES, **kwargs}
    loss = make_loss(reduction="none", **arguments).attach(make_model())
    rates, rest = (arguments.pop("instance_rate"), arguments.pop("class_rate")), arguments
    s_n, s_k, worst, rng = np.zeros(EXAMPLES), np.zeros(UNITS), 0.0, np.random.default_rng(2)
    for _ in range(8):
        index = rng.permutation(EXAMPLES)[:7]
        logits = (3 * rng.normal(size=(7, UNITS))).astype("float32")
        expected, s_n, s_k = oracle_step(s_n, s_k, logits, LABELS[index], index, rates, planted=planted, **rest)
        each = ops.convert_to_numpy(loss(LABELS[index], logits, with_index(EXAMPLES)[index]))
        worst = max(worst, np.max(np.abs(each - expected) / (1 + expected)))
    learned = [float(rate > 0) for rate in rates]
    for ours, s, one in ((loss.instance_temperatures, s_n, learned[0]), (loss.class_temperatures, s_k, learned[1])):
        theirs = one / sum(learned) * np.exp(s)
        worst = max(worst, np.max(np.abs(ops.convert_to_numpy(ours) - theirs) / (1 + theirs)))
    return worst


@pytest.mark.smoke
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"penalty": 0.3}, {"largest": 1.5}, {"class_rate": 0.0}, {"instance_rate": 0.0}],
    ids=lambda k: str(k) or "plain",
)
def test_losses_and_temperatures_of_many_steps(kwargs):
    assert distance_to_oracle(**kwargs) < 2e-6


@pytest.mark.planted
def test_a_planted_bug_is_found():
    assert distance_to_oracle(planted=1.01) > 1e-4


def test_the_gradient_is_that_of_the_loss_at_the_temperature():
    loss = make_loss(**RATES).attach(make_model())
    loss(LABELS, 3 * LOGITS, with_index(EXAMPLES))  # temperatures that are not 1
    s_n = np.log(2 * ops.convert_to_numpy(loss.instance_temperatures).astype("float64"))
    s_k = np.log(2 * ops.convert_to_numpy(loss.class_temperatures).astype("float64"))

    def oracle(logits):
        return np.mean([oracle_loss(s, s_k, z, y, (0.5, 0.5)) for s, z, y in zip(s_n, logits, LABELS, strict=True)])

    _, (gradient,) = value_and_gradients(lambda t: without_state(loss, LABELS, t[0], with_index(EXAMPLES)), [LOGITS])
    for place in np.ndindex(LOGITS.shape):
        near = np.zeros(LOGITS.shape)
        near[place] = 1e-5
        expected = (oracle(LOGITS + near) - oracle(LOGITS - near)) / 2e-5
        assert gradient[place] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_it_starts_as_the_plain_crossentropy_and_label_vectors_mix_classes():
    loss, plain = make_loss().attach(make_model()), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert number(loss(LABELS, LOGITS, with_index(EXAMPLES))) == pytest.approx(number(plain(LABELS, LOGITS)), rel=1e-6)
    loss = make_loss(instance_rate=0.0, class_rate=0.5, reduction="none").attach(make_model())
    loss(LABELS, 3 * LOGITS, with_index(EXAMPLES))
    sigma = ops.convert_to_numpy(loss.class_temperatures).astype("float64")
    soft = RNG.dirichlet(np.ones(UNITS), size=EXAMPLES)
    each = ops.convert_to_numpy(loss(soft, LOGITS, with_index(EXAMPLES)))
    expected = -np.sum(soft * special.log_softmax(LOGITS / (soft @ sigma)[:, None], axis=-1), axis=-1)
    np.testing.assert_allclose(each, expected, rtol=1e-5)


@pytest.mark.parametrize("from_logits", [True, False])
def test_extremes_are_finite(from_logits):
    loss = make_loss(from_logits=from_logits).attach(make_model())
    outputs = 1e4 * LOGITS if from_logits else np.eye(UNITS, dtype="float32")[(LABELS + 1) % UNITS]
    for _ in range(3):
        loss(LABELS, outputs, with_index(EXAMPLES))
    value, (gradient,) = value_and_gradients(
        lambda t: without_state(loss, LABELS, t[0], with_index(EXAMPLES)), [outputs]
    )
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert np.isfinite(ops.convert_to_numpy(loss.instance_temperatures)).all()


def test_only_rows_of_the_batch_move():
    loss = make_loss(**RATES, penalty=0.1).attach(make_model())
    for _ in range(3):
        loss(LABELS[:5], LOGITS[:5], with_index(EXAMPLES)[:5])
    instances, classes = (ops.convert_to_numpy(part) for part in (loss.instance_temperatures, loss.class_temperatures))
    assert np.flatnonzero(instances != 0.5).tolist() == list(range(5))
    assert set(np.flatnonzero(classes != 0.5)) == set(LABELS[:5])


def test_wrong_labels_end_with_larger_temperatures_than_right_ones():
    """AUC of the temperature as a sign of a wrong label: chance is .5, here with a standard error of .02."""
    rng = np.random.default_rng(0)
    true = rng.integers(UNITS, size=800)
    x = (3 * np.eye(UNITS)[true] + rng.normal(size=(800, UNITS))).astype("float32")
    wrong = rng.random(800) < 0.3
    noisy = np.where(wrong, (true + rng.integers(1, UNITS, size=800)) % UNITS, true)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((UNITS,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(UNITS)])
    loss = DataParametersCrossentropy(800, UNITS, from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss.attach(model))
    model.fit(x, noisy, sample_weight=with_index(800), batch_size=64, epochs=10, verbose=0)
    sigma = ops.convert_to_numpy(loss.instance_temperatures)
    auc = np.mean(sigma[wrong][:, None] > sigma[~wrong][None])
    assert auc > 0.9
    assert np.median(sigma[wrong]) > 1.5 * np.median(sigma[~wrong])


def test_the_contract_of_indexed_losses(tmp_path):
    contract.check_unattached_and_unindexed_are_refused(make_loss)
    contract.check_without_index_it_is_the_plain_crossentropy(make_loss)
    contract.check_labels_of_any_form_and_dtype_agree(make_loss)
    contract.check_ignored_examples_and_weights(make_loss)
    contract.check_empty_and_single_batches(make_loss)
    contract.check_saved_and_loaded(make_loss, tmp_path)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_classes": 1}, "`num_classes` must be an integer in [2, 16777216]. Received: num_classes=1"),
        (
            {"instance_rate": -1},
            "`instance_rate` must be a finite float32 number at least 0. Received: instance_rate=-1",
        ),
        ({"largest": 1.0}, "`largest` must be a finite float32 number greater than 1. Received: largest=1.0"),
        (
            {"instance_rate": 0, "class_rate": 0},
            "`instance_rate` or `class_rate` must be greater than 0. Received: instance_rate=0, class_rate=0",
        ),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError) as error:
        DataParametersCrossentropy(**{"num_examples": 3, "num_classes": 3, **kwargs})
    assert str(error.value) == message


def test_another_number_of_classes_is_refused():
    loss = DataParametersCrossentropy(EXAMPLES, 7, from_logits=True).attach(make_model())
    with pytest.raises(ValueError) as error:
        loss(LABELS, LOGITS, with_index(EXAMPLES))
    assert str(error.value) == f"`y_pred` must have shape (B, 7). Received: shape {LOGITS.shape}"
