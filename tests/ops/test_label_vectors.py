"""Joint likelihood of label vectors against float64 and against its sum over all vectors, and its gradients."""

import itertools

import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.special import expit, logsumexp

from keras_het.ops.joint import log_joint_labels
from keras_het.ops.nodes import Nodes, quasi_random
from tests.common import assert_finite, low_rank_normal, to_numpy
from tests.gradients import value_and_gradients

LABELS, FACTORS, BATCH = 4, 2, 3
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
FALSE_NEGATIVE, FALSE_POSITIVE = np.array([0.1, 0.3, 0.0, 0.2]), np.array([0.05, 0.0, 0.2, 0.1])


def problem(seed=0, labels=LABELS, factors=FACTORS):
    rng = np.random.default_rng(seed)
    loc, scale = rng.normal(size=(BATCH, labels)), rng.uniform(0.1, 1.0, (BATCH, labels))
    return (loc, scale, rng.normal(size=(BATCH, labels, factors))), rng.integers(2, size=(BATCH, labels))


def oracle(loc, scale, factor, labels, noise, log_weights, flips=(0.0, 0.0)):
    """log sum_s w_s prod_c p(y_c | e_s) in float64, with 80 nodes of Gauss and Hermite for each label's own noise."""
    u = loc[:, None] + np.einsum("bcr,sr->bsc", factor, noise)
    u = u[..., None] + scale[:, None, :, None] * POINTS
    p, q = (np.einsum("m,bscm->bsc", WEIGHTS, expit(sign * u)) for sign in (1, -1))
    y, kept = labels[:, None], 1.0 - flips[0] - flips[1]
    log_p = np.where(y == 1, np.log(flips[1] + kept * p), np.where(y == 0, np.log(flips[0] + kept * q), 0.0))
    return logsumexp(log_p.sum(-1) + log_weights, axis=1)


def exact(loc, scale, factor, labels, flips=(0.0, 0.0)):
    """Computes the same with 80 Gauss-Hermite nodes for each of the two factors."""
    noise = np.array(list(itertools.product(POINTS, POINTS)))
    return oracle(loc, scale, factor, labels, noise, np.log(np.outer(WEIGHTS, WEIGHTS).ravel()), flips)


def computed(tensors, labels, nodes, **arguments):
    normal = low_rank_normal(*(ops.convert_to_tensor(x, "float32") for x in tensors))
    return to_numpy(log_joint_labels(normal, labels, nodes, **arguments))


@pytest.mark.on_tensorflow
def test_the_likelihood_of_nodes_against_float64():
    tensors, labels = problem()
    nodes = quasi_random((0, 0), 96, 0, FACTORS)
    expected = oracle(*tensors, labels, to_numpy(nodes.eps_factor).astype("float64"), -np.log(96))
    for arguments in ({}, {"chunk_size": 40}, {"chunk_size": 32}, {"chunk_size": 1}):
        assert_allclose(computed(tensors, labels, nodes, **arguments), expected, atol=2e-5)


@pytest.mark.once
def test_quasi_random_nodes_against_the_integral():
    """The error of 2^20 pseudo-random nodes would be about 1e-3; here 1024 quasi-random ones are compared."""
    tensors, labels = problem(seed=1)
    nodes = quasi_random((0, 0), 1024, 0, FACTORS)
    assert_allclose(computed(tensors, labels, nodes), exact(*tensors, labels), atol=2e-3)


@pytest.mark.once
@pytest.mark.parametrize("flips", [(0.0, 0.0), (FALSE_NEGATIVE, FALSE_POSITIVE)], ids=["right", "flips"])
def test_the_probabilities_of_all_vectors_sum_to_one(flips):
    tensors, _ = problem()
    nodes = quasi_random((0, 0), 64, 0, FACTORS)
    vectors = np.array(list(itertools.product((0, 1), repeat=LABELS)))
    of_each = [computed(tensors, np.tile(vector, (BATCH, 1)), nodes, flips=flips) for vector in vectors]
    assert_allclose(np.exp(of_each).sum(0), 1.0, atol=1e-4)


def test_flips_and_missing_labels():
    tensors, labels = problem()
    labels[0, 1], labels[1] = -1, -1
    nodes = quasi_random((0, 0), 64, 0, FACTORS)
    noise = to_numpy(nodes.eps_factor).astype("float64")
    flips = FALSE_NEGATIVE, FALSE_POSITIVE
    result = computed(tensors, labels, nodes, flips=flips)
    assert_allclose(result, oracle(*tensors, labels, noise, -np.log(64), flips), atol=2e-5)
    assert result[1] == 0.0
    both = [computed(tensors, np.where([[0, 1, 0, 0]], y, labels), nodes, flips=flips)[0] for y in (0, 1)]
    assert logsumexp(both) == pytest.approx(result[0], abs=1e-5)


def test_gradients_against_finite_differences():
    tensors, labels = problem()
    labels[0, 1] = -1
    nodes = quasi_random((0, 0), 96, 0, FACTORS)
    noise, log_weight = to_numpy(nodes.eps_factor).astype("float64"), -np.log(96)
    flips = FALSE_NEGATIVE, FALSE_POSITIVE

    def total(values):
        normal = low_rank_normal(*values[:3])
        return ops.sum(log_joint_labels(normal, labels, nodes, flips=tuple(values[3:]), chunk_size=40))

    given = [*tensors, *flips]
    _, gradients = value_and_gradients(total, [np.float32(x) for x in given])
    for place, gradient in enumerate(gradients):
        for index in itertools.islice(np.ndindex(given[place].shape), 0, None, 3):
            shifted = []
            for step in (1e-5, -1e-5):
                moved = [x.copy() for x in given]
                moved[place][index] += step
                shifted.append(oracle(*moved[:3], labels, noise, log_weight, moved[3:]).sum())
            assert gradient[index] == pytest.approx((shifted[0] - shifted[1]) / 2e-5, rel=2e-3, abs=2e-4)


def test_no_factors_need_no_nodes():
    (loc, scale, _), labels = problem()
    normal = low_rank_normal(*(ops.convert_to_tensor(x, "float32") for x in (loc, scale)))
    nodes = Nodes(np.zeros((1, 0), "float32"), np.zeros((1, 0), "float32"))
    result = to_numpy(log_joint_labels(normal, labels, nodes))
    assert_allclose(result, oracle(loc, scale, np.zeros((BATCH, LABELS, 1)), labels, [[0.0]], 0.0), atol=2e-5)


def test_extreme_logits_stay_finite():
    loc = np.array([[1e4, -1e4, 0.0, 50.0]], "float32")
    tensors = loc, np.full_like(loc, 1e-3), np.full((1, 4, 2), 1e3, "float32")
    nodes = quasi_random((0, 0), 32, 0, 2)
    value, gradients = value_and_gradients(
        lambda x: ops.sum(log_joint_labels(low_rank_normal(*x), np.array([[0, 1, 1, 0]]), nodes)), list(tensors)
    )
    assert_finite(value, gradients)


def test_other_labels_are_nan():
    tensors, labels = problem()
    nodes = quasi_random((0, 0), 32, 0, FACTORS)
    for row, wrong in enumerate((2, 0.5, np.nan)):
        labels = labels.astype("float64")
        labels[row, 0] = wrong
    assert np.isnan(computed(tensors, labels, nodes)).all()
