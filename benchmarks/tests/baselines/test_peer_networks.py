"""Two networks trained at once: what the loss, the metrics and the caller see."""

import keras
import numpy as np
import pytest
from keras import layers
from keras_het.training.held_out import HeldOut
from scipy import special

from benchmarks.baselines import CoTeaching, KeptShare, PeerNetworks
from keras_het.layers import HeteroscedasticDense

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(30, 5)).astype("float32"), RNG.integers(3, size=30)


def member(end="head", kind="sequential"):
    """All of one name, and of equal names of layers."""
    last = HeteroscedasticDense(3, name="out") if end == "head" else layers.Dense(3, end, name="out")
    if kind == "sequential":
        return keras.Sequential([keras.Input((5,)), layers.Dense(4, "tanh", name="hidden"), last], name="network")
    inputs = keras.Input((5,))
    return keras.Model(inputs, last(layers.Dense(4, "tanh", name="hidden")(inputs)), name="network")


def made(loss=None, end="head", kind="sequential", rate=0.01):
    pair = PeerNetworks([member(end, kind), member(end, kind)])
    loss = CoTeaching(0.5, from_logits=True) if loss is None else loss
    pair.compile(keras.optimizers.Adam(rate), loss.attach(pair), metrics=["accuracy"])
    return pair


def mean_of(pair, x=X):
    return np.log(np.exp(pair.predict_members(x).astype("float64")).mean(axis=0))


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        pytest.param("head", "functional", marks=pytest.mark.smoke),
        ("softmax", "functional"),
        ("log_softmax", "sequential"),
    ],
)
def test_it_predicts_log_of_the_mean_and_trains_on_both(end, kind):
    pair = made(end=end, kind=kind)
    np.testing.assert_allclose(pair.predict(X, verbose=0), mean_of(pair), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pair.predict_members(X)[1], _log_p(pair.members[1], end), rtol=1e-4, atol=1e-5)
    assert pair(X, training=True).shape == (30, 2, 3)
    before = [network.get_weights() for network in pair.members]
    pair.fit(X, LABELS, batch_size=10, verbose=0)
    for weights, network in zip(before, pair.members, strict=True):
        assert max(np.abs(old - new).max() for old, new in zip(weights, network.get_weights(), strict=True)) > 1e-3


def _log_p(network, end):
    outputs = network.predict(X, verbose=0)
    return np.log(outputs) if end == "softmax" else outputs


@pytest.mark.parametrize(
    ("kind", "y"), [(CoTeaching, LABELS), (CoTeaching, LABELS[:, None]), (CoTeaching, np.eye(3)[LABELS])]
)
def test_metrics_and_validation_are_those_of_the_mean(kind, y):
    """Of networks that do not learn, so that metrics of training are those of their predictions.

    Batches are of 2, and the rest is of 1.
    """
    pair = made(kind(0.5, from_logits=True), end="log_softmax", rate=0.0)
    mean = mean_of(pair)[:27]
    accuracy, loss = np.mean(mean.argmax(1) == LABELS[:27]), -np.mean(mean[np.arange(27), LABELS[:27]])
    arguments = {"batch_size": 2, "epochs": 2, "verbose": 0, "validation_data": (X[:27], y[:27])}
    history = pair.fit(X[:27], y[:27], callbacks=[KeptShare(1)], **arguments).history
    assert history["accuracy"] == history["val_accuracy"] == pytest.approx([accuracy] * 2)
    assert history["val_loss"] == pytest.approx([loss] * 2, rel=1e-5)
    assert history["loss"][1] != pytest.approx(history["loss"][0], rel=1e-2)
    assert pair.evaluate(X[:27], y[:27], verbose=0) == pytest.approx([loss, accuracy], rel=1e-5)


def test_a_round_trip_and_further_training(tmp_path):
    pair = made()
    pair.fit(X, LABELS, verbose=0)
    pair.save(tmp_path / "pair.keras")
    again = keras.saving.load_model(tmp_path / "pair.keras")
    np.testing.assert_array_equal(again.predict(X, verbose=0), pair.predict(X, verbose=0))
    again.loss.attach(again)
    assert np.isfinite(again.fit(X, LABELS, verbose=0).history["loss"]).all()


@pytest.mark.planted
def test_predictions_differ_from_the_planted_mean_of_logs():
    pair = made()
    planted = pair.predict_members(X).mean(axis=0)
    assert np.abs(pair.predict(X, verbose=0) - planted).max() > 1e-3


def test_a_loss_of_probabilities_is_refused():
    pair = made(CoTeaching(0.5))
    with pytest.raises(ValueError, match="`loss` must take log-probabilities"):
        pair.fit(X, LABELS, verbose=0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: PeerNetworks([member()]), "`members` must be two models. Received: 1"),
        (
            lambda: PeerNetworks([member("sigmoid"), member("sigmoid")]),
            "`members` must return probabilities of exclusive classes. Received: link=",
        ),
        (
            lambda: PeerNetworks(
                [keras.Sequential([keras.Input((5,)), HeteroscedasticDense(3, seed=1)]) for _ in range(2)]
            ),
            "heads of different seeds",
        ),
        (lambda: _equal(), "`members` must start with different weights. Received: two models with equal ones"),
        (
            lambda: PeerNetworks(
                [keras.Sequential([keras.Input((7, 5)), layers.Dense(3, "softmax")]) for _ in range(2)]
            ),
            "`members` must return outputs of shape (B, K). Received: shape (None, 7, 3)",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)


def _equal():
    first, second = member("softmax"), member("softmax")
    second.set_weights(first.get_weights())
    return PeerNetworks([first, second])


def test_the_mean_is_in_log_space():
    pair = made(end="log_softmax")
    for network in pair.members:
        network.get_layer("out").kernel.assign(1e4 * network.get_layer("out").kernel)
    outputs = pair.predict(X, verbose=0)
    assert np.isfinite(outputs).all()
    np.testing.assert_allclose(special.logsumexp(outputs, axis=1), 0.0, atol=1e-4)


def test_held_out_labels_score_the_mean():
    pair = made()
    log_p = pair.predict(X, verbose=0)
    assert HeldOut((X, LABELS), "loss")(pair) == pytest.approx(-log_p[np.arange(30), LABELS].mean(), rel=1e-5)


def test_it_must_be_compiled_before_it_is_trained():
    with pytest.raises(ValueError, match="compile"):
        PeerNetworks([member(), member()]).fit(X, LABELS, verbose=0)
