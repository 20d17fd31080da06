"""The mentor: its examples, what it learns of them, and the loss that asks it."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import KeptShare, MentoredCrossentropy, MentorExamples, SelfPacedCrossentropy, mentor_net
from benchmarks.tests.baselines import test_selecting as selecting
from benchmarks.tests.baselines.test_selecting import EXAMPLES, LOGITS, SHARE, UNITS, number, oracle
from tests.gradients import value_and_gradients

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(24, 5)).astype("float32"), RNG.integers(3, size=24)


def weighing(**kwargs):
    """The loss as the tests of small losses make theirs."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(UNITS)])
    return MentoredCrossentropy(**{"from_logits": True, "kept_share": SHARE, **kwargs}).attach(model)


def made(kind=MentoredCrossentropy, kept_share=0.5):
    """A model that does not learn, so that its losses by epoch are known."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.0), kind(kept_share, from_logits=True).attach(model))
    return model


def test_a_mentor_weighs_and_takes_no_gradient():
    mentor = mentor_net(UNITS)
    loss, logits = weighing(mentor=mentor, reduction="none"), LOGITS[:, 0]
    loss.set_epoch(SHARE, 0.25)
    each = ops.convert_to_numpy(loss(selecting.LABELS, logits))
    losses, _ = oracle("self-paced", logits, selecting.LABELS)
    features = np.stack([losses, losses - number(loss.threshold), np.full(EXAMPLES, 0.25)], axis=1)
    weights = mentor.predict([features, np.eye(UNITS)[selecting.LABELS]], verbose=0)[:, 0]
    np.testing.assert_allclose(each, weights * losses, rtol=1e-4)
    mean = weighing(mentor=mentor)
    mean.set_epoch(SHARE, 0.25)
    _, (gradient,) = value_and_gradients(lambda tensors: mean(selecting.LABELS, tensors[0]), [logits])
    p = special.softmax(logits.astype("float64"), axis=-1)
    np.testing.assert_allclose(
        gradient, weights[:, None] * (p - np.eye(UNITS)[selecting.LABELS]) / EXAMPLES, rtol=1e-4, atol=1e-6
    )
    plain = weighing(mentor=mentor, kept_share=1.0)
    assert number(plain(selecting.LABELS, logits)) == pytest.approx(losses.mean(), rel=1e-6)


def test_without_a_mentor_it_is_the_plain_loss_and_knows_the_progress():
    loss, plain = weighing(), selecting.made("self-paced")
    loss.set_epoch(SHARE, 0.25)
    assert number(loss(selecting.LABELS, LOGITS[:, 0])) == number(plain(selecting.LABELS, LOGITS[:, 0]))
    assert number(loss.progress) == 0.25


def test_a_round_trip_of_the_config():
    loss = weighing(mentor=mentor_net(UNITS), decay=0.5)
    again = keras.losses.deserialize(keras.losses.serialize(loss)).attach(keras.Sequential())
    for each in (loss, again):
        each.kept_share.assign(0.5)
    assert number(again(selecting.LABELS, LOGITS[:, 0])) == number(loss(selecting.LABELS, LOGITS[:, 0]))
    assert again.decay == 0.5


def test_what_is_no_mentor_is_refused():
    with pytest.raises(ValueError, match=r"`mentor` must be a keras\.Model or None. Received: a str"):
        MentoredCrossentropy(0.5, mentor="me")


def test_a_mentor_learns_from_a_model_that_learns():
    """Features of the epochs that select, and labels that are told apart by the losses."""
    noisy = np.where(np.arange(24) < 6, (LABELS + 1) % 3, LABELS)
    model, examples = made(), MentorExamples(X[:12], noisy[:12], LABELS[:12])
    model.fit(X, noisy, batch_size=24, epochs=3, verbose=0, callbacks=[KeptShare(1), examples])
    features, vectors = examples.inputs
    losses = special.logsumexp(logits := model.predict(X[:12], verbose=0), axis=1) - logits[np.arange(12), noisy[:12]]
    threshold = float(ops.convert_to_numpy(model.loss.threshold))
    np.testing.assert_allclose(
        features[12:], np.stack([losses, losses - threshold, np.full(12, 2 / 3)], axis=1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(vectors[12:], np.eye(3)[noisy[:12]])
    np.testing.assert_array_equal(examples.is_right, np.tile(np.arange(12) >= 6, 2))


def test_a_mentor_tells_large_losses_from_small_ones():
    losses = RNG.exponential(size=400).astype("float32")
    inputs = [np.stack([losses, losses - 0.7, np.zeros(400)], axis=1), np.eye(3)[RNG.integers(3, size=400)]]
    mentor = mentor_net(3)
    mentor.fit(inputs, (losses < 0.7).astype("float32"), epochs=40, verbose=0)
    assert np.mean((mentor.predict(inputs, verbose=0)[:, 0] > 0.5) == (losses < 0.7)) > 0.95


def test_what_a_mentor_cannot_learn_from_is_refused():
    with pytest.raises(ValueError, match="`noisy_labels` must have an entry for each of the 24 examples"):
        MentorExamples(X, LABELS[:3], LABELS)
    examples = MentorExamples(X, LABELS, LABELS)
    with pytest.raises(ValueError, match="The model must have the loss MentoredCrossentropy"):
        made(SelfPacedCrossentropy).fit(X, LABELS, verbose=0, callbacks=[examples])
    made(kept_share=1.0).fit(X, LABELS, verbose=0, callbacks=[examples])
    with pytest.raises(ValueError, match="Training must have an epoch that keeps not all examples"):
        examples.inputs  # noqa: B018
