"""Transitions: the product in log space, and the projection."""

import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, special

from keras_het.labels import pair_flip, symmetric
from keras_het.ops import transition
from keras_het.ops.transition import outlier_class
from tests.common import assert_finite, finite_differences, to_numpy
from tests.gradients import value_and_gradients
from tests.marks import grid

UNITS = 4
MATRICES = {
    "random": np.random.default_rng(2).dirichlet(np.ones(UNITS), size=UNITS),
    "pair flip": pair_flip(UNITS, 0.45),
    "symmetric": symmetric(UNITS, 0.7),
    "outlier": outlier_class(UNITS - 1, 0.3),
}


def log_probabilities(scale=1.0, shape=(6, UNITS)):
    return special.log_softmax(scale * np.random.default_rng(1).normal(size=shape), axis=-1).astype("float32")


def oracle(log_probs, matrix):
    with np.errstate(divide="ignore"):
        terms = log_probs.astype("float64")[..., :, None] + np.log(matrix)
    return np.logaddexp.reduce(terms, axis=-2)


def apply(log_probs, matrix):
    return to_numpy(transition.apply_transition(log_probs, matrix))


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("name", MATRICES)
def test_values_against_float64_and_of_the_identity_exactly(name, scale):
    log_probs = log_probabilities(scale)
    assert_allclose(apply(log_probs, MATRICES[name]), oracle(log_probs, MATRICES[name]), rtol=1e-6, atol=1e-6)
    assert_allclose(np.sum(np.exp(apply(log_probs, MATRICES[name])), axis=-1), 1, rtol=1e-5)
    for each in (log_probs, log_probabilities(30.0), log_probabilities(1e4)):
        assert_array_equal(apply(each, np.eye(UNITS)), each)


def test_sources_that_underflow_count_for_their_own_label_only():
    log_probs = np.array([[-200.0, -500.0, 0.0], [0.0, -500.0, -200.0]], "float32")
    outputs = apply(log_probs, pair_flip(3, 0.45))
    assert outputs[0, 1] == pytest.approx(-500 + np.log(0.55), rel=1e-6)
    assert outputs[1, 1] == pytest.approx(np.log(0.45), rel=1e-5)
    swap = np.roll(np.eye(3), 1, axis=1)  # from 0 to 1
    value, (gradient, _) = value_and_gradients(
        lambda t: transition.apply_transition(*t)[0, 1], [log_probs, swap.astype("float32")]
    )
    assert value == pytest.approx(np.log(transition.MIN_PROBABILITY), rel=1e-5)
    assert_array_equal(gradient, 0)


def test_leading_axes_and_an_empty_batch():
    log_probs = log_probabilities(shape=(2, 3, 5, UNITS))
    assert_allclose(apply(log_probs, MATRICES["random"]), oracle(log_probs, MATRICES["random"]), rtol=1e-6, atol=1e-6)
    assert apply(log_probs[:0], MATRICES["random"]).shape == (0, 3, 5, UNITS)


@pytest.mark.parametrize("name", ["random", "pair flip"])
def test_gradients_against_finite_differences_in_float64(name):
    log_probs, matrix = log_probabilities(3.0), MATRICES[name]
    weights = np.random.default_rng(4).normal(size=(6, UNITS))

    def loss(tensors):
        return ops.sum(transition.apply_transition(*tensors) * ops.convert_to_tensor(weights, "float32"))

    _, (of_log_probs, of_matrix) = value_and_gradients(loss, [log_probs, matrix.astype("float32")])
    slopes = finite_differences(lambda x: np.sum(weights * oracle(x, matrix)), log_probs, 1e-6)
    assert_allclose(of_log_probs, slopes, rtol=1e-3, atol=1e-3)
    inside = matrix > 0  # at the edge a difference steps to a negative probability
    with np.errstate(invalid="ignore"):
        slopes = finite_differences(lambda x: np.sum(weights * oracle(log_probs, x)), matrix, 1e-6)
    assert_allclose(of_matrix[inside], slopes[inside], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "matrix", [np.eye(UNITS), outlier_class(UNITS - 1), np.roll(np.eye(UNITS), 1, axis=0)], ids=["I", "outlier", "swap"]
)
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_gradients_are_finite_where_entries_are_zero(matrix, scale):
    def loss(tensors):
        return ops.sum(transition.apply_transition(*tensors))

    value, gradients = value_and_gradients(loss, [log_probabilities(scale), matrix.astype("float32")])
    assert_finite(value, gradients)


@pytest.mark.parametrize("z", grid([-5.0, -30.0, -44.0, -50.0, -80.0, -87.0, -95.0, -104.0], span=[-5.0, -104.0]))
@pytest.mark.parametrize("name", ["I", "pair flip", "start", "outlier"])
def test_gradients_of_small_probabilities(name, z):
    """The slope of log p(noisy 0): one over the prediction times T's column, by float64."""
    matrices = {**MATRICES, "I": np.eye(UNITS), "start": 0.99 * np.eye(UNITS) + 0.01 / UNITS}
    matrix, log_probs = matrices[name], np.array([[z, -1.0, 0.0, -2.0]], "float32")
    value, (gradient, of_matrix) = value_and_gradients(
        lambda t: transition.apply_transition(*t)[0, 0], [log_probs, matrix.astype("float32")]
    )
    assert_finite(value, [of_matrix])
    parts = np.exp(log_probs[0].astype("float64")) * matrix[:, 0]
    assert_allclose(gradient[0], parts / parts.sum(), rtol=1e-3, atol=1e-5)


def test_projection_agrees_with_quadratic_programming():
    sums_to_one = {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(5)}
    rows = np.random.default_rng(3).normal(size=(100, 5)) * np.tile([[0.1], [1], [10], [1]], (25, 1))
    for row, x in zip(rows, to_numpy(transition.project_to_simplex(rows.astype("float32"))), strict=True):
        answer = optimize.minimize(
            lambda p, row=row: 0.5 * np.sum((p - row) ** 2),
            np.full(5, 0.2),
            jac=lambda p, row=row: p - row,
            bounds=[(0, 1)] * 5,
            method="SLSQP",
            options={"ftol": 1e-14},
            constraints=sums_to_one,
        )
        assert_allclose(x, answer.x, atol=2e-5)
    for matrix in MATRICES.values():  # what is stochastic stays
        assert_allclose(to_numpy(transition.project_to_simplex(matrix.astype("float32"))), matrix, atol=1e-6)
    many = np.random.default_rng(5).normal(size=(2, 3, 200)).astype("float32")
    projected = to_numpy(transition.project_to_simplex(many))
    assert projected.min() >= 0
    assert_allclose(projected.sum(-1), 1, rtol=1e-5)
