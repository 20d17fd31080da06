"""The parts of an ensemble's uncertainty against sums written the plain way in float64."""

import keras
import numpy as np
import pytest
from keras import layers
from scipy.special import xlogy

from benchmarks.lib.members import ensemble_uncertainty
from keras_het.models import DeepEnsemble

pytestmark = pytest.mark.once

X = np.random.default_rng(0).normal(size=(9, 3)).astype("float32")


def ensemble(activation, places=()):
    members = []
    for _ in range(3):
        inputs = keras.Input((*places, 3))
        dense = layers.Dense(4, activation, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0))
        members.append(keras.Model(inputs, dense(inputs)))
    return DeepEnsemble(members)


def probabilities(model, x):
    return np.stack([member.predict(x, verbose=0) for member in model.members]).astype("float64")


@pytest.mark.planted
@pytest.mark.smoke
def test_parts_of_exclusive_classes():
    model = ensemble("softmax")
    p = probabilities(model, X)
    found = ensemble_uncertainty(model, X, batch_size=4)
    mean, entropies = p.mean(0), [[-sum(q * np.log(q) for q in row) for row in member] for member in p]
    np.testing.assert_allclose(found.total, [-sum(q * np.log(q) for q in row) for row in mean], rtol=1e-5)
    np.testing.assert_allclose(found.within, np.mean(entropies, axis=0), rtol=1e-5)
    divergence = np.mean([(member * np.log(member / mean)).sum(-1) for member in p], axis=0)
    np.testing.assert_allclose(found.between, divergence, rtol=1e-4, atol=1e-6)
    assert found.between.min() > 0.01
    assert found.total.max() < np.log(4)
    logs = np.log(p).mean(0)  # planted: the mean of the logs is that of no distribution
    assert np.abs(-(np.exp(logs) * logs).sum(-1) - found.total).max() > 0.05


def test_parts_of_labels_that_are_not_exclusive_are_summed():
    model = ensemble("sigmoid")
    p = probabilities(model, X)

    def entropy(q):
        return -(xlogy(q, q) + xlogy(1 - q, 1 - q)).sum(-1)

    found = ensemble_uncertainty(model, X)
    np.testing.assert_allclose(found.total, entropy(p.mean(0)), rtol=1e-4)
    np.testing.assert_allclose(found.within, entropy(p).mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.between, found.total - found.within, atol=1e-12)


def test_members_that_agree_have_nothing_between_them():
    model = ensemble("log_softmax")
    for member in model.members[1:]:
        member.set_weights(model.members[0].get_weights())
    found = ensemble_uncertainty(model, X)
    np.testing.assert_allclose(found.between, 0.0, atol=1e-7)
    assert found.between.min() >= 0
    assert found.within.min() > 0


def test_members_that_are_sure_of_different_classes():
    """By hand: log 2 between two members, and none within them."""
    members = [
        keras.Sequential([keras.Input((3,)), layers.Dense(2, "log_softmax", bias_initializer=bias)])
        for bias in ("zeros", "zeros")
    ]
    for member, bias in zip(members, ([1e3, 0.0], [0.0, 1e3]), strict=True):
        member.set_weights([np.zeros((3, 2)), np.array(bias)])
    found = ensemble_uncertainty(DeepEnsemble(members), X[:1])
    np.testing.assert_allclose(
        [found.total[0], found.within[0], found.between[0]], [np.log(2), 0.0, np.log(2)], atol=1e-7
    )


def test_places_and_data_sets():
    model = ensemble("softmax", places=(2,))
    x = np.stack([X, X[::-1]], axis=1)
    found = ensemble_uncertainty(model, x)
    assert found.total.shape == (9, 2)
    of_batches = ensemble_uncertainty(model, [(x[:4], None), (x[4:], None)].__iter__())
    np.testing.assert_allclose(of_batches.between, found.between, rtol=1e-4, atol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match=r"`model` must be a DeepEnsemble. Received: a Sequential"):
        ensemble_uncertainty(keras.Sequential([layers.Dense(2)]), X)
    with pytest.raises(ValueError, match=r"`x` must have at least one example. Received: none"):
        ensemble_uncertainty(ensemble("softmax"), X[:0])
