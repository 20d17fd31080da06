"""Joint likelihood of label maps against float64 and against its sum over all maps, and its gradients."""

import itertools

import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import norm, qmc

from keras_het.ops.joint import log_joint_pixels
from keras_het.ops.nodes import quasi_random
from tests.common import assert_finite, low_rank_normal, to_numpy
from tests.gradients import value_and_gradients

BATCH, SIDES, CLASSES, FACTORS = 3, (2, 3), 3, 2
NODES = 48


def problem(seed=0, sides=SIDES, own=(0.1, 1.0)):
    rng = np.random.default_rng(seed)
    shape = (BATCH, *sides, CLASSES)
    tensors = rng.normal(size=shape), rng.uniform(*own, shape), rng.normal(size=(*shape, FACTORS))
    return tensors, rng.integers(CLASSES, size=shape[:-1])


def noise_of(nodes):
    return to_numpy(nodes.eps_factor).astype("float64")


def second_order(c, scale):
    """Computes log p of all classes, given logits without diagonal noise."""
    return log_softmax(c + (4 * scale**2 / (4 + scale**2)) * (0.5 - softmax(c, -1)), -1)


def oracle(loc, scale, factor, labels, noise, valid=None, of_pixel=second_order):
    """Computes log mean_s prod_i p(y_i | e_s) in float64, one image, node and pixel at a time."""
    result = np.zeros(len(loc))
    for image in range(len(loc)):
        totals = np.zeros(len(noise))
        for s, place in itertools.product(range(len(noise)), np.ndindex(loc.shape[1:-1])):
            index = (image, *place)
            if valid is None or valid[index]:
                totals[s] += of_pixel(loc[index] + factor[index] @ noise[s], scale[index])[labels[index]]
        result[image] = logsumexp(totals) - np.log(len(noise))
    return result


def by_own_noise(c, scale):
    """Computes log E softmax with 512 points of each class's noise."""
    points = norm.ppf(qmc.Sobol(CLASSES, seed=0).random(512))
    return logsumexp(log_softmax(c + scale * points, -1), axis=0) - np.log(512)


def computed(tensors, labels, nodes, dtype="float32", **arguments):
    normal = low_rank_normal(*(ops.convert_to_tensor(x, dtype) for x in tensors))
    return to_numpy(log_joint_pixels(normal, labels, nodes, **arguments))


NOISE = quasi_random((0, 0), NODES, 0, FACTORS)


@pytest.mark.on_tensorflow
def test_the_likelihood_of_nodes_against_float64():
    tensors, labels = problem()
    expected = oracle(*tensors, labels, noise_of(NOISE))
    for arguments in ({}, {"chunk_size": 20}, {"chunk_size": 16}, {"chunk_size": 1}):
        assert_allclose(computed(tensors, labels, NOISE, **arguments), expected, atol=2e-5)


@pytest.mark.once
def test_the_own_noise_is_nearly_that_of_the_sampled_softmax():
    tensors, labels = problem(own=(0.1, 0.7))
    expected = oracle(*tensors, labels, noise_of(NOISE), of_pixel=by_own_noise)
    none = computed((tensors[0], 0 * tensors[1], tensors[2]), labels, NOISE)
    assert np.abs(computed(tensors, labels, NOISE) - expected).max() < 0.02
    assert np.abs(none - expected).max() > 0.1


@pytest.mark.once
@pytest.mark.parametrize("own", [0.5, 5.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_probabilities_of_all_label_maps_sum_to_one(own, dtype):
    tensors, _ = problem(sides=(3,), own=(own, own))
    maps = np.array(list(itertools.product(range(CLASSES), repeat=3)))
    of_each = np.array([computed(tensors, np.tile(labels, (BATCH, 1)), NOISE, dtype) for labels in maps])
    of_each, tolerance = of_each.astype("float64"), 1e-12 if of_each.dtype == "float64" else 1e-4
    assert_allclose(np.exp(of_each).sum(0), 1.0, atol=tolerance)


def test_gradients_against_finite_differences():
    tensors, labels = problem(sides=(3,))
    valid = np.array([[True, False, True], [True, True, True], [False, False, False]])

    def total(values):
        result = log_joint_pixels(low_rank_normal(*values), labels, NOISE, ops.convert_to_tensor(valid), chunk_size=20)
        return ops.sum(result * ops.convert_to_tensor(np.float32([1.0, 2.0, 3.0])))

    _, gradients = value_and_gradients(total, [np.float32(x) for x in tensors])
    for place, gradient in enumerate(gradients):
        assert_array_equal(gradient[~valid], 0.0)
        for index in itertools.islice(np.ndindex(tensors[place].shape), 0, None, 2):
            shifted = []
            for step in (1e-5, -1e-5):
                moved = [x.copy() for x in tensors]
                moved[place][index] += step
                shifted.append(oracle(*moved, labels, noise_of(NOISE), valid) @ [1.0, 2.0, 3.0])
            assert gradient[index] == pytest.approx((shifted[0] - shifted[1]) / 2e-5, rel=2e-3, abs=2e-4)


def check_that_ignored_pixels_leave(likelihood):
    """Ignored pixels get gradients of exactly 0 in means, deviations and factors, even if these are infinite."""
    tensors, labels = problem()
    valid = np.random.default_rng(1).random(labels.shape) < 0.6
    valid[2] = False
    values, labels, expected = [], np.where(valid, labels, 99), oracle(*tensors, labels, noise_of(NOISE), valid)
    for spoil in (3.0, np.inf):
        spoiled = [np.where(valid.reshape(*valid.shape, *[1] * (x.ndim - 3)), x, spoil) for x in tensors]

        def total(parts):
            result = likelihood(low_rank_normal(*parts), labels, NOISE, ops.convert_to_tensor(valid))
            values.append(to_numpy(ops.stop_gradient(result)))
            return ops.sum(result)

        for gradient in value_and_gradients(total, [np.float32(x) for x in spoiled])[1]:
            assert_array_equal(gradient[~valid], 0.0)
            assert (np.abs(gradient[valid]) > 0).all()
        assert_allclose(values[-1], expected, atol=2e-5)
    assert values[-1][2] == 0.0


@pytest.mark.once
def test_pixels_that_do_not_count_count_for_nothing_whatever_their_logits_and_labels():
    check_that_ignored_pixels_leave(log_joint_pixels)


def test_no_factors_need_no_nodes():
    (loc, scale, factor), labels = problem()
    normal = low_rank_normal(*(ops.convert_to_tensor(x, "float32") for x in (loc, scale)))
    result = to_numpy(log_joint_pixels(normal, labels, quasi_random((0, 0), 1, 0, 0)))
    assert_allclose(result, oracle(loc, scale, 0 * factor, labels, np.zeros((1, FACTORS))), atol=2e-5)


def test_extreme_logits_stay_finite():
    loc = np.array([[[1e4, -1e4, 0.0], [-1e20, 50.0, 0.0]]], "float32")
    tensors = loc, np.full_like(loc, 1e4), np.full((1, 2, 3, 2), 1e3, "float32")
    value, gradients = value_and_gradients(
        lambda x: ops.sum(log_joint_pixels(low_rank_normal(*x), np.array([[1, 2]]), NOISE)), list(tensors)
    )
    assert_finite(value, gradients)


@pytest.mark.once
def test_a_label_that_is_no_class_makes_its_image_nan():
    tensors, labels = problem()
    for image, wrong in enumerate((-1, CLASSES)):
        labels[image, 0, 0] = wrong
    assert_array_equal(np.isnan(computed(tensors, labels, NOISE)), [True, True, False])
    assert_array_equal(np.isnan(computed(tensors, np.where(labels < 0, 0.5, labels), NOISE)), [True, True, False])
