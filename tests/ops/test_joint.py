"""Joint likelihoods of label vectors and label maps against float64 and their sums over all labels, and gradients."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_softmax, logsumexp, softmax
from scipy.stats import norm, qmc

from keras_het.ops.joint import log_joint_labels, log_joint_pixels
from keras_het.ops.nodes import quasi_random
from tests.common import assert_finite, finite_differences, low_rank_normal, to_numpy
from tests.gradients import value_and_gradients

BATCH, LABELS, SIDES, CLASSES, FACTORS = 3, 4, (2, 3), 3, 2
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
FALSE_NEGATIVE, FALSE_POSITIVE = np.array([0.1, 0.3, 0.0, 0.2]), np.array([0.05, 0.0, 0.2, 0.1])
FLIPS = FALSE_NEGATIVE, FALSE_POSITIVE
NODES = quasi_random((0, 0), 48, 0, FACTORS)
NOISE = to_numpy(NODES.eps_factor).astype("float64")
WEIGHT_OF_IMAGES = np.array([1.0, 2.0, 3.0])


def random_problem(shape, own, count):
    rng = np.random.default_rng(0)
    tensors = rng.normal(size=shape), rng.uniform(*own, shape), rng.normal(size=(*shape, FACTORS))
    return tensors, lambda shape: rng.integers(count, size=shape)


def vectors(own=(0.1, 1.0)):
    tensors, draw = random_problem((BATCH, LABELS), own, 2)
    return tensors, draw((BATCH, LABELS))


def maps(sides=SIDES, own=(0.1, 1.0)):
    tensors, draw = random_problem((BATCH, *sides, CLASSES), own, CLASSES)
    return tensors, draw((BATCH, *sides))


def at_nodes(loc, factor, noise):
    return loc[:, None] + np.einsum("b...kr,sr->bs...k", factor, noise)


def vectors_oracle(loc, scale, factor, labels, noise=NOISE, log_weights=None, flips=(0.0, 0.0)):
    """log sum_s w_s prod_c p(y_c | e_s) in float64, with 80 nodes of Gauss and Hermite for each label's own noise."""
    u = at_nodes(loc, factor, noise)[..., None] + scale[:, None, :, None] * POINTS
    p, q = (np.einsum("m,bscm->bsc", WEIGHTS, expit(sign * u)) for sign in (1, -1))
    y, kept = labels[:, None], 1.0 - flips[0] - flips[1]
    log_p = np.where(y == 1, np.log(flips[1] + kept * p), np.where(y == 0, np.log(flips[0] + kept * q), 0.0))
    return logsumexp(log_p.sum(-1) + (-np.log(len(noise)) if log_weights is None else log_weights), axis=1)


def second_order(c, scale):
    """Computes log p of all classes, given logits without diagonal noise."""
    return log_softmax(c + (4 * scale**2 / (4 + scale**2)) * (0.5 - softmax(c, -1)), -1)


def by_own_noise(c, scale):
    """Computes log E softmax with 512 points of each class's noise."""
    points = norm.ppf(qmc.Sobol(CLASSES, seed=0).random(512)).reshape(512, *[1] * (c.ndim - 1), CLASSES)
    return logsumexp(log_softmax(c + scale * points, -1), axis=0) - np.log(512)


def maps_oracle(loc, scale, factor, labels, noise=NOISE, valid=True, of_pixel=second_order):
    """Computes log mean_s prod_i p(y_i | e_s) in float64."""
    log_p = of_pixel(at_nodes(loc, factor, noise), scale[:, None])
    own = np.take_along_axis(log_p, np.broadcast_to(labels[:, None, ..., None], (*log_p.shape[:-1], 1)), -1)[..., 0]
    own = np.where(np.broadcast_to(valid, labels.shape)[:, None], own, 0.0)
    return logsumexp(own.reshape(*own.shape[:2], -1).sum(-1), axis=1) - np.log(len(noise))


KINDS = {"vectors": (vectors, log_joint_labels, vectors_oracle), "maps": (maps, log_joint_pixels, maps_oracle)}
every_kind = pytest.mark.parametrize(("problem", "likelihood", "oracle"), KINDS.values(), ids=KINDS)


def computed(likelihood, tensors, labels, nodes=NODES, dtype="float32", **arguments):
    normal = low_rank_normal(*(ops.convert_to_tensor(x, dtype) for x in tensors))
    return to_numpy(likelihood(normal, labels, nodes, **arguments))


@pytest.mark.on_tensorflow
@every_kind
def test_the_likelihood_of_nodes_against_float64(problem, likelihood, oracle):
    tensors, labels = problem()
    for arguments in ({}, {"chunk_size": 20}, {"chunk_size": 16}, {"chunk_size": 1}):
        assert_allclose(computed(likelihood, tensors, labels, **arguments), oracle(*tensors, labels), atol=2e-5)


@pytest.mark.on_tensorflow
@every_kind
def test_no_factors_need_no_nodes(problem, likelihood, oracle):
    (loc, scale, factor), labels = problem()
    result = computed(likelihood, (loc, scale), labels, quasi_random((0, 0), 1, 0, 0))
    assert_allclose(result, oracle(loc, scale, 0 * factor, labels), atol=2e-5)


@pytest.mark.parametrize(("likelihood", "loc", "own", "labels"), [
    (log_joint_labels, [[1e4, -1e4, 0.0, 50.0]], 1e-3, [[0, 1, 1, 0]]),
    (log_joint_pixels, [[[1e4, -1e4, 0.0], [-1e20, 50.0, 0.0]]], 1e4, [[1, 2]]),
], ids=KINDS)  # fmt: skip
def test_extreme_logits_stay_finite(likelihood, loc, own, labels):
    loc = np.array(loc, "float32")
    tensors = [loc, np.full_like(loc, own), np.full((*loc.shape, FACTORS), 1e3, "float32")]
    total = lambda x: ops.sum(likelihood(low_rank_normal(*x), np.array(labels), NODES))  # noqa: E731
    assert_finite(*value_and_gradients(total, tensors))


@pytest.mark.once
def test_quasi_random_nodes_against_the_integral():
    """By 80 Gauss-Hermite nodes for each of the two factors; the error of 2^20 pseudo-random nodes is about 1e-3."""
    tensors, labels = vectors()
    noise, log_weights = np.array(list(itertools.product(POINTS, POINTS))), np.log(np.outer(WEIGHTS, WEIGHTS).ravel())
    result = computed(log_joint_labels, tensors, labels, quasi_random((0, 0), 1024, 0, FACTORS))
    assert_allclose(result, vectors_oracle(*tensors, labels, noise, log_weights), atol=2e-3)


@pytest.mark.once
@pytest.mark.parametrize("own", [0.5, 5.0])
@pytest.mark.parametrize("dtype", ["float32", *(["float64"] if keras.config.backend() != "jax" else [])])
def test_the_probabilities_of_all_label_maps_sum_to_one(own, dtype):
    tensors, _ = maps((3,), own=(own, own))
    all_labels = itertools.product(range(CLASSES), repeat=3)
    of_each = [computed(log_joint_pixels, tensors, np.tile(y, (BATCH, 1)), dtype=dtype) for y in all_labels]
    tolerance = 1e-12 if of_each[0].dtype == "float64" else 1e-4
    assert_allclose(np.exp(np.float64(of_each)).sum(0), 1.0, atol=tolerance)


def test_flips_and_missing_labels():
    tensors, labels = vectors()
    labels[0, 1], labels[1] = -1, -1
    result = computed(log_joint_labels, tensors, labels, flips=FLIPS)
    assert_allclose(result, vectors_oracle(*tensors, labels, flips=FLIPS), atol=2e-5)
    assert result[1] == 0.0
    filled = (np.where([[0, 1, 0, 0]], y, labels) for y in (0, 1))
    both = [computed(log_joint_labels, tensors, each, flips=FLIPS)[0] for each in filled]
    assert logsumexp(both) == pytest.approx(result[0], abs=1e-5)


@pytest.mark.once
def test_the_own_noise_is_nearly_that_of_the_sampled_softmax():
    tensors, labels = maps(own=(0.1, 0.7))
    expected = maps_oracle(*tensors, labels, of_pixel=by_own_noise)
    none = computed(log_joint_pixels, (tensors[0], 0 * tensors[1], tensors[2]), labels)
    assert np.abs(computed(log_joint_pixels, tensors, labels) - expected).max() < 0.02
    assert np.abs(none - expected).max() > 0.1


def check_gradients(total, oracle, arrays):
    """Checks the gradients of a scalar by differences of its oracle, away from edges at 0; returns them."""
    _, gradients = value_and_gradients(total, [np.float32(x) for x in arrays])
    for i, gradient in enumerate(gradients):
        slopes = finite_differences(lambda x, i=i: oracle(*arrays[:i], x, *arrays[i + 1 :]), arrays[i])
        assert gradient[arrays[i] != 0] == pytest.approx(slopes[arrays[i] != 0], rel=2e-3, abs=2e-4)
    return gradients


@pytest.mark.on_tensorflow
def test_gradients_of_vectors_against_finite_differences():
    tensors, labels = vectors()
    labels[0, 1] = -1

    def total(values):
        normal, flips = low_rank_normal(*values[:3]), tuple(values[3:])
        return ops.sum(log_joint_labels(normal, labels, NODES, flips=flips, chunk_size=20))

    oracle = lambda *x: vectors_oracle(*x[:3], labels, flips=x[3:]).sum()  # noqa: E731
    check_gradients(total, oracle, [*tensors, *FLIPS])


def test_gradients_of_maps_against_finite_differences():
    tensors, labels = maps((3,))
    valid = np.array([[True, False, True], [True, True, True], [False, False, False]])

    def total(values):
        result = log_joint_pixels(low_rank_normal(*values), labels, NODES, ops.convert_to_tensor(valid), chunk_size=20)
        return ops.sum(result * ops.convert_to_tensor(np.float32(WEIGHT_OF_IMAGES)))

    oracle = lambda *x: maps_oracle(*x, labels, valid=valid) @ WEIGHT_OF_IMAGES  # noqa: E731
    for gradient in check_gradients(total, oracle, tensors):
        assert_array_equal(gradient[~valid], 0.0)


@pytest.mark.once
@pytest.mark.parametrize("spoil", [3.0, np.inf])
def test_pixels_that_do_not_count_count_for_nothing_whatever_their_logits_and_labels(spoil):
    """They get gradients of exactly 0 in means, deviations and factors, even if these are infinite."""
    tensors, labels = maps()
    valid = np.random.default_rng(1).random(labels.shape) < 0.6
    valid[2] = False
    labels, expected = np.where(valid, labels, 99), maps_oracle(*tensors, np.where(valid, labels, 0), valid=valid)
    spoiled = [np.where(valid.reshape(*valid.shape, *[1] * (x.ndim - 3)), x, spoil).astype("float32") for x in tensors]

    def likelihood(parts):
        return log_joint_pixels(low_rank_normal(*parts), labels, NODES, ops.convert_to_tensor(valid))

    for gradient in value_and_gradients(lambda parts: ops.sum(likelihood(parts)), spoiled)[1]:
        assert_array_equal(gradient[~valid], 0.0)
        assert (np.abs(gradient[valid]) > 0).all()
    values = to_numpy(likelihood([ops.convert_to_tensor(x) for x in spoiled]))
    assert_allclose(values, expected, atol=2e-5)
    assert values[2] == 0.0


def test_other_labels_are_nan():
    tensors, labels = vectors()
    labels = labels.astype("float64")
    labels[:, 0] = 2, 0.5, np.nan
    assert np.isnan(computed(log_joint_labels, tensors, labels)).all()
    tensors, labels = maps()
    labels[:2, 0, 0] = -1, CLASSES
    for wrong in (labels, np.where(labels < 0, 0.5, labels)):
        assert_array_equal(np.isnan(computed(log_joint_pixels, tensors, wrong)), [True, True, False])
