"""What a joint model says of label vectors, against sums over all vectors."""

import itertools

import keras
import numpy as np
import pytest

from keras_het.explain import covariance, joint_labels
from keras_het.layers import HeteroscedasticDense, JointHeteroscedasticDense
from keras_het.models import DistributionModel

pytestmark = pytest.mark.once

LABELS, EXAMPLES = 3, 4
VECTORS = np.array(list(itertools.product((0, 1), repeat=LABELS)))
X = np.random.default_rng(0).normal(size=(EXAMPLES, 2)).astype("float32")


def joint_model(num_factors=2):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    model = DistributionModel(inputs, JointHeteroscedasticDense(LABELS, num_factors, seed=0)(inputs))
    model.set_weights([10 * w if w.ndim else w for w in model.get_weights()])  # much noise, and no bias of zeros
    return model


@pytest.fixture(scope="module", params=[0, 2])
def found(request):
    return joint_labels(joint_model(request.param), X, num_samples=1024)


@pytest.fixture
def of_each(found):
    """The probability of every vector for every example, `(8, N)`."""
    return np.exp([found.log_prob(vector) for vector in VECTORS])


def test_the_probabilities_of_all_vectors(found, of_each):
    np.testing.assert_allclose(of_each.sum(0), 1.0, atol=1e-4)
    np.testing.assert_allclose(np.einsum("mn,mc->nc", of_each, VECTORS), found.probabilities, atol=2e-3)
    np.testing.assert_array_equal(found.most_likely(VECTORS), of_each.argmax(0))


def test_each_label_given_the_others(found, of_each):
    y = VECTORS[[1, 6, 3, 7]].copy()
    y[0, 0] = -1
    p = found.given_others(y)
    for example, label in itertools.product(range(EXAMPLES), range(LABELS)):
        known = np.array([(y[example] == v) | (y[example] == -1) | (np.arange(LABELS) == label) for v in VECTORS]).all(
            1
        )
        share = of_each[known & (VECTORS[:, label] == 1), example].sum() / of_each[known, example].sum()
        assert p[example, label] == pytest.approx(share, abs=1e-4)


def test_samples_have_the_probabilities(found, of_each):
    samples = found.sample(4000, seed=1)
    assert samples.dtype == "int8"
    shares = np.array([(samples == vector).all(-1).mean(0) for vector in VECTORS])
    np.testing.assert_allclose(shares, of_each, atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_array_equal(found.sample(2, seed=1), samples[:2])


def test_the_covariance_of_a_joint_head_can_be_analysed():
    model = joint_model()
    head = model.head
    expected = keras.ops.convert_to_numpy(head.logit_covariance(X)).mean(0)
    np.testing.assert_allclose(covariance(model, X), expected, rtol=1e-4)


@pytest.mark.parametrize(("call", "text"), [
    (lambda found: found.log_prob([1, 0]), r"`labels` must have shape .* or \(3,\). Received: shape \(2,\)"),
    (lambda found: found.log_prob([1, 0, 2]), r"`labels` must be 0, 1, or -1 if not known. Received: 2 at \[2\]"),
    (lambda found: found.most_likely([1, 0, 1]), "`candidates` must be 0 or 1, of shape"),
    (lambda found: joint_labels(keras.Sequential([keras.Input((2,)), HeteroscedasticDense(3)]), X),
     "`model` must be a DistributionModel of a JointHeteroscedasticDense"),
])  # fmt: skip
def test_refusals(found, call, text):
    with pytest.raises(ValueError, match=text):
        call(found)
