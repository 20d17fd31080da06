"""Transitions: the matrices, the product in log space, the projection."""

import numpy as np
import pytest
from keras import ops
from scipy import optimize, special

from keras_het.ops import transition
from tests.gradients import value_and_gradients

UNITS = 4
MATRICES = {
    "random": np.random.default_rng(2).dirichlet(np.ones(UNITS), size=UNITS),
    "pair flip": transition.pair_flip(UNITS, 0.45),
    "symmetric": transition.symmetric(UNITS, 0.7),
    "outlier": transition.outlier(UNITS - 1, 0.3),
}


def log_probabilities(scale=1.0, shape=(6, UNITS)):
    return special.log_softmax(scale * np.random.default_rng(1).normal(size=shape), axis=-1).astype("float32")


def oracle(log_probs, matrix):
    """In float64 by logsumexp over the true classes."""
    with np.errstate(divide="ignore"):
        terms = log_probs.astype("float64")[..., :, None] + np.log(matrix)
    return np.logaddexp.reduce(terms, axis=-2)


def apply(log_probs, matrix):
    return ops.convert_to_numpy(transition.apply_transition(log_probs, matrix))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_the_identity_changes_nothing_exactly(scale):
    log_probs = log_probabilities(scale)
    np.testing.assert_array_equal(apply(log_probs, np.eye(UNITS)), log_probs)


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("name", MATRICES)
def test_values_against_float64(name, scale):
    log_probs = log_probabilities(scale)
    np.testing.assert_allclose(apply(log_probs, MATRICES[name]), oracle(log_probs, MATRICES[name]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.sum(np.exp(apply(log_probs, MATRICES[name])), axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["random", "symmetric"])
def test_logits_of_thousands(name):
    log_probs = log_probabilities(1e4)
    np.testing.assert_allclose(apply(log_probs, MATRICES[name]), oracle(log_probs, MATRICES[name]), rtol=1e-6, atol=1e-6)


def test_sources_that_underflow_count_for_their_own_label_only():
    log_probs = np.array([[-200.0, -500.0, 0.0], [0.0, -500.0, -200.0]], "float32")
    outputs = apply(log_probs, transition.pair_flip(3, 0.45))
    assert outputs[0, 1] == pytest.approx(-500 + np.log(0.55), rel=1e-6)
    assert outputs[1, 1] == pytest.approx(np.log(0.45), rel=1e-5)
    swap = np.roll(np.eye(3), 1, axis=1)  # from 0 to 1
    value, (gradient, _) = value_and_gradients(lambda t: transition.apply_transition(*t)[0, 1], [log_probs, swap.astype("float32")])
    assert value == pytest.approx(np.log(transition.SMALLEST), rel=1e-5)
    np.testing.assert_array_equal(gradient, 0)


def test_an_empty_batch():
    assert apply(log_probabilities()[:0], MATRICES["random"]).shape == (0, UNITS)


def test_leading_axes():
    log_probs = log_probabilities(shape=(2, 3, 5, UNITS))
    np.testing.assert_allclose(apply(log_probs, MATRICES["random"]), oracle(log_probs, MATRICES["random"]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["random", "pair flip"])
def test_gradients_against_finite_differences_in_float64(name):
    log_probs, matrix, weights = log_probabilities(3.0), MATRICES[name], np.random.default_rng(4).normal(size=(6, UNITS))

    def loss(tensors):
        return ops.sum(transition.apply_transition(*tensors) * ops.convert_to_tensor(weights, "float32"))

    _, gradients = value_and_gradients(loss, [log_probs, matrix.astype("float32")])
    for position, gradient in enumerate(gradients):
        for index in np.ndindex(gradient.shape):
            if position == 1 and matrix[index] == 0:
                continue  # at the edge: the difference below would step to a negative probability
            ends = []
            for sign in (-1, 1):
                point = [log_probs.astype("float64"), matrix.copy()]
                point[position][index] += sign * 1e-6
                ends.append(np.sum(weights * oracle(*point)))
            np.testing.assert_allclose(gradient[index], (ends[1] - ends[0]) / 2e-6, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "matrix", [np.eye(UNITS), transition.outlier(UNITS - 1), np.roll(np.eye(UNITS), 1, axis=0)], ids=["I", "outlier", "swap"]
)
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_gradients_are_finite_where_entries_are_zero(matrix, scale):
    def loss(tensors):
        return ops.sum(transition.apply_transition(*tensors))

    value, gradients = value_and_gradients(loss, [log_probabilities(scale), matrix.astype("float32")])
    assert np.isfinite(value)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("z", [-5.0, -30.0, -44.0, -50.0, -80.0, -87.0, -95.0, -104.0])
@pytest.mark.parametrize("name", ["I", "pair flip", "start", "outlier"])
def test_gradients_of_small_probabilities(name, z):
    """The slope of log p(noisy 0): one over the prediction times T's column, by float64."""
    matrices = {**MATRICES, "I": np.eye(UNITS), "start": 0.99 * np.eye(UNITS) + 0.01 / UNITS}
    matrix, log_probs = matrices[name], np.array([[z, -1.0, 0.0, -2.0]], "float32")
    value, (gradient, of_matrix) = value_and_gradients(
        lambda t: transition.apply_transition(*t)[0, 0], [log_probs, matrix.astype("float32")]
    )
    assert np.isfinite(value)
    assert np.isfinite(of_matrix).all()
    parts = np.exp(log_probs[0].astype("float64")) * matrix[:, 0]
    np.testing.assert_allclose(gradient[0], parts / parts.sum(), rtol=1e-3, atol=1e-5)


def test_projection_agrees_with_quadratic_programming():
    rows = np.random.default_rng(3).normal(size=(1000, 5)) * np.random.default_rng(4).choice([0.1, 1, 10], size=(1000, 1))
    projected = ops.convert_to_numpy(transition.project_to_simplex(rows.astype("float32")))
    for row, x in zip(rows, projected, strict=True):
        answer = optimize.minimize(
            lambda p, row=row: 0.5 * np.sum((p - row) ** 2),
            np.full(5, 0.2),
            jac=lambda p, row=row: p - row,
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(5)},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(x, answer.x, atol=2e-5)


def test_projection_keeps_what_is_stochastic_and_leading_axes():
    for matrix in MATRICES.values():
        np.testing.assert_allclose(ops.convert_to_numpy(transition.project_to_simplex(matrix.astype("float32"))), matrix, atol=1e-6)
    many = np.random.default_rng(5).normal(size=(2, 3, 200)).astype("float32")
    projected = ops.convert_to_numpy(transition.project_to_simplex(many))
    assert projected.min() >= 0
    np.testing.assert_allclose(projected.sum(-1), 1, rtol=1e-5)


def test_matrices_are_row_stochastic():
    for matrix in MATRICES.values():
        np.testing.assert_array_equal(transition.check_transition(matrix), matrix)
    assert transition.pair_flip(3, 0.2)[2].tolist() == [0.2, 0.0, 0.8]
    assert transition.outlier(3, 0.4)[3].tolist() == pytest.approx([0.2, 0.2, 0.2, 0.4])
    flips = transition.random_flip(6, 0.3, seed=1)
    np.testing.assert_allclose(flips.diagonal(), 0.7)
    np.testing.assert_allclose(flips.sum(axis=1), 1)
    assert not np.allclose(flips, transition.random_flip(6, 0.3, seed=2))
    np.testing.assert_array_equal(flips, transition.random_flip(6, 0.3, seed=1))


def test_diagnostics():
    assert transition.total_variation(transition.symmetric(5, 0.5), np.eye(5)) == pytest.approx(0.5)
    assert transition.trace(transition.symmetric(5, 0.2)) == pytest.approx(4)
    # The eigenvalues of a pair flip are 1 - q + q w, with w the K-th roots of one.
    assert transition.condition_number(transition.pair_flip(4, 0.45)) == pytest.approx(1 / 0.1)
    assert transition.condition_number(np.roll(np.eye(3), 1, axis=0)) == pytest.approx(1)
    for singular in (transition.symmetric(4, 0.75), transition.outlier(3), transition.pair_flip(4, 0.5)):
        assert transition.condition_number(singular) == np.inf


def noisy_sample(matrix, count=20_000):
    """Noisy labels, and the posteriors of the noisy label and of the class, of examples that are nearly sure to be of one class."""
    rng = np.random.default_rng(6)
    clean = rng.dirichlet(np.full(UNITS, 0.02), size=count)
    posterior = clean @ matrix
    labels = (posterior.cumsum(axis=1) > rng.random((count, 1))).argmax(axis=1)
    return labels, posterior, clean


def test_estimators_find_the_transition():
    matrix = transition.pair_flip(UNITS, 0.3)
    labels, posterior, clean = noisy_sample(matrix)
    assert transition.total_variation(transition.estimate_by_anchors(posterior), matrix) < 1e-3
    assert transition.total_variation(transition.estimate_by_confident_joint(labels, clean), matrix) < 0.05
    p = np.linspace(0, 1, 101)[:, None]  # the 97% quantile of 101 examples is the fourth from the end
    np.testing.assert_allclose(transition.estimate_by_anchors(np.hstack([p, 1 - p]), 0.97), [[0.97, 0.03], [0.03, 0.97]])
    assert transition.total_variation(np.eye(UNITS), matrix) > 0.25  # what the two bounds have to beat


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: transition.check_transition(np.ones((2, 3))), "`transition` must be a square matrix. Received: shape (2, 3)"),
        (lambda: transition.check_transition([[1.2, -0.2], [0, 1]]), "must not be negative. Received: -0.2 at [0, 1]"),
        (lambda: transition.check_transition([[1, 0], [0.5, 0.6]]), "must have rows that sum to one. Received: row 1 sums to 1.1"),
        (lambda: transition.check_transition([[1, 0], [np.nan, 1]]), "must not be negative. Received: nan at [1, 0]"),
        (lambda: transition.symmetric(3, 1.5), "`noise` must be in [0, 1]. Received: noise=1.5"),
        (lambda: transition.random_flip(1, 0.5), "`num_classes` must be an integer at least 2. Received: num_classes=1"),
        (lambda: transition.outlier(3, -0.1), "`alpha` must be in [0, 1]. Received: alpha=-0.1"),
        (
            lambda: transition.estimate_by_anchors([[0.5, 0.5], [0.0, 0.0]]),
            "`probabilities` must have rows of a positive sum. Received: row 1 sums to 0",
        ),
        (lambda: transition.estimate_by_anchors([[1.5, 0.0]]), "`probabilities` must be in [0, 1] and of shape (N, K)"),
        (
            lambda: transition.estimate_by_confident_joint([0, 0], [[0.5, 0.5]] * 2),
            "have an example of every class. Received: none of class 1",
        ),
        (lambda: transition.estimate_by_confident_joint([0, -1], [[0.5, 0.5]] * 2), "`labels` must be in [0, 2). Received: -1 at [1]"),
        (lambda: transition.estimate_by_confident_joint([0, 1], [[0.5, 0.5]] * 3), "an entry for each of the 3 examples. Received: 2"),
        (lambda: transition.outlier(0), "`num_classes` must be an integer at least 1. Received: num_classes=0"),
        (lambda: transition.symmetric(2.5, 0.1), "`num_classes` must be an integer at least 2. Received: num_classes=2.5"),
        (lambda: transition.from_confusion([[1, 0], [0, 0]]), "an example of every class. Received: none of class 1"),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)
